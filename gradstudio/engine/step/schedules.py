"""Schedules of the learning rate, by the name that schedule.kind gives them."""

from __future__ import annotations

import math
from collections.abc import Callable

from gradstudio.core.experiment import Schedule

# Each maps the finished share of the fall, 0 to 1, to a factor on the learning rate.
SCHEDULES: dict[str, Callable[[float], float]] = {
    "constant": lambda share: 1.0,
    "cosine": lambda share: 0.5 * (1 + math.cos(math.pi * share)),  # Loshchilov and Hutter 2016, without restarts
    "linear": lambda share: 1.0 - share,
}


def factor(schedule: Schedule, taken: int) -> float:
    """Return the factor on optimizer.lr for the update that comes after `taken` updates: a straight rise to 1 over
    warmup_steps, then a fall of the kind, which ends at total_steps (Goyal 2017). A warmup that takes all of
    total_steps leaves the fall a single step."""
    warmup = schedule.warmup_steps
    if taken < warmup:
        return (taken + 1) / warmup
    return SCHEDULES[schedule.kind](min(1.0, (taken - warmup) / max(schedule.total_steps - warmup, 1)))
