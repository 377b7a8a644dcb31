"""Parts of a model that stay in evaluation mode while they are trained."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence

from torch import nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.dropout import _DropoutNd

from gradstudio.core.text import plural
from gradstudio.watching.births.loss_graph import in_words
from gradstudio.watching.script import source_lines


class ModeChecks:
    """Checks the modes of some models now and then. `tell` is called with the rule, the evidence, the first step and
    the names."""

    def __init__(self, tell: Callable[..., None]) -> None:
        self._tell = tell
        self._was_training: set[int] = set()  # modules
        self._in_evaluation: set[int] = set()  # those that were in training mode before, at the latest look
        self._modal: list[weakref.ref[nn.Module]] | None = None  # parts that compute something else in evaluation mode
        self._since = 0
        self._told = False
        self._source = ""  # the line that has called eval() on a whole model

    def before_eval(self, model: nn.Module) -> None:
        """`eval()` is called on a whole model during its training."""
        if model.training:
            self._was_training.update(map(id, model.modules()))
            frame = source_lines.calling_frame()
            self._source = source_lines.Place(frame.f_code.co_filename, frame.f_lineno).text if frame else ""

    def look(
        self, models: Sequence[nn.Module], named: Callable[[], Iterable[tuple[str, nn.Module]]], step: int
    ) -> None:
        """Find the parts that are in evaluation mode at two consecutive looks and were in training mode before. `named`
        yields all parts with their names."""
        if self._modal is None:
            parts = [part for model in models for part in model.modules()]
            self._modal = [weakref.ref(part) for part in parts if isinstance(part, (_NormBase, _DropoutNd))]
        parts = [part for each in self._modal if (part := each()) is not None and _differs_in_evaluation(part)]
        now = {id(part) for part in parts if not part.training} & self._was_training
        self._was_training.update(id(part) for part in parts if part.training)
        again = now & self._in_evaluation
        if not again:
            self._since = step
        elif not self._told or len(again) != len(self._in_evaluation):
            names = [name for name, part in named() if id(part) in again]
            told = (
                f"{len(again):,} of {plural(len(parts), 'dropout or batch norm', 'dropouts and batch norms')} "
                f"{'is' if len(again) == 1 else 'are'} in evaluation mode in the steps since "
                f"{self._since:,} or shortly before, after training mode: {in_words(names)}."
                + (f" `eval()` was called at {self._source}." if self._source else "")
            )
            self._told = True
            self._tell("evaluation_mode", told, self._since, known=root_of(names))
        self._in_evaluation = now


def _differs_in_evaluation(part: nn.Module) -> bool:
    """Return whether a module computes something else in evaluation mode, and is trained or drops trained values."""
    if isinstance(part, _DropoutNd):
        return part.p > 0
    return keeps_statistics(part) and any(weight.requires_grad for weight in part.parameters(recurse=False))


def keeps_statistics(part: nn.Module) -> bool:
    """Return whether a module keeps running statistics."""
    return isinstance(part, _NormBase) and part.track_running_stats


def root_of(names: Sequence[str]) -> str:
    """Return the part of the model that contains all of these: `model.image` for `model.image.net.1`."""
    parts = [name.split(".")[:-1] for name in names]
    shared: list[str] = []
    for level in zip(*parts, strict=False):
        if len(set(level)) > 1 or level[0].isdigit():
            break
        shared.append(level[0])
    return ".".join(shared) or "model"
