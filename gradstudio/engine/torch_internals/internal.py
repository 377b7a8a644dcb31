"""A part of torch that may vanish: looked up and tried once, with the loss if it is missing."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch

from gradstudio.engine import notices

_UNTRIED: Any = object()

_one_at_a_time = threading.RLock()  # runs train in one thread and fixes are tried in another; a probe may need another

SLOWER = "training is slower, with the same numbers"
SLOW_START = "a run starts a second later, with the same numbers"
SAME_FIGURES = "the figures are the same"


class Internal:
    """A part of torch that may vanish: its name, what is lost without it, and the function that looks it up."""

    def __init__(self, name: str, lost: str, price: str, find: Callable[[], Any]) -> None:
        """`find` returns the part for use, and raises if it is missing or does something unexpected."""
        self.name, self.lost, self.price = name, lost, price
        self._find, self._found, self._problem = find, _UNTRIED, ""

    def get(self) -> Any:
        """Return the part, or None if it is missing. The first call tries it."""
        if self._found is _UNTRIED:
            with _one_at_a_time:
                if self._found is _UNTRIED:
                    self._try()
        return self._found

    @property
    def costs_only_time(self) -> bool:
        """Whether nothing but time is lost without it."""
        return self.price in (SLOWER, SLOW_START, SAME_FIGURES)

    def problem(self) -> str:
        """Return what is lost, in one sentence; empty if nothing is."""
        self.get()
        return self._problem

    def forget(self) -> None:
        """Try it again on the next use."""
        self._found, self._problem = _UNTRIED, ""

    def _try(self) -> None:
        try:
            with _as_at_first():
                part, why = self._find(), ""
        except (AttributeError, ImportError):
            part, why = None, "is not there"
        except Exception:  # a private name may have any effect
            part, why = None, "does not do what it did"
        if part is None:
            self._problem = f"{self.lost}: {self.name} {why or 'does not do what it did'}; {self.price}."
            notices.tell(self._problem)
        self._found = part


def _as_at_first() -> ExitStack:
    """Return a context in which torch computes as if it had just been imported. A first use may be within the user's
    torch.no_grad, where a trial would fail for the whole process."""
    block = ExitStack()
    block.enter_context(torch.inference_mode(False))
    block.enter_context(torch.enable_grad())
    for device in ("cpu", "cuda"):
        if torch.is_autocast_enabled(device):
            block.enter_context(torch.autocast(device, enabled=False))
    return block


def check(holds: bool) -> None:
    """Raise RuntimeError if a trial of a part does not give the expected result."""
    if not holds:
        raise RuntimeError("not what it was")
