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

    def look(self, history: History, state: Progress) -> None:
        always = all(any(layer.saturated > self.always for layer in sample.layers) for sample in history.activations)
        if not state.struggling and not (always and state.known):
            self.soften(not state.well)
            return
        if not history.activations:
            return
        sample = history.activations[-1]
        found = [layer for layer in sample.layers if layer.saturated > self.share]
        if not found:
            return
        first = next(each.step for each in history.activations if any(layer.saturated > self.share for layer in each.layers))
        worst = max(found, key=lambda layer: layer.saturated)
        known = {layer.name for layer in history.layers}
        self.tell(
            history, "critical", "Saturated activations",
            f"{number(100 * worst.saturated)} % of what comes out of {worst.layer} at step {sample.step:,} is at the flat ends of its activation.",
            "There the slope is next to 0: the layers below hardly get a gradient. The sums are too large, from the inputs, the weights or the rate.",
            ("model.norm=batch", "problem.input_scale=1 problem.scaling=standardized model.init=xavier model.init_gain=1", "model.activation=relu model.init=he"),
            tuple(layer.layer for layer in found if layer.layer in known), first=first,
        )  # fmt: skip
