"""Batch norm over two examples, which preserves only the sign of their difference."""

from __future__ import annotations

from dataclasses import dataclass

from gradstudio.core.diagnosis.progress import WINDOW, Progress
from gradstudio.core.diagnosis.rule import PeriodicRule
from gradstudio.core.history import History
from gradstudio.core.text import number, percent


@dataclass
class BatchNormOfTwo(PeriodicRule):
    """Fires in a run that does badly, or not yet well, if a batch norm takes its mean and its deviation over `examples`
    examples or fewer. Over two it gives +1 to one and -1 to the other, whatever they are (Wu 2018)."""

    rule = "batch_norm_of_two"
    examples: int = 2

    def look(self, history: History, state: Progress) -> None:
        if not 0 < state.normed_over <= self.examples or not state.struggling:
            self.soften(not state.well)
            return
        step = len(history) - 1
        parts = history.loops[-1][1].micro_batches if history.loops else 1
        rest = f" A step has {parts} such micro-batches, each with its own." if parts > 1 else ""
        self.tell(
            history, "critical" if state.failing else "warning", "Batch norm over two examples",
            f"Batch norm takes its mean and deviation over {state.normed_over} examples.{rest} In the "
                f"{min(WINDOW, len(history))} training batches up to step {step:,}, {percent(state.accuracy)} of the "
                "examples were right. The gradient norm "
                f"was {number(history.value('grad_norm', step))} at that step.",
            "Of two examples (x - mean) / deviation makes +1 and -1: each unit keeps the sign of their difference and "
                "loses its size. The sign passes hardly any gradient, but where two examples are nearly alike the "
                "gradient is divided by a deviation of almost 0. Accumulation does not change that.",
            ("model.norm=layer", "model.norm=none"), first=0,
        )  # fmt: skip
