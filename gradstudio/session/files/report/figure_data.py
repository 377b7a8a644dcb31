"""The numbers of a run for its figures: reduced to what fits on a page, with every NaN and Inf kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise

import numpy as np

from gradstudio.core.events import Event
from gradstudio.core.experiment import Experiment
from gradstudio.core.history import BLOCK, History
from gradstudio.core.row import Layer
from gradstudio.session.record.run import Run

POINTS = 2000  # points of a curve, at most
CELLS = 800  # columns of the heatmap, at most
MARKS = 300  # marks of a kind on a curve, at most


@dataclass(frozen=True)
class Trace:
    """The rows of a run up to a step, while the run may continue. A column is copied only on request."""

    history: History
    count: int
    changes: tuple[Event, ...]
    experiment: Experiment
    first_nonfinite_step: int | None

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, name: str) -> np.ndarray:
        return self.history.column(name, 0, self.count)

    def measurements(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Return the steps that measured a column, and its values there."""
        return self.history.measurements(name, 0, self.count)

    @property
    def layers(self) -> tuple[Layer, ...]:
        return self.history.layers

    @cached_property
    def layer_norms(self) -> np.ndarray:
        """The gradient norms of every layer, from `reduce_cells`."""
        return reduce_cells(partial(self.history.layer_metric, "grad_norm"), self.count, len(self.layers))

    @property
    def ranks_known(self) -> bool:
        """Whether each rank's own figures are known: for a run that was trained here on several ranks."""
        return len(self.history.ranks) >= self.count > 0

    @cached_property
    def rank_norms(self) -> np.ndarray:
        """The norms of every rank's own gradient, from `reduce_cells`."""
        ranks = self.history.ranks
        return reduce_cells(partial(ranks.metric, "norm"), self.count, ranks.ranks)

    @cached_property
    def in_force(self) -> list[tuple[int, int, Experiment]]:
        """The stretches of steps with the same knobs: first step, the step after the last, and the knobs."""
        spans, start, knobs = [], 0, self.experiment
        for change in self.changes:
            if change.step > start:
                spans.append((start, change.step, knobs))
                start = change.step
            if change.value is not None:
                knobs = knobs.with_value(change.knob, change.value)
        return [*spans, (start, len(self), knobs)]


def take(run: Run) -> Trace:
    """Return the rows of the run so far."""
    return Trace(
        history=run.history,
        count=len(run.history),
        changes=tuple(run.changes),
        experiment=run.experiment,
        first_nonfinite_step=run.first_nonfinite_step,
    )


def reduce(values: np.ndarray, points: int = POINTS) -> np.ndarray:
    """Return the indices of at most `points` values that preserve the look of a curve: the smallest and largest of
    every bucket, its first non-finite one (which leaves a gap), and both ends."""
    if len(values) <= points:
        return np.arange(len(values))
    finite = np.isfinite(values)
    edges = np.linspace(0, len(values), (points - 2) // 3 + 1).astype(int)
    kept = {0, len(values) - 1}
    low, high = np.where(finite, values, np.inf), np.where(finite, values, -np.inf)
    for start, stop in pairwise(edges.tolist()):
        inside = finite[start:stop]
        if inside.any():
            kept.update((start + int(low[start:stop].argmin()), start + int(high[start:stop].argmax())))
        if not inside.all():
            kept.add(start + int(inside.argmin()))
    return np.array(sorted(kept))


def thin(steps: np.ndarray, count: int, marks: int = MARKS) -> np.ndarray:
    """Return at most `marks` of the steps, one from each bucket that has any."""
    buckets = (steps * marks) // max(count, 1)
    return steps[np.unique(buckets, return_index=True)[1]]


def reduce_cells(read: Callable[[int, int], np.ndarray], count: int, layers: int, cells: int = CELLS) -> np.ndarray:
    """Return the rows of `read(start, stop)`, (rows, layers), reduced to at most `cells` columns: (layers, columns). A
    column is the largest value of its steps, NaN if any is non-finite. Only a block of rows is in memory at a time."""
    edges = np.linspace(0, count, min(count, cells) + 1).astype(int)[:-1]
    largest = np.full((len(edges), layers), -np.inf, np.float32)
    for start in range(0, count, BLOCK):
        stop = min(start + BLOCK, count)
        first, last = np.searchsorted(edges, start, "right") - 1, np.searchsorted(edges, stop)
        inside = np.maximum(edges[first:last] - start, 0)  # the first of them may have begun in the previous block
        norms = np.maximum.reduceat(read(start, stop), inside, axis=0)  # a NaN takes precedence, an Inf is the largest
        largest[first:last] = np.maximum(largest[first:last], norms)
    return np.where(np.isfinite(largest), largest, np.nan).T.astype(float)
