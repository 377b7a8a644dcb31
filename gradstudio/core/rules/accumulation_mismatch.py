"""Micro-batches whose gradients do not add up to their mean, by measurement rather than by reading a switch."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gradstudio.core.diagnosis.progress import Progress
from gradstudio.core.diagnosis.rule import PeriodicRule
from gradstudio.core.history import History
from gradstudio.core.loop_calls import right
from gradstudio.core.text import number


@dataclass
class AccumulationMismatch(PeriodicRule):
    """Fires if the latest comparison differed by more than `tolerances` times what rounding can cause
    (history.ALIKE)."""

    rule = "accumulation_mismatch"
    tolerances: float = 1.0

    _seen: int = 0
    _wrong: bool = False

    def look(self, history: History, state: Progress) -> None:
        for step, difference, tolerance in history.accumulated[self._seen :]:
            self._seen += 1
            self._wrong = math.isfinite(difference) and difference > self.tolerances * tolerance
            if self._wrong:
                self._say(history, step, difference)
        if self._wrong and self._finding is not None:
            self._finding = self._finding.until(len(history) - 1)

    def _say(self, history: History, step: int, difference: float) -> None:
        loop = next((loop for since, loop in reversed(history.loops) if since <= step), None)
        parts = loop.micro_batches if loop else 0
        undivided = parts > 1 and abs(difference - (parts - 1)) < 0.01 * parts
        size = (
            f": the accumulated gradient is {parts} times too long, because it was not divided by {parts}"
            if undivided
            else ""
        )
        known = ("unscaled_accumulation",) if undivided else self._mistakes_behind(loop.calls, parts) if loop else ()
        if loop and not known and loop.calls == right(loop):  # then the gradients have wrong factors
            known = ("normalize_each_micro_batch",)
        self.tell(
            history, "warning", "Micro-batches do not add up",
            f"At step {step:,} the accumulated gradient differs from what the micro-batches ought to add up to by "
                f"{number(difference)} times the norm of that{size}.",
            "The gradient differs from that of the equivalent large batch: it is longer or shorter, misses examples, "
                "or weighs them otherwise.",
            tuple(f"mistakes.{name}=false" for name in known), first=step,
        )  # fmt: skip

    def _mistakes_behind(self, calls: tuple[str, ...], parts: int) -> tuple[str, ...]:
        """Return the mistakes that lead to the calls of that step."""
        inside = calls[
            calls.index("forward") if "forward" in calls else 0 : max(
                (index for index, call in enumerate(calls) if call == "backward"), default=0
            )
        ]
        mistakes = []
        if calls.count("forward") < parts:
            mistakes.append("drop_last_micro_batches")
        if calls.count("zero_grad") > 1:
            mistakes.append("zero_grad_each_micro_batch")
        if "divide" in calls:
            mistakes.append("divide_each_micro_batch")
        if "clip" in inside:
            mistakes.append("clip_each_micro_batch")
        return tuple(mistakes)
