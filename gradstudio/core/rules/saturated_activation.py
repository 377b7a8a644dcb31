"""Activations in their flat range, where almost no gradient passes."""

from __future__ import annotations

from dataclasses import dataclass

from gradstudio.core.diagnosis.progress import Progress
from gradstudio.core.diagnosis.rule import PeriodicRule
from gradstudio.core.history import History
from gradstudio.core.text import number


@dataclass
class SaturatedActivation(PeriodicRule):
    """Fires in a run that does badly if more than `share` of the outputs of a tanh or sigmoid are in its flat range.
    SageMaker Debugger and DeepDiagnosis use half of them, for inputs beyond +-5 (engine/gauges/activations.py)."""

    rule = "saturated_activation"
    share: float = 0.5
    # share in every sample at which it is reported even in a run that learns: it would learn faster
    always: float = 0.75

    _seen: int = 0  # number of samples read
    _always: bool = True
    _first: int = -1

    def look(self, history: History, state: Progress) -> None:
        for sample in history.activations[self._seen :] if len(history.activations) > self._seen else ():
            largest = max((layer.saturated for layer in sample.layers), default=0.0)
            self._always &= largest > self.always
            self._first = sample.step if self._first < 0 and largest > self.share else self._first
            self._seen += 1
        if self._first < 0:
            return
        if not state.struggling and not (self._always and state.is_known):
            self.soften(not state.well)
            return
        sample = history.activations[-1]
        saturated = [layer for layer in sample.layers if layer.saturated > self.share]
        if not saturated:
            return
        worst = max(saturated, key=lambda layer: layer.saturated)
        known = {layer.name for layer in history.layers}
        self.tell(
            history,
            "critical" if state.failing else "warning",
            "Saturated activations",
            f"{number(100 * worst.saturated)} % of the outputs of {worst.layer} at step {sample.step:,} are in the "
            f"flat "
            "range of its activation.",
            "There the slope is almost 0, so such an output passes hardly any gradient on. The inputs of the "
            "activation are too large: lower the inputs, the weights or the learning rate.",
            (
                "problem.input_scale=1 problem.scaling=standardized model.init=xavier model.init_gain=1",
                "model.norm=batch",
            ),
            tuple(layer.layer for layer in saturated if layer.layer in known),
            first=self._first,
        )
