"""Noise added to the gradient that is far larger than it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gradstudio.core.diagnosis.progress import Progress
from gradstudio.core.diagnosis.rule import PeriodicRule
from gradstudio.core.history import LOOK_EVERY, History
from gradstudio.core.text import number


@dataclass
class GradientNoise(PeriodicRule):
    """Fires if for LOOK_EVERY steps something more than `times` as long as the gradient was added to it before
    clipping (after it, where single examples are clipped), in a run that does badly or not yet well. The size of the
    addition follows from three measured numbers: the norm of the true gradient, the norm that reached the optimizer,
    and the share of the norm left by clipping."""

    rule = "gradient_noise"
    times: float = 10.0

    def look(self, history: History, state: Progress) -> None:
        start, stop = len(history) - LOOK_EVERY, len(history)
        if start < 0 or not self._is_noise(history, start, stop, self.times).all():
            self.soften(not state.well)
            return
        # right more often, but at a loss above that of the start: the weights have grown with the noise
        failing = state.failing or (not state.by_accuracy and state.recent > state.start)
        if not failing and not state.struggling:
            self.soften(not state.well)
            return
        step = len(history) - 1
        norm, passed = history.value("grad_norm", step), float(self._passed_on(history, step, step + 1)[0])
        after = private = ""
        if self._clips_examples(history):  # before something is added
            left, after = history.value("clip_coef", step), " after its examples were clipped"
            norm, passed = norm * left, passed * left
            private = " Less of it is less private; with a max_norm lower in the same proportion it is as private."
        added = math.sqrt(passed**2 - norm**2)
        entries = sum(layer.size for layer in history.layers)
        as_long = float(f"{norm / math.sqrt(entries):.1g}")
        self.tell(
            history, "critical" if failing else "warning", "Noise covers the gradient",
            f"At step {step:,} the gradient norm was {number(norm)}{after}, and what was clipped or went to the "
                f"optimizer had a norm of {number(passed)}: about {number(added)} was added in between.",
            f"What was added is about {number(added / norm)} times as long as the gradient, so the update follows it "
                f"and not the gradient.{private}",
            tuple(f"gradients.noise_std={value:g}" for value in (as_long, 0.0)),
            first=None if self._finding else self._since(history),
        )  # fmt: skip

    def _since(self, history: History) -> int:
        """Return the first of the latest consecutive steps in which more was added than the gradient itself."""
        clear = np.flatnonzero(~self._is_noise(history, 0, len(history), math.sqrt(2)))
        return int(clear[-1]) + 1 if len(clear) else 0

    def _is_noise(self, history: History, start: int, stop: int, times: float) -> NDArray[np.bool_]:
        """Return the rows in which the gradient before clipping was `times` as long as the true one, (rows,). A true
        gradient that reached the optimizer unchanged had nothing added, unless its examples were clipped before."""
        norm, reached = (history.column(name, start, stop) for name in ("grad_norm", "clipped_norm"))
        with np.errstate(invalid="ignore"):
            other = (np.abs(reached - norm) > 0.01 * norm) | self._clips_examples(history)
            if not other.any():
                return other
            return other & (norm > 0) & (self._passed_on(history, start, stop) > times * norm)

    @staticmethod
    def _clips_examples(history: History) -> bool:
        return bool(history.settings) and history.settings[-1][1].clipping == "per_example"

    @staticmethod
    def _passed_on(history: History, start: int, stop: int) -> NDArray[np.float64]:
        """Return the norm before clipping of the gradient that reached the optimizer, (rows,); 0 if unknown."""
        reached, mask = (history.column(name, start, stop) for name in ("clipped_norm", "clip_coef"))
        sound = np.isfinite(reached) & np.isfinite(mask) & (mask > 0)
        return np.where(sound, reached / np.where(sound, mask, 1.0), 0.0)
