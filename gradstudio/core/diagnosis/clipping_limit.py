"""The largest gradient that clipping lets through, given the settings in force."""

from __future__ import annotations

import math
from functools import cache

from gradstudio.core.diagnosis import weight_decay
from gradstudio.core.diagnosis.mechanism import in_force
from gradstudio.core.experiment import KNOBS
from gradstudio.core.history import History
from gradstudio.core.row import Settings

BY_NORM = ("norm", "per_tensor", "per_module", "per_network")  # of all gradients, or of some by themselves


def largest(settings: Settings, history: History) -> float:
    """Return the largest L2 norm of any gradient after this clipping; inf if it depends on the weights,
    or if noise may follow, as after per_example."""
    match settings.clipping:
        case "norm":
            return settings.limit
        case "per_network":
            return settings.limit * math.sqrt(2)
        case "per_tensor" | "per_module":
            return settings.limit * math.sqrt(len(history.layers))
        case "value":
            return settings.limit * math.sqrt(sum(layer.size for layer in history.layers))
    return math.inf


def by_norm(history: History, step: int, *others: str) -> tuple[str, ...]:
    """Return clipping by a norm of 1, and the other kinds, as remedies; none if SGD's update of such a gradient is
    still longer than three quarters of the initial weights, or if the decay takes all of them."""
    settings, weights = in_force(history, step), history.value("weight_norm", 0)
    kept = 1 - settings.momentum if settings and settings.optimizer == "sgd" and settings.momentum < 1 else math.inf
    too_long = history.value("lr", step) / kept > 0.75 * weights > 0
    return () if too_long or weight_decay.overshoots(history, step) else ("clipping.kind=norm", *others)


@cache
def knob_of(kind: str) -> str:
    """Return the name of the knob that sets the limit of this kind of clipping."""
    return next(
        name
        for name, knob in KNOBS.items()
        if knob.section == "clipping" and any(kind in condition.get("clipping.kind", ()) for condition in knob.when)
    )
