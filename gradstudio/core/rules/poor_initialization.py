"""Weights initialized so that the signal dies out or grows from layer to layer, before the first step."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gradstudio.core.diagnosis import initial_weights
from gradstudio.core.diagnosis.progress import Progress
from gradstudio.core.diagnosis.rule import PeriodicRule
from gradstudio.core.history import History
from gradstudio.core.text import number


@dataclass
class PoorInitialization(PeriodicRule):
    """Fires in a run that does badly if, at the first step, the standard deviations of the layers' outputs differ by
    more than a factor of `spread`, or all weights are 0. SageMaker Debugger uses a ratio of 10 of the variances of
    weights, which deep networks that learn also reach."""

    rule = "poor_initialization"
    spread: float = 30.0
    dead: float = 0.7

    _why: str | None = None  # what is wrong, "" for nothing; None before the first look
    _meaning: str = ""
    _layers: tuple[str, ...] = ()
    _equal: bool = False  # whether all weights are 0, which no norm fixes

    def look(self, history: History, state: Progress) -> None:
        if self._why is None:
            self._why = ""
            self._judge(history, state)
        if not self._why or not state.failing:
            self.soften(not state.well)
            return
        if self._finding is None:
            self.tell(
                history, "critical", "Poor initialization", self._why, self._meaning,
                ("model.init=he model.init_gain=1", "model.init=orthogonal model.init_gain=1",
                    "model.init=lsuv model.init_gain=1", *(() if self._equal else ("model.norm=batch",))),
                self._layers, first=0,
            )  # fmt: skip
        self.soften(not state.well)

    def _judge(self, history: History, state: Progress) -> None:
        if state.all_zero:
            if len(initial_weights.weights(history)) < 2:
                return  # a single layer learns from there
            self._equal = True
            self._why, self._meaning = (
                "All weights are 0 at the first step.",
                "All units of a layer are equal and get the same gradient, so they stay equal.",
            )
            self._layers = tuple(history.layers[index].name for index in initial_weights.weights(history))
            return
        if not history.activations or history.activations[0].step:
            return
        sample = history.activations[0].layers
        known = {layer.name for layer in history.layers}
        sample = [layer for layer in sample if not layer.dead > self.dead]  # dead_units reports those
        stds = [layer.std for layer in sample]
        finite = [std for std in stds if math.isfinite(std)]
        overflows = finite == stds[: len(finite)] and len(finite) < len(stds)  # the signal grew beyond any number
        if len(finite) < 2 or not (overflows or len(finite) == len(stds)):
            return
        stds = finite
        low, high = min(stds), max(stds)
        if not high > self.spread * low:
            return
        grows = stds.index(high) > stds.index(low)
        worst = sample[stds.index(high if grows else low)]
        self._why = (
            f"At the first step the output {'grows' if grows else 'shrinks'} from layer to layer, "
            f"from a standard deviation of {number(low if grows else high)} to {number(high if grows else low)} in "
            f"{worst.layer}." + (" In the next layer it is NaN or Inf." if overflows else "")
        )
        self._meaning = (
            "Each layer multiplies the signal, so the outputs and the gradient become very large." if grows
            else ("Each layer takes away a part of the signal. The outputs hardly depend on the input, and the "
                "gradient vanishes too.")
        )  # fmt: skip
        self._layers = (worst.layer,) if worst.layer in known else ()
