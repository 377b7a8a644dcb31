"""Non-finite batches that the script skipped: it checked the loss, made no update, and went on. The values of such a
batch, and the search for its loss before the script releases it."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from types import FrameType
from typing import Any, NamedTuple

from torch import Tensor

from gradstudio.core.provenance import Provenance
from gradstudio.core.text import brief, number
from gradstudio.core.unknown import UNKNOWN, is_known
from gradstudio.engine.operation_watcher import is_finite
from gradstudio.watching.births import loss_nodes
from gradstudio.watching.births.kept_pass import KeptPass
from gradstudio.watching.script.source_lines import is_own

LONGEST = 300  # characters of an event
# Searches through all Python objects, each as long as some steps, that found no loss; after that no more are made, as a
# script that calls its model several times for one loss has such a pass at every step.
MOST_FRUITLESS = 8
_NAMESPACES_ARE_VIEWS = sys.version_info >= (3, 13)  # earlier versions copied the variables of a function to read them


class SkippedBatch(NamedTuple):
    """A skipped batch. `loss` is UNKNOWN if the script had released it; `unknown` says in a sentence why the birth of
    the first value is unknown; `after_backward`: its gradients had been computed."""

    loss: float
    provenance: Provenance | None
    unknown: str
    after_backward: bool

    @property
    def what(self) -> str:
        """What was non-finite, in a few words."""
        if is_known(self.loss) and self.loss - self.loss != 0:
            return f"loss {number(self.loss)}"
        return "gradients of NaN or Inf" if self.after_backward else "the model gave NaN"

    def event(self, where: str) -> str:
        """Return the text of its event; `where` says where the value was born, "" if unknown."""
        undone = "threw its gradients away" if self.after_backward else "made no backward pass of it"
        born = where or f"where it was born is not known: {self.unknown}"
        return brief(
            f"a batch was skipped by the script: {self.what}; it {undone}, and no update was made; {born}", LONGEST
        )


class Losses:
    """Finds the loss of a pass without a gradient, while the script still refers to it."""

    def __init__(self) -> None:
        self._fruitless = 0

    @property
    def searching(self) -> bool:
        """Whether all Python objects are searched."""
        return self._fruitless < MOST_FRUITLESS

    def of(self, kept: KeptPass, mark: str) -> Tensor | None:
        """Return a non-finite number that was computed from a pass; None if none was found."""
        loss = next((each for each in _at_hand() if loss_nodes.comes_from(each, kept, mark)), None)
        if loss is None and self.searching:
            loss = next(iter(loss_nodes.broken_losses(kept, mark)), None)
            self._fruitless += loss is None
        return loss


def loss_of(losses: Sequence[Tensor], broken: Sequence[Tensor]) -> float:
    """Return the loss, or a non-finite output that is a single number, such as a model's own loss; UNKNOWN if there is
    none."""
    loss = next((each for each in (*losses, *broken) if each.numel() == 1), None)
    return UNKNOWN if loss is None else float(loss.detach())


def _at_hand() -> Iterable[Tensor]:
    """Return the non-finite numbers among the variables of the script that can be read without side effects."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if is_own(frame.f_code.co_filename):
            for value in _variables(frame):
                if type(value) is Tensor and value.grad_fn is not None and value.numel() == 1 and not is_finite(value):
                    yield value
        frame = frame.f_back


def _variables(frame: FrameType) -> list[Any]:
    if frame.f_code.co_name == "<module>":
        return list(frame.f_globals.values())
    return list(frame.f_locals.values()) if _NAMESPACES_ARE_VIEWS else []
