"""Activations driven to where they are flat, so that next to no gradient passes."""

from __future__ import annotations

from dataclasses import dataclass

from gradstudio.core.history import History
from gradstudio.core.rules.looking import Looking
from gradstudio.core.rules.progress import Progress
from gradstudio.core.text import number


@dataclass
class SaturatedActivation(Looking):
    """Fires where more than `share` of a tanh's or sigmoid's outputs are where it is flat, in a run that does badly. Half of them is the
    share of SageMaker Debugger and of DeepDiagnosis, whose bounds of the sums are +-5 (engine/activations.py)."""

    rule = "saturated_activation"
    share: float = 0.5
    always: float = 0.75  # in every sample from the first on: of a run that learns too, for it would learn faster

    _seen: int = 0  # samples
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
        if not state.struggling and not (self._always and state.known):
            self.soften(not state.well)
            return
        sample = history.activations[-1]
        found = [layer for layer in sample.layers if layer.saturated > self.share]
        if not found:
            return
        worst = max(found, key=lambda layer: layer.saturated)
        known = {layer.name for layer in history.layers}
        self.tell(
            history, "critical" if state.failing else "warning", "Saturated activations",
            f"{number(100 * worst.saturated)} % of what comes out of {worst.layer} at step {sample.step:,} is at the flat ends of its activation.",
            "There the slope is next to 0: the layers below hardly get a gradient. The sums are too large, from the inputs, the weights or the rate.",
            ("problem.input_scale=1 problem.scaling=standardized model.init=xavier model.init_gain=1", "model.norm=batch", "model.activation=relu model.init=he"),
            tuple(layer.layer for layer in found if layer.layer in known), first=self._first,
        )  # fmt: skip
