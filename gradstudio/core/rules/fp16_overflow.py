"""Values too large for fp16, which ends at 65504."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from gradstudio.core.history import History
from gradstudio.core.rules.looking import Looking
from gradstudio.core.rules.progress import Progress
from gradstudio.core.text import number, plural

_INPUTS = "problem.scaling=standardized problem.input_scale=1"


@dataclass
class Fp16Overflow(Looking):
    """Fires in fp16 where an Inf or NaN gradient under a loss scale reached the weights, where the loss of the first steps is one already, or
    where more than `skips` updates in a row were skipped. Some skips are how a scaler finds its scale: from 2^24 it takes 8, from 2^32 16."""

    rule = "fp16_overflow"
    skips: int = 25
    first_steps: int = 3
    usual: float = 100.0  # gradient norm up to which a NaN in fp16 is not the explosion's doing

    _skipped: int = 0  # in a row
    _seen: int = 0

    def look(self, history: History, state: Progress) -> None:
        if not history.settings or history.settings[-1][1].dtype != "fp16" or (self._finding is not None and self._finding.severity == "critical"):
            return
        for skipped in history.column("skipped", self._seen).tolist():
            self._skipped = self._skipped + 1 if skipped else 0
        self._seen = len(history)
        step = len(history) - 1
        row = history.row(step)
        text = ""
        if self._skipped >= self.skips:
            text = f"The scaler has skipped the last {plural(self._skipped, 'update', 'updates')}; its scale is {number(row['scale'])}."
        elif state.broken and not math.isfinite(row["loss"]) and step < self.first_steps:
            text = f"The loss is {number(row['loss'])} at step {step}: the forward pass itself overflows."
        elif state.broken and row["nonfinite"] and not row["skipped"] and math.isfinite(row["loss"]) and self._calm(history, step):
            entries = plural(int(row["nonfinite"]), "gradient entry", "gradient entries")
            text = f"At a loss scale of {number(row['scale'])} {entries} of step {step:,} left the range, while the loss is {number(row['loss'])}."
        if text:
            self.tell(
                history, "critical", "Too large for fp16", text + " fp16 ends at 65504.",
                "A value beyond that is Inf, and every update that it reaches is lost or ruins the weights.",
                (_INPUTS, "precision.dtype=bf16", "precision.dtype=fp32") if step < self.first_steps and not math.isfinite(row["loss"])
                else ("precision.scaling=dynamic", "precision.dtype=bf16", "precision.dtype=fp32", _INPUTS),
                first=step - self._skipped + 1 if self._skipped >= self.skips else step,
            )  # fmt: skip

    def _calm(self, history: History, step: int) -> bool:
        norms = history.column("grad_norm", step - 3, step)
        return not len(norms) or bool(np.nan_to_num(norms, nan=0.0, posinf=0.0).max() < self.usual)
