"""Gradients that die out on their way to the first layers while the loss stands still."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gradstudio.core.history import History
from gradstudio.core.rules.looking import Looking
from gradstudio.core.rules.median import median
from gradstudio.core.rules.progress import Progress
from gradstudio.core.text import number


@dataclass
class VanishingGradient(Looking):
    """Fires when the last weight's gradient norm is over `ratio` times the first's while the loss is stuck. 1000 is AutoTrainer's
    (ICSE 2021). Even then the last layer's bias learns, and takes a little off the loss at the start."""

    rule = "vanishing_gradient"
    ratio: float = 1000.0
    rows: int = 10  # whose median norms are compared

    _weights: tuple[int, ...] = ()

    def look(self, history: History, state: Progress) -> None:
        if not (state.stuck or state.lost):
            self.soften(not state.well)
            return
        weights = self._weights = self._weights or tuple(index for index, layer in enumerate(history.layers) if layer.role == "weight")
        if len(weights) < 3:
            return
        latest = history.layer_metric("grad_norm", len(history) - self.rows)
        first, last = _median(latest, weights[0]), _median(latest, weights[-1])
        if not last > self.ratio * first:
            return
        dark = tuple(history.layers[index].name for index in weights if _median(latest, index) * self.ratio < last)
        times = f"{number(last / first)} times" if first > 0 else "infinitely many times"
        self.tell(
            history, "critical", "Vanishing gradient", f"The last layer's gradient norm is {number(last)}, the first's {number(first)}: {times} less. "
            f"The loss went from {number(state.start)} to {number(state.recent)} in {len(history):,} steps.",
            "Each layer passes back only a part of the gradient. The first layers stay as they were drawn, and the rest learns from noise.",
            ("model.norm=batch model.residual=true", "model.activation=relu model.init=he", "model.norm=batch", "model.residual=true"), dark,
        )  # fmt: skip


def _median(norms: np.ndarray, layer: int) -> float:
    return median(norms[:, layer].astype(float))
