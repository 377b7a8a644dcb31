"""Schedules of the learning rate, by their name in schedule.kind."""

from __future__ import annotations

import math
from collections.abc import Callable

from gradstudio.core.sections.loop_knobs import Schedule


def one_cycle(share: float) -> float:
    """Return a rise from 1/25 to 1 over the first 30 % and a fall to 1/250,000, both as half a cosine: Smith 2018, with
    the values of torch.optim.lr_scheduler.OneCycleLR."""
    start, end, top = 1 / 25, 1 / 250_000, 0.3
    if share < top:
        return start + (1 - start) * 0.5 * (1 - math.cos(math.pi * share / top))
    return end + (1 - end) * 0.5 * (1 + math.cos(math.pi * (share - top) / (1 - top)))


# Each maps the finished share of the schedule, 0 to 1, to a factor on the learning rate.
SCHEDULES: dict[str, Callable[[float], float]] = {
    "constant": lambda share: 1.0,
    "cosine": lambda share: 0.5 * (1 + math.cos(math.pi * share)),  # Loshchilov and Hutter 2016, without restarts
    "linear": lambda share: 1.0 - share,
    "exponential": lambda share: 0.01**share,
    "one_cycle": one_cycle,
    "wsd": lambda share: min(1.0, (1.0 - share) / 0.2),  # warmup, stable, decay: Hu 2024
}


def factor(schedule: Schedule, taken: int) -> float:
    """Return the factor on optimizer.lr for the update after `taken` updates: a linear rise to 1 over warmup_steps,
    then a fall of the kind, which ends at total_steps (Goyal 2017). A warmup over all of total_steps leaves the fall a
    single step."""
    warmup = schedule.warmup_steps
    if taken < warmup:
        return (taken + 1) / warmup
    return SCHEDULES[schedule.kind](min(1.0, (taken - warmup) / max(schedule.total_steps - warmup, 1)))
