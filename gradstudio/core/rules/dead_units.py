"""Units whose output is 0 for every example, so that no gradient brings them back."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gradstudio.core.diagnosis import clipping_limit, weight_decay
from gradstudio.core.diagnosis.progress import Progress
from gradstudio.core.diagnosis.rule import PeriodicRule
from gradstudio.core.diagnosis.streak import NO_STREAK, Streak
from gradstudio.core.diagnosis.suggested_rate import lower
from gradstudio.core.diagnosis.unreached_layers import unused_layers
from gradstudio.core.history import LOOK_EVERY, History, up_to
from gradstudio.core.text import number

_NO_GRADIENT = (
    "No gradient reaches the weights of dead units: their slope is 0 for every example, as that of a relu "
    "below 0, or another factor of the gradient is 0 or too small for a number."
)
_NO_SLOPE = (
    "Where the input of a relu is negative for every example, its slope is 0, and the weights of that unit get no "
    "gradient."
)


@dataclass
class DeadUnits(PeriodicRule):
    """Fires if more than `share` of a layer's units are dead in a sample of activations; or, between two samples, if
    more than `zeros` of the entries of a layer's gradient have been exactly 0 for LOOK_EVERY steps, while the bias of
    the output layer still has a gradient.

    DeepDiagnosis takes 70 % of outputs, AutoTrainer 70 % of gradient entries. But the gradient is also 0 for an input
    that is always 0, for the rows of an embedding that no batch uses, and for half the units of a deep healthy relu
    network: embeddings are left out, and it is a fault only in a run that does badly."""

    rule = "dead_units"
    share: float = 0.7
    zeros: float = 0.9

    _tensors: tuple[tuple[int, ...], tuple[int, ...]] | None = (
        None  # weights behind the first, and the output layer's bias
    )
    _streak: Streak = NO_STREAK

    def look(self, history: History, state: Progress) -> None:
        if not state.struggling:
            self.soften(not state.well)
            return
        what, shares = self._zero_shares(history)
        if not shares and not state.broken:
            self._come_back(history)
        if not shares or (state.broken and len(history) < LOOK_EVERY):
            return
        worst = max(shares, key=lambda each: each[1])
        by_gradient = "gradient" in what
        least = "At least " if by_gradient and worst[1] < 1 else ""
        born = self._at_the_start(history)
        since = 0 if born else self._since(history, shares)
        if self._finding is not None and since > self._finding.last_step + LOOK_EVERY:
            self._finding = None  # the units had come back
        decay = "" if born else weight_decay.shrinkage(history, since)
        known = {layer.name for layer in history.layers}
        self.tell(
            history,
            "critical" if worst[1] > 0.9 else "warning",
            "Dead units",
            f"{least}{number(100 * worst[1])} % of the {what.format(worst[0])}.",
            (_NO_GRADIENT if by_gradient else _NO_SLOPE) + decay,
            ("model.init=he",)
            if state.all_zero
            else ("model.initial_bias=0 model.init=he", "model.norm=batch")
            if born
            else (decay and weight_decay.lower(history, since))
            or (
                *clipping_limit.by_norm(history, since),
                *lower(history, history.value("lr", 0))[:1],
                "model.norm=batch",
            ),
            tuple(name for name, _ in shares if name in known),
            first=since,
        )

    def _come_back(self, history: History) -> None:
        """Report, in the past tense, units that a sample, or their gradient, shows to be alive again."""
        finding = self._finding
        if finding is None or finding.severity == "info":
            return
        latest = history.activations[-1] if history.activations else None
        lives = latest is None or not any(layer.dead > self.share for layer in latest.layers)
        if lives and (latest is None or latest.step > finding.last_step):
            self._finding = replace(
                finding, severity="info", title=f"{finding.title}, until step {finding.last_step:,}",
                meaning="Fewer units were dead after that step.", remedies=(),
            )  # fmt: skip

    def _zero_shares(self, history: History) -> tuple[str, list[tuple[str, float]]]:
        """Return a text that says what is 0, with {} for the layer, and the share of zeros in each layer that has too
        many."""
        shares: list[tuple[str, float]] = []
        what = "units of {} are 0 for every example of a batch"
        if history.activations and (history.activations[-1].step > len(history) - LOOK_EVERY or self._finding is None):
            what += f" of step {history.activations[-1].step:,}"
            shares = [(layer.layer, layer.dead) for layer in history.activations[-1].layers if layer.dead > self.share]
        if (
            not shares
            and len(history) >= LOOK_EVERY
            and not (history.settings and history.settings[-1][1].dtype == "fp16")
        ):
            what = f"gradient entries of {{}} were exactly 0 at each of the {LOOK_EVERY} steps {up_to(history)}"
            shares = self._by_gradient(history)
        return what, shares

    def _at_the_start(self, history: History) -> bool:
        return any(
            layer.dead > self.share for sample in history.activations[:1] for layer in sample.layers if sample.step == 0
        )

    def _since(self, history: History, shares: list[tuple[str, float]]) -> int:
        """Return the first step from which the gradient entries of one of these layers have all been 0; the step of the
        sample if no gradient shows it."""
        names = {name for name, _ in shares}
        which = tuple(index for index, layer in enumerate(history.layers) if layer.name in names)
        share = np.float32(self.zeros)
        self._streak = self._streak.at(history, "zero_share", which, lambda zeros: zeros.max(1) > share)
        start = self._streak.first
        sampled = history.activations[-1].step if history.activations else len(history) - 1
        return start if start < len(history) else min(sampled, len(history) - 1)

    def _by_gradient(self, history: History) -> list[tuple[str, float]]:
        if self._tensors is None:
            behind = [index for index, layer in enumerate(history.layers) if layer.is_weight][1:]
            weights = tuple(index for index in behind if history.layers[index].role != "embedding")
            self._tensors = (
                weights,
                tuple(index for index, layer in enumerate(history.layers) if layer.role == "bias")[-1:],
            )
        weights, biases = self._tensors
        if not weights or not biases:
            return []
        share = float(np.float32(self.zeros))  # as those in the history
        latest = history.layer_metric("zero_share", len(history) - 1)[0].tolist()
        if not any(latest[index] > share for index in weights):  # then none was at every step
            return []
        zeros = history.layer_metric("zero_share", len(history) - LOOK_EVERY).min(0).tolist()
        if not zeros[biases[0]] < 1:
            return []
        without = unused_layers(history)  # none of their units is used by the loss
        return [
            (history.layers[index].name, zeros[index])
            for index in weights
            if zeros[index] > share and index not in without
        ]
