"""Values above 65504, the largest number of fp16."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gradstudio.core.diagnosis.progress import Progress
from gradstudio.core.diagnosis.rule import PeriodicRule
from gradstudio.core.history import History, up_to
from gradstudio.core.row import loss_broke
from gradstudio.core.text import number, plural
from gradstudio.core.unknown import is_known

_INPUTS = "problem.scaling=standardized problem.input_scale=1"
_WIDER = ("precision.dtype=bf16", "precision.dtype=fp32")


@dataclass
class Fp16Overflow(PeriodicRule):
    """Fires in fp16 if a gradient with Inf or NaN reached the weights under a loss scale, if the loss is Inf or NaN
    within the first steps in fp16, or if `skips` updates in a row were skipped. A scaler needs some skips to find its
    scale: 8 from 2^24, 16 from 2^32."""

    rule = "fp16_overflow"
    skips: int = 25
    first_steps: int = 3
    usual: float = 100.0  # up to this gradient norm, a NaN in fp16 is not due to an explosion

    _skipped: int = 0  # in a row
    _seen: int = 0

    def look(self, history: History, state: Progress) -> None:
        if (
            not history.settings
            or history.settings[-1][1].dtype != "fp16"
            or (self._finding is not None and self._skipped < self.skips)  # it is reported, and no streak continues
        ):
            return
        for skipped in history.scaler_skips(self._seen).tolist():
            if not skipped and self._finding is not None:
                self._skipped = 0
                return
            self._skipped = self._skipped + 1 if skipped else 0
        self._seen = len(history)
        step = len(history) - 1
        row = history.row(step)
        since = _in_fp16_since(history)
        at_once = step < since + self.first_steps and loss_broke(row["loss"])
        if text := self._text(history, state, since, at_once=at_once):
            self.tell(
                history,
                "critical",
                "Too large for fp16",
                text + " The largest number of fp16 is 65504.",
                "A larger value becomes Inf. GradScaler skips such an update; without it, Inf reaches the weights.",
                (_INPUTS, *_WIDER) if at_once and not since
                else (*_WIDER, _INPUTS) if at_once
                else ("precision.scaling=dynamic", *_WIDER, _INPUTS),
                first=step - self._skipped + 1 if self._skipped >= self.skips else step,
            )  # fmt: skip

    def _text(self, history: History, state: Progress, since: int, *, at_once: bool) -> str:
        """Return what was measured, "" if nothing was too large. `since` is the first step in fp16, and `at_once` says
        that the loss is non-finite within the first steps there."""
        step, row = len(history) - 1, history.row(len(history) - 1)
        if self._skipped >= self.skips:
            return (
                f"The scaler skipped {self._skipped:,} updates in a row {up_to(history)}; its scale was "
                f"{number(row['scale'])} there."
            )
        if state.broken and at_once:
            when = f", and precision.dtype has been fp16 since step {since:,}" if since else ""
            return (
                f"The loss is {number(row['loss'])} at step {step:,}{when}: a value in the forward pass or in the loss "
                "is too large."
            )
        if (
            state.broken
            and row["nonfinite"]
            and not row["skipped"]
            and not loss_broke(row["loss"])
            and self._calm(history, step)
        ):
            entries = plural(int(row["nonfinite"]), "gradient entry", "gradient entries")
            loss = f", while the loss is {number(row['loss'])}" if is_known(row["loss"]) else ""
            return (
                f"At a loss scale of {number(row['scale'])}, {entries} of step {step:,} left the range of fp16{loss}."
            )
        return ""

    def _calm(self, history: History, step: int) -> bool:
        norms = history.column("grad_norm", step - 3, step)
        return not len(norms) or bool(np.nan_to_num(norms, nan=0.0, posinf=0.0).max() < self.usual)


def _in_fp16_since(history: History) -> int:
    """Return the first step from which on the run has been in fp16."""
    others = [index for index, (_, settings) in enumerate(history.settings) if settings.dtype != "fp16"]
    return history.settings[others[-1] + 1][0] if others else 0
