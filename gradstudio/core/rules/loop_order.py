"""The training loop makes its calls in a wrong order, leaves one out or makes one too often, whatever the loss looks like."""

from __future__ import annotations

from gradstudio.core.history import History
from gradstudio.core.loop_order import Fault, faults, in_words, right
from gradstudio.core.rules import Finding


class LoopOrder:
    """Looks at each stretch of steps with the same calls once. A loop that was put right is still told."""

    def __init__(self) -> None:
        self._seen = 0  # stretches
        self._first: int | None = None
        self._last = 0
        self._broken = False  # whether the latest stretch is
        self._faults: list[Fault] = []
        self._evidence = ""

    def update(self, history: History) -> Finding | None:
        for step, loop in history.loops[self._seen :]:
            found = faults(loop)
            if found:
                self._first = step if self._first is None else self._first
                self._faults = found
                self._evidence = f"Called: {in_words(loop.calls)}. Right: {in_words(right(loop))}."
            elif self._broken:
                self._last = step - 1
            self._broken = bool(found)
            self._seen += 1
        if self._first is None:
            return None
        last = len(history) - 1 if self._broken else self._last
        remedies = tuple(f"mistakes.{name}=false" for fault in self._faults for name in fault.mistakes)
        meaning = " ".join(fault.text for fault in self._faults)
        return Finding("loop_order", "warning", "The training loop is out of order", self._first, last, (), self._evidence, meaning, remedies)
