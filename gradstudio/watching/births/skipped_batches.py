"""Batches that were not finite and that the script passed over: it looked at the loss, made no update, and went on.
What such a batch gave, and the search for its loss before the script lets go of it."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from types import FrameType
from typing import Any, NamedTuple

from torch import Tensor

from gradstudio.core.provenance import Provenance
from gradstudio.core.text import brief, number
from gradstudio.core.unknown import is_known
from gradstudio.engine.operation_watcher import is_finite
from gradstudio.watching.births import loss_nodes
from gradstudio.watching.births.kept_pass import KeptPass
from gradstudio.watching.script.source_lines import is_own

LONGEST = 300  # letters of an event
# Searches through all that Python holds, each the time of some steps, that found no loss; then no more are made, as a
# script that calls its model several times for one loss has such a pass at every step.
MOST_FRUITLESS = 8
_NAMESPACES_ARE_VIEWS = sys.version_info >= (3, 13)  # before, to read the variables of a function copied them


class SkippedBatch(NamedTuple):
    """A batch that was passed over. `loss` is UNKNOWN if the script had let go of it; `unknown` says in a sentence
    why it is not known where the first value was born; `after_backward`: its gradients had been computed."""

    loss: float
    provenance: Provenance | None
    unknown: str
    after_backward: bool

    @property
    def what(self) -> str:
        """What was not finite, in a few words."""
        if is_known(self.loss) and self.loss - self.loss != 0:
            return f"loss {number(self.loss)}"
        return "gradients of NaN or Inf" if self.after_backward else "the model gave NaN"

    def event(self, where: str) -> str:
        """Return the text of its event; `where` says where it was born, "" if that is unknown."""
        undone = "threw its gradients away" if self.after_backward else "made no backward pass of it"
        born = where or f"where it was born is not known: {self.unknown}"
        return brief(
            f"a batch was skipped by the script: {self.what}; it {undone}, and no update was made; {born}", LONGEST
        )


class Losses:
    """Finds the loss of a pass that no gradient came back to, while the script still holds it."""

    def __init__(self) -> None:
        self._fruitless = 0

    @property
    def searching(self) -> bool:
        """Whether everything that Python holds is searched through."""
        return self._fruitless < MOST_FRUITLESS

    def of(self, kept: KeptPass, mark: str) -> Tensor | None:
        """Return a number that is not finite and was computed from a pass; None if none was found."""
        loss = next((each for each in _at_hand() if loss_nodes.comes_from(each, kept, mark)), None)
        if loss is None and self.searching:
            loss = next(iter(loss_nodes.broken_losses(kept, mark)), None)
            self._fruitless += loss is None
        return loss


def _at_hand() -> Iterable[Tensor]:
    """Give the numbers that are not finite among the variables of the script that can be read without a trace."""
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
