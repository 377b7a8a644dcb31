"""Schedules of the learning rate, by the name that schedule.kind gives them."""

from __future__ import annotations

import math
from collections.abc import Callable

from gradstudio.core.experiment import Schedule

# Each maps the finished share of schedule.total_steps, 0 to 1, to a factor on the learning rate.
SCHEDULES: dict[str, Callable[[float], float]] = {
    "constant": lambda share: 1.0,
    "cosine": lambda share: 0.5 * (1 + math.cos(math.pi * share)),  # Loshchilov and Hutter 2016, without restarts
    "linear": lambda share: 1.0 - share,
}


def factor(schedule: Schedule, taken: int) -> float:
    """Return the factor on optimizer.lr for the update that comes after `taken` updates: a straight rise over
    warmup_steps, times the factor of the kind."""
    warmup = min(1.0, (taken + 1) / schedule.warmup_steps) if schedule.warmup_steps else 1.0
    return warmup * SCHEDULES[schedule.kind](min(1.0, taken / schedule.total_steps))
