"""Gradients that die out on their way to the first layers while the loss stands still."""

from __future__ import annotations

from dataclasses import dataclass

from gradstudio.core.history import History
from gradstudio.core.rules import Finding
from gradstudio.core.rules.median import median
from gradstudio.core.text import number


@dataclass
class VanishingGradient:
    """Fires when the last weight's gradient norm is over `ratio` times the first's while the loss is stuck: its mean over
    the last `window` steps is above `fallen` times that of the first steps; or it rests, `resting` times the window before
    or more, and has kept most of its height. (Even then the last layer's bias learns, and takes a little off at the start.)
    """

    ratio: float = 1000.0
    window: int = 50
    fallen: float = 0.95
    resting: float = 0.99
    height: float = 0.7
    every: int = 10  # steps between two looks

    _finding: Finding | None = None
    _start: float | None = None  # mean loss of the first steps

    def update(self, history: History) -> Finding | None:
        count = len(history)
        if count % self.every or count < self.window:
            return self._finding
        if self._start is None:
            self._start = float(history.column("loss", 0, self.every).mean())
        loss, start = float(history.column("loss", count - self.window).mean()), self._start
        if not self._stuck(history, loss, start):
            return self._finding
        weights = [index for index, layer in enumerate(history.layers) if layer.role == "weight"]
        if len(weights) < 3:
            return self._finding
        norms = median(history.layer_metric("grad_norm", count - self.every)[:, weights].astype(float)).tolist()
        first, last = norms[0], norms[-1]
        if not last > self.ratio * first:
            return self._finding
        dark = tuple(history.layers[index].name for index, norm in zip(weights, norms, strict=True) if norm * self.ratio < last)
        times = f"{number(last / first)} times" if first > 0 else "infinitely many times"
        first_step = self._finding.first_step if self._finding else count - 1
        self._finding = Finding(
            "vanishing_gradient", "critical", "Vanishing gradient", first_step, count - 1, dark,
            f"The last layer's gradient norm is {number(last)}, the first's {number(first)}: {times} less. "
            f"The loss went from {number(start)} to {number(loss)} in {count} steps.",
            "Each layer passes back only a part of the gradient. The first layers stay as they were drawn, and the rest learns from noise.",
            ("model.activation=relu model.init=he", "model.norm=batch", "model.residual=true"),
        )  # fmt: skip
        return self._finding

    def _stuck(self, history: History, loss: float, start: float) -> bool:
        """False where a mean is NaN: that is another rule's matter."""
        if loss > self.fallen * start:
            return True
        before = history.column("loss", len(history) - 2 * self.window, len(history) - self.window)
        return len(before) == self.window and bool(loss >= self.resting * before.mean() and loss > self.height * start)
