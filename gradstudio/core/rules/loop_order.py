"""A training loop that makes its calls in a wrong order, leaves one out or makes one too often, whatever the loss
does."""

from __future__ import annotations

from gradstudio.core.diagnosis.finding import Finding
from gradstudio.core.diagnosis.progress import Progress
from gradstudio.core.history import History
from gradstudio.core.loop_calls import Fault, Loop, faults, in_words, right


class LoopOrder:
    """Fires if the calls of a step are not in the order of core/loop_calls.py, or one is missing or made too often.
    Looks once at each stretch of steps with the same calls. The finding stays after the loop was corrected."""

    rule = "loop_order"
    every_row = True

    def __init__(self) -> None:
        self._seen = 0  # stretches
        self._broken = False  # whether the latest stretch is faulty
        self._finding: Finding | None = None

    def update(self, history: History, progress: Progress) -> Finding | None:
        if not self._broken and len(history.loops) == self._seen:
            return self._finding
        for step, loop in history.loops[self._seen :]:
            detected = faults(loop)
            if detected:
                self._finding = _describe(loop, detected, self._finding.first_step if self._finding else step)
            elif self._broken and self._finding:
                self._finding = self._finding.until(step - 1)
            self._broken = bool(detected)
            self._seen += 1
        if self._broken and self._finding:
            self._finding = self._finding.until(len(history) - 1)
        return self._finding


def _describe(loop: Loop, detected: list[Fault], first_step: int) -> Finding:
    evidence = f"Called: {in_words(loop.calls)}. Right: {in_words(right(loop))}."
    remedies = tuple(f"mistakes.{name}=false" for fault in detected for name in fault.mistakes)
    meaning = " ".join(fault.text for fault in detected)
    return Finding(
        "loop_order", "warning", "Calls in the wrong order", first_step, first_step, (), evidence, meaning, remedies
    )
