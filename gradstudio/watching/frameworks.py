"""Watching a training that a framework runs: a callback for Lightning, one for the Trainer of Hugging Face, and plain
`gradstudio.watch` for Accelerate and Fabric. No framework is imported before it is needed.

    from gradstudio.watching import frameworks
    trainer = lightning.Trainer(..., callbacks=[frameworks.lightning_callback()])
    trainer = transformers.Trainer(..., callbacks=[frameworks.huggingface_callback()])

    model, optimizer = accelerator.prepare(model, optimizer)          # or fabric.setup
    watched = frameworks.watch_prepared(model, optimizer)"""

from __future__ import annotations

import re
from importlib import import_module
from typing import Any

from torch import nn
from torch.optim import Optimizer

from gradstudio.session.files.log_reading.column_names import guess_columns
from gradstudio.watching.training_watch import TrainingWatch, watch


def lightning_callback(**options: Any) -> Any:
    """Return a callback for Lightning that watches each optimizer of the module. `options` as in gradstudio.watch; the
    callback's `watched` is the list of its results."""

    class WatchCallback(_first_of("lightning.pytorch", "pytorch_lightning").Callback):
        def __init__(self) -> None:
            self.watched: list[TrainingWatch] = []

        def on_train_start(self, trainer: Any, pl_module: nn.Module) -> None:
            self.watched += [watch(pl_module, optimizer, **options) for optimizer in trainer.optimizers]

            if len(self.watched) == 1 and trainer.global_step:
                self.watched[0].log(step=trainer.global_step)

        def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
            if trainer.global_step % max(trainer.log_every_n_steps, 1) == 0:
                self._tell(trainer.logged_metrics)

        def on_validation_end(self, trainer: Any, pl_module: nn.Module) -> None:
            if not trainer.sanity_checking:
                self._tell({name: value for name, value in trainer.callback_metrics.items() if _of_a_test(name)})

        def _tell(self, metrics: Any) -> None:
            for watched in self.watched[:1]:
                watched.log(**_own(metrics))

        def on_train_end(self, trainer: Any, pl_module: nn.Module) -> None:
            _close(self.watched)

        def on_exception(self, trainer: Any, pl_module: nn.Module, exception: BaseException) -> None:
            _close(self.watched)

    return WatchCallback()


def huggingface_callback(**options: Any) -> Any:
    """Return a callback for the Trainer of Hugging Face. `options` as in gradstudio.watch; the callback's `watched` is
    the list of its results."""

    class WatchCallback(import_module("transformers").TrainerCallback):
        def __init__(self) -> None:
            self.watched: list[TrainingWatch] = []

        def on_train_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
            self.watched.append(watch_prepared(given["model"], given["optimizer"], **options))
            if state.global_step:
                self.watched[-1].log(step=state.global_step)

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **given: Any) -> None:
            for watched in self.watched[-1:]:
                watched.log(step=state.global_step, **_own(logs or {}))

        def on_train_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
            _close(self.watched)

    return WatchCallback()


def watch_prepared(model: nn.Module, optimizer: Any, **options: Any) -> TrainingWatch:
    """Watch a model and an optimizer returned by Accelerate or Fabric: the wrapper of an optimizer is removed first.
    `options` as in gradstudio.watch."""
    while isinstance(inner := getattr(optimizer, "optimizer", None), Optimizer):
        optimizer = inner
    return watch(model, optimizer, **options)


_MEASURED = ("loss", "grad_norm", "lr", "scale", "weight_norm", "step_seconds")  # measured by the watch itself
_OF_A_TEST = re.compile(r"val|eval|test", re.IGNORECASE)
_ABOUT_TIME = re.compile(r"(epoch|runtime|per_second|_flos|timing.*)$", re.IGNORECASE)


def _of_a_test(name: str) -> bool:
    return _OF_A_TEST.search(name) is not None


def _own(metrics: Any) -> dict[str, Any]:
    """Return the metrics of a framework without those that the watch measures, and those about time."""
    columns = guess_columns(metrics, {})
    measured = {columns[quantity] for quantity in _MEASURED if quantity in columns}
    return {name: each for name, each in metrics.items() if name not in measured and not _ABOUT_TIME.search(name)}


def _close(watched: list[TrainingWatch]) -> None:
    for each in watched:
        each.close()


def _first_of(*names: str) -> Any:
    """Return the first of these modules that is installed."""
    for name in names[:-1]:
        try:
            return import_module(name)
        except ModuleNotFoundError as fault:
            if not name.startswith(fault.name or "?"):
                raise
    return import_module(names[-1])
