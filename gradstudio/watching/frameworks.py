"""What it takes to watch a training that a framework makes: a callback for Lightning, one for the Trainer of Hugging
Face, and nothing but `gradstudio.watch` for Accelerate and Fabric. No framework is imported before it is asked for.

    from gradstudio.watching import frameworks
    trainer = lightning.Trainer(..., callbacks=[frameworks.lightning_callback()])
    trainer = transformers.Trainer(..., callbacks=[frameworks.huggingface_callback()])

    model, optimizer = accelerator.prepare(model, optimizer)          # or fabric.setup
    watched = frameworks.watch_prepared(model, optimizer)
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from torch import nn
from torch.optim import Optimizer

from gradstudio.watching.watched import Watched, watch


def lightning_callback(**options: Any) -> Any:
    """Return a callback for Lightning that watches each optimizer of the module. `options` as of gradstudio.watch;
    `watched` of the callback is the list of what gradstudio.watch gave."""

    class Watching(_first_of("lightning.pytorch", "pytorch_lightning").Callback):
        def __init__(self) -> None:
            self.watched: list[Watched] = []

        def on_train_start(self, trainer: Any, pl_module: nn.Module) -> None:
            self.watched += [watch(pl_module, optimizer, **options) for optimizer in trainer.optimizers]

        def on_train_end(self, trainer: Any, pl_module: nn.Module) -> None:
            _close(self.watched)

        def on_exception(self, trainer: Any, pl_module: nn.Module, exception: BaseException) -> None:
            _close(self.watched)

    return Watching()


def huggingface_callback(**options: Any) -> Any:
    """Return a callback for the Trainer of Hugging Face. `options` as of gradstudio.watch; `watched` of the callback is
    the list of what gradstudio.watch gave."""

    class Watching(import_module("transformers").TrainerCallback):
        def __init__(self) -> None:
            self.watched: list[Watched] = []

        def on_train_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
            self.watched.append(watch_prepared(given["model"], given["optimizer"], **options))

        def on_train_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
            _close(self.watched)

    return Watching()


def watch_prepared(model: nn.Module, optimizer: Any, **options: Any) -> Watched:
    """Watch a model and an optimizer as Accelerate or Fabric gave them: what they put around an optimizer is taken off
    first. `options` as of gradstudio.watch."""
    while isinstance(inner := getattr(optimizer, "optimizer", None), Optimizer):
        optimizer = inner
    return watch(model, optimizer, **options)


def _close(watched: list[Watched]) -> None:
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
