"""A loss scale that keeps falling: every update overflows, whatever the scale."""

from __future__ import annotations

from dataclasses import dataclass

from gradstudio.core.diagnosis.progress import Progress
from gradstudio.core.diagnosis.rule import PeriodicRule
from gradstudio.core.history import History, up_to
from gradstudio.core.text import number


@dataclass
class ScaleCollapse(PeriodicRule):
    """Fires at a dynamic loss scale below `floor`, which the source of torch's GradScaler also treats as a sign of a
    fault."""

    rule = "scale_collapse"
    floor: float = 1.0

    _seen: int = 0  # rows
    _skipped: float = 0.0  # updates
    _highest: float = 0.0  # scale

    def look(self, history: History, state: Progress) -> None:
        step = len(history) - 1
        self._skipped += float(history.scaler_skips(self._seen).sum())
        self._highest, self._seen = max(self._highest, float(history.column("scale", self._seen).max())), len(history)
        scale = history.value("scale", step)
        is_dynamic = not history.loops or history.loops[-1][1].scaling == "dynamic"  # the calls in a log are unknown
        if not scale < self.floor or not is_dynamic:
            self.soften(not state.well)
            return
        if self._finding is not None and state.well:
            self.soften(False)
            return
        skipped, highest = self._skipped, self._highest
        if (not history.loops and not highest >= 4 * scale) or skipped < 2:  # the run began with such a scale
            return
        after = f"after {int(skipped):,} skipped updates" if skipped == skipped else f"from {number(float(highest))}"
        self.tell(
            history, "critical", "The loss scale collapses",
            f"The loss scale fell to {number(scale)} {after}, {up_to(history)}.",
            "If no scale avoids the overflow, the scale is not the cause: the forward pass, the loss or the gradient "
                "itself exceeds 65504, the largest number of fp16, or is NaN.",
            ("precision.dtype=bf16", "precision.dtype=fp32", "problem.scaling=standardized problem.input_scale=1"),
        )  # fmt: skip
