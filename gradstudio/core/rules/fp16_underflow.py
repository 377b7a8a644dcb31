"""Gradients that are too small for fp16 and are rounded to 0."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gradstudio.core.diagnosis.progress import Progress
from gradstudio.core.diagnosis.rule import PeriodicRule
from gradstudio.core.diagnosis.unreached_layers import unused_layers
from gradstudio.core.history import LOOK_EVERY, History
from gradstudio.core.text import number, percent

NORMAL = 2.0**-14  # the smallest number of fp16 with full precision
_LARGE = 1e-2  # with it only a factor below 6e-6 makes a gradient that is rounded to 0
SMALLEST = 2.0**-24  # the smallest positive number of fp16


def is_another_factor(history: History) -> bool:
    """Return whether some tensors have had gradients far above the range of fp16, so that those that are exactly 0
    beside them were not rounded to it."""
    start = max(len(history) - LOOK_EVERY, 0)
    largest = history.layer_metric("largest_grad", start).max(1) * history.column("scale", start)
    return len(largest) > 0 and bool((largest > _LARGE).all())


@dataclass
class Fp16Underflow(PeriodicRule):
    """Fires in fp16, in a run that does badly, if for LOOK_EVERY steps the largest gradient entry of every weight,
    times the loss scale, has stayed below `quanta` times the smallest positive number of fp16: smaller entries are then
    lost. It is a warning if the run has learned something and has kept it, but its loss stagnates or it does not do
    well yet; and a note once it does."""

    rule = "fp16_underflow"
    quanta: float = 64.0

    _weights: tuple[int, ...] = ()

    def look(self, history: History, state: Progress) -> None:
        if not history.settings or history.settings[-1][1].dtype != "fp16" or len(history) < LOOK_EVERY:
            return
        learned = state.has_learned and not state.has_lost
        fine = learned and not (state.is_unfinished or state.struggling)
        start = max(len(history) - LOOK_EVERY, history.settings[-1][0])
        without = unused_layers(history)  # there is no gradient that could be rounded to 0
        weights = self._weights = tuple(
            index for index, layer in enumerate(history.layers) if layer.is_weight and index not in without
        )
        scaled = self._scaled_gradients(history, start, len(history))
        zeros = history.layer_metric("zero_share", start)[:, weights]
        if (
            not scaled.size
            or not bool((scaled < self.quanta * SMALLEST).all())
            or (not scaled.any() and is_another_factor(history))
        ):
            self._tell_of_some(history, scaled, zeros)
            self.soften(not fine)
            return
        if fine and self._finding is None:
            return
        sizes = [history.layers[index].size for index in weights]
        lost = [history.layers[index].name for index, share in zip(weights, zeros.mean(0), strict=True) if share > 0.5]
        scale = history.value("scale", len(history) - 1)
        zero = float(np.average(zeros.mean(0), weights=sizes))
        largest = (scaled / history.column("scale", start)[:, None]).max()
        self.tell(
            history, "info" if fine else "warning" if learned else "critical",
            "Small gradients in fp16" if fine else "Gradients too small for fp16",
            f"The largest entry of any weight's gradient in the {len(scaled)} steps up to step "
                f"{len(history) - 1:,} is {number(float(largest))} at a loss scale of {number(scale)}, and "
                f"{percent(zero)} of these "
                "entries are exactly 0. fp16 has nothing between 0 and 6e-8.",
            "The run learns with the entries that are left."
            if fine
            else "An entry that is rounded to 0 moves no weight. A loss scale multiplies the loss, and so every "
            "gradient, before the backward pass.",
            () if fine else ("precision.scaling=dynamic", "precision.dtype=bf16", "precision.dtype=fp32"), tuple(lost),
            first=None if self._finding else self._since(history),
        )  # fmt: skip

    def _tell_of_some(self, history: History, scaled: np.ndarray, zeros: np.ndarray) -> None:
        """Note weights whose gradient is more than half zeros without a loss scale, while the rest has lost digits."""
        if self._finding is not None or history.value("scale", len(history) - 1) != 1:
            return
        lost = (scaled < NORMAL).all(0) & (zeros > 0.5).all(0) & (scaled > 0).all(0)
        names = [history.layers[self._weights[place]].name for place in np.flatnonzero(lost)]
        if names:
            self.tell(
                history, "info", "Small gradients in fp16",
                f"At each of the {len(scaled)} steps up to step {len(history) - 1:,} more than half of the gradient of "
                f"{' and '.join(names)} was exactly 0, and the rest below 6.1e-5, where fp16 has fewer digits.",
                "An entry that is rounded to 0 moves no weight. A loss scale multiplies the loss, and so every "
                "gradient, before the backward pass.",
                ("precision.scaling=dynamic", "precision.dtype=bf16"), tuple(names),
            )  # fmt: skip

    def _since(self, history: History) -> int:
        """Return the first of the latest consecutive steps at which all of them were so small."""
        stop, least = len(history), history.settings[-1][0]
        while stop > least:
            start = max(stop - LOOK_EVERY, least)
            large = np.flatnonzero(~(self._scaled_gradients(history, start, stop) < self.quanta * SMALLEST).all(1))
            if len(large):
                return start + int(large[-1]) + 1
            stop = start
        return least

    def _scaled_gradients(self, history: History, start: int, stop: int) -> np.ndarray:
        """Return the largest gradient entry of each weight, times the loss scale, (rows, weights)."""
        entries = history.layer_metric("largest_grad", start, stop)[:, self._weights].astype(float)
        return entries * history.column("scale", start, stop)[:, None]
