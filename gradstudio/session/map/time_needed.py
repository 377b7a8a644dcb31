"""The duration of a map, before it is made: a run is timed in a worker process, and the number of runs follows from the
plan. The number of cells that an adaptive map trains is unknown, so it has a minimum and a maximum."""

from __future__ import annotations

import concurrent.futures
import contextlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from gradstudio.core.experiment import Experiment
from gradstudio.core.text import duration
from gradstudio.session.map import refine, workers
from gradstudio.session.map.train_cell import Order
from gradstudio.session.map.workers import Pool

AIM = 60.0  # seconds that a map takes by default
FEWEST_CELLS, FEWEST_STEPS = 6, 60  # of an axis and of a run, the minimum of a default
SHORT, LONG = 2, 26  # steps of the runs that are timed


class Cost(NamedTuple):
    """Seconds of a run of a cell before its first step, and of each step."""

    start: float
    step: float

    def run(self, steps: int) -> float:
        return self.start + steps * self.step


@dataclass(frozen=True)
class Size:
    """Cells of an axis, and steps of each run."""

    cells: int
    steps: int


def runs(shape: tuple[int, int, int], seeds: int, *, full: bool) -> tuple[int, int]:
    """Return the minimum and the maximum number of runs for a map of this shape (panels, rows, columns)."""
    panels, *area = shape
    most = panels * seeds * math.prod(area)
    coarse = panels * seeds * len(refine.next_cells(np.full(area, -1, np.int8), np.full(area, math.nan), full=full))
    return coarse, most


def in_words(count: tuple[int, int], cost: Cost, steps: int, processes: int) -> str:
    """Return how long `count` runs take, as a sentence."""
    least, most = (runs * cost.run(steps) / processes for runs in count)
    if count[0] == count[1]:
        return f"It takes about {duration(most)}; runs that diverge end sooner."
    return f"It is seen coarsely after about {duration(least)}, and takes at most about {duration(most)}."


def fit_size(asked: Size, panels: int, cost: Cost, processes: int) -> Size:
    """Return the initial size: the requested one, or fewer cells and then fewer steps, so that a map with this many
    panels takes about a minute at most."""
    room = AIM * processes / panels  # seconds of runs

    def needs(size: Size) -> float:
        return size.cells**2 * cost.run(size.steps)

    size = asked
    while needs(size) > room and size.cells > FEWEST_CELLS:
        size = Size(max(size.cells - 2, FEWEST_CELLS), size.steps)
    if needs(size) > room:
        steps = int((room / size.cells**2 - cost.start) / cost.step) if cost.step > 0 else size.steps
        size = Size(size.cells, min(max(steps // 10 * 10, FEWEST_STEPS), size.steps))
    return size


def measure_cost(experiment: Experiment, stopped: Callable[[], bool]) -> Cost | None:
    """Time runs of an experiment in a worker process; None if they fail or it was stopped."""
    with contextlib.closing(Pool(1, yielding=True)) as pool:
        costs = [
            _time_run(pool, experiment, steps, stopped) for steps in (SHORT, SHORT, LONG)
        ]  # the first loads the data
    if any(each is None for each in costs):
        return None
    (_, _), (short, few), (long, many) = (each for each in costs if each is not None)
    if many <= few or long <= short:  # it diverged immediately, or the machine was busy with other work
        return Cost(0.0, long / many)
    step = (long - short) / (many - few)
    return Cost(max(short - few * step, 0.0), step)


def _time_run(pool: Pool, experiment: Experiment, steps: int, stopped: Callable[[], bool]) -> tuple[float, int] | None:
    """Return seconds and steps of a run."""
    order = Order(experiment.with_value("run.steps", min(steps, experiment.run.steps)), ())
    future = pool.executor().submit(workers.work, order)
    while not concurrent.futures.wait([future], 0.02).done:
        if stopped():
            return None
    trained = future.result()
    return (trained.seconds, trained.step + 1) if trained is not None and trained.outcome != "failed" else None
