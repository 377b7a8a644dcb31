"""A loss scale that falls and falls: every update overflows, whatever the scale."""

from __future__ import annotations

from dataclasses import dataclass

from gradstudio.core.history import History
from gradstudio.core.rules.looking import Looking
from gradstudio.core.rules.progress import Progress
from gradstudio.core.text import number


@dataclass
class ScaleCollapse(Looking):
    """Fires at a dynamic loss scale below `floor`: torch's own GradScaler says that something is likely wrong there."""

    rule = "scale_collapse"
    floor: float = 1.0

    def look(self, history: History, state: Progress) -> None:
        step = len(history) - 1
        scale = history.value("scale", step)
        if not scale < self.floor or not (history.loops and history.loops[-1][1].scaling == "dynamic"):
            self.soften(not state.well)
            return
        if self._finding is not None and self._severity == "critical":
            self.soften(not state.well)
            return
        skipped = int(history.column("skipped").sum())
        if skipped < 2:  # it was begun there
            return
        self.tell(
            history, "critical", "The loss scale collapses", f"It fell to {number(scale)} after {skipped:,} skipped updates.",
            "An overflow that no scale avoids is not the scale's: the forward pass or the loss is beyond fp16's 65504, or NaN.",
            ("precision.dtype=bf16", "precision.dtype=fp32", "problem.scaling=standardized problem.input_scale=1"),
        )  # fmt: skip
