"""Gradients that shrink on their way back to the first layers, while the loss stagnates."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gradstudio.core.diagnosis import weight_decay
from gradstudio.core.diagnosis.median import median
from gradstudio.core.diagnosis.progress import SOLVED, Progress
from gradstudio.core.diagnosis.rule import PeriodicRule
from gradstudio.core.diagnosis.streak import NO_STREAK
from gradstudio.core.diagnosis.unreached_layers import unused_layers
from gradstudio.core.history import LOOK_EVERY, History, up_to
from gradstudio.core.text import number
from gradstudio.core.unknown import is_known

_OF_ALL = (
    "Nothing is trained. A factor of every gradient is 0: an activation behind the last layer whose slope is 0, as "
    "that of a relu below 0 (drop it there), a clamp, a mask, or a loss that is flat where it is."
)
_DEEP = (
    "model.norm=batch model.residual=true model.norm_position=post", "model.activation=relu model.init=he",
    "model.norm=batch", "model.residual=true",
)  # fmt: skip
_WARMUP = 100  # steps at least; 2 / (1 - beta2) is the warmup of Adam that needs no search (Ma and Yarats 2021)
_TINY = float(np.finfo(np.float32).tiny)  # below it a float32 has lost digits, and a quotient of two means nothing


@dataclass
class VanishingGradient(PeriodicRule):
    """Fires if the gradient norm of the last weight is more than `ratio` times that of the first, and that of the first
    bias, which does not depend on the inputs, is as small, while the loss is stuck. 1000 is AutoTrainer's (ICSE 2021).
    The bias of the last layer still learns then, so the loss falls a little at the start."""

    rule = "vanishing_gradient"
    ratio: float = 1000.0
    rows: int = 10  # whose median norms are compared

    _weights: tuple[int, ...] = ()

    def look(self, history: History, state: Progress) -> None:
        if self._are_all_zero(history) and not state.broken:
            self._tell_of_all(history, state)
            return
        if state.all_zero or not (state.stuck or state.has_lost):
            self.soften(not state.well)
            return
        without = unused_layers(history)  # nothing is passed back to them, so nothing has vanished there
        weights = self._weights = tuple(
            index
            for index, layer in enumerate(history.layers)
            if layer.role in ("weight", "embedding") and index not in without
        )
        if len(weights) < 3:
            return
        latest = history.layer_metric("grad_norm", len(history) - self.rows)
        first, last = _median(latest, weights[0]), _median(latest, weights[-1])
        if not last > max(self.ratio * first, _TINY):
            return
        bias = _bias_of(history, weights[0])
        if bias is not None and _median(latest, bias) * self.ratio > last:
            return  # the gradient reaches the layer: it is the layer's inputs that are small
        since = self._finding.first_step if self._finding else self._since(history)
        decay = weight_decay.shrinkage(history, since)
        by_size = bool(history.settings) and history.settings[-1][1].optimizer == "sgd"  # others divide it out
        hardly = ", so they hardly change from there on" * (by_size and not decay)
        dark = tuple(history.layers[index].name for index in weights if _median(latest, index) * self.ratio < last)
        times = f": {number(last / first)} times smaller" if first > 0 else ""
        self.tell(
            history,
            "critical",
            "Vanishing gradient",
            f"The gradient norm is {number(last)} in the last layer and {number(first)} in the first{times} (medians "
            f"of the {len(latest)} steps {up_to(history)}). {state.course()}",
            f"Each layer passes back only a part of the gradient. Almost none reaches the first layers{hardly}.{decay}",
            (decay and weight_decay.lower(history, since)) or (*_DEEP, *self._against_updates(history, since)),
            dark,
            first=since,
        )

    def _tell_of_all(self, history: History, state: Progress) -> None:
        moved = bool(history.column("grad_norm").any())
        losses = np.abs(history.column("loss", len(history) - LOOK_EVERY))
        rests = moved and ((state.has_learned and not state.has_lost) or losses.max() <= SOLVED)  # at a bound, maybe
        self.tell(
            history, "info" if rests else "warning" if state.by_accuracy else "critical", "All gradients are exactly 0",
            f"The gradient of every parameter was exactly 0 at each of the {LOOK_EVERY} steps {up_to(history)}; the "
            f"loss is {number(history.value('loss', len(history) - 1))}.", _OF_ALL, first=len(history) - LOOK_EVERY,
        )  # fmt: skip

    @staticmethod
    def _are_all_zero(history: History) -> bool:
        """Return whether all gradients of a script, whose units are unknown, have been 0 with a nonzero loss. In
        float16 that is underflow."""
        in_half = bool(history.settings) and history.settings[-1][1].dtype == "fp16"
        if len(history) < LOOK_EVERY or in_half or is_known(history.value("accuracy", len(history) - 1)):
            return False
        norms, losses = (history.column(name, len(history) - LOOK_EVERY) for name in ("grad_norm", "loss"))
        return not norms.any() and np.abs(losses).min() > 0

    @staticmethod
    def _against_updates(history: History, since: int) -> tuple[str, ...]:
        """Return remedies that shrink the first updates, if the gradient reached the first layers before them."""
        if since == 0:
            return ()
        settings = history.settings[-1][1] if history.settings else None
        rate = f"optimizer.lr={history.value('lr', since) / 10:.2g}"
        if settings is None or settings.optimizer not in ("adam", "adamw"):
            return (rate,)  # what is too high at once is so after a warmup too, but for the means of Adam
        warmup = min(max(round(2 / (1 - settings.beta2)), _WARMUP), len(history)) if settings.beta2 < 1 else _WARMUP
        return rate, f"schedule.warmup_steps={warmup}"

    def _since(self, history: History) -> int:
        """Return the first step of the streak; if it has gaps, the latest row that was compared."""
        ends = self._weights[0], self._weights[-1]
        streak = NO_STREAK.at(history, "grad_norm", ends, lambda norms: norms[:, 1] > self.ratio * norms[:, 0])
        return min(streak.first, max(len(history) - self.rows, 0))


def _bias_of(history: History, weight: int) -> int | None:
    """Return the index of the bias that belongs to a weight; None if it has none."""
    module = history.layers[weight].name.rpartition(".")[0]
    names = [layer.name for layer in history.layers]
    return names.index(f"{module}.bias") if f"{module}.bias" in names else None


def _median(norms: np.ndarray, layer: int) -> float:
    return median(norms[:, layer].astype(float))
