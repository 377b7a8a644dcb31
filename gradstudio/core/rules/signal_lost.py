"""A signal that no longer depends on its input: the output layer sees nearly the same for every example, although there
is a gradient."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from gradstudio.core.diagnosis.progress import Progress
from gradstudio.core.diagnosis.rule import PeriodicRule
from gradstudio.core.history import History
from gradstudio.core.text import number

_LEAST = 1e-6  # share below which rounding is as large


@dataclass
class SignalLost(PeriodicRule):
    """Fires in a run that is stuck if the latest mean cosine between the test examples, as the output layer sees them,
    was above `cosine`.

    If every input of the output layer is the sum of a common part and an individual one, the mean cosine c is the share
    of the common part in the squared length. A step of gradient descent then moves the answer to all examples c / (1 -
    c) times as far as the difference between two of them: 100 times at 0.99."""

    rule = "signal_lost"
    cosine: float = 0.99
    # share of their norm: until all updates together could have moved the weights so far, nothing was tried
    moved: float = 0.01

    _seen: int = 0  # rows whose cosine was looked at
    _latest: tuple[int, float] = (-1, 0.0)  # step and cosine of the latest sample
    _above: int = -1  # step of the first of the latest samples in a row above `cosine`
    _added: int = 0  # number of rows whose updates are in the sum
    _sum: float = math.nan  # of all updates, in norms of the weights; NaN if none is known

    def look(self, history: History, state: Progress) -> None:
        if state.all_zero or not state.stuck or self._updates_too_small(history):
            self.soften(not state.well)
            return
        self._take(history)
        step, cosine = self._latest
        normed = any(layer.role == "norm" for layer in history.layers)
        if self._above < 0 or (normed and not step):
            return  # before its first step, a batch norm in evaluation does not normalize
        apart = (1 - cosine) / cosine
        share = f"about {number(apart, 2)}" if apart > _LEAST else f"less than {number(_LEAST)}"
        norm = history.value("grad_norm", len(history) - 1)
        self.tell(
            history, "critical", "The signal forgets its input",
            f"At step {step:,} the output layer saw nearly the same for every test example: the mean cosine between "
            f"two of them was {number(cosine, 4)}. The gradient norm is {number(norm)} at step "
            f"{len(history) - 1:,}.",
            "The common part of the signal gets nearly all of each update; the differences between the examples get "
            f"{share} of that. What reaches the output layer hardly depends on the example.",
            (
                "model.norm=batch model.residual=true model.norm_position=post",
                "model.residual=true model.norm=layer",
                "model.init=orthogonal model.init_gain=1",
            ),
            first=self._above,
        )  # fmt: skip

    def _updates_too_small(self, history: History) -> bool:
        """Return whether all updates together were too small to show what the weights could learn."""
        if not self._sum >= self.moved:
            ratios = history.column("update_ratio", self._added)
            ratios = ratios[np.isfinite(ratios)]
            if len(ratios):
                self._sum = float(np.nansum([self._sum, ratios.sum()]))
            self._added = len(history)
        return self._sum < self.moved

    def _take(self, history: History) -> None:
        """Read the new samples."""
        steps, cosines = history.measurements("head_cosine", self._seen)
        for step, cosine in zip(steps.tolist(), cosines.tolist(), strict=True):
            self._latest = step, cosine
            self._above = -1 if not cosine > self.cosine else step if self._above < 0 else self._above
        self._seen = len(history)
