"""The numbers of a run as its figures need them: taken once, reduced to what a page can show, nothing non-finite lost."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from gradstudio.core.events import Event
from gradstudio.core.experiment import Experiment
from gradstudio.core.history import COLUMNS, Layer
from gradstudio.session.run import Run

POINTS = 2000  # drawn points a curve, at most
CELLS = 800  # columns of the heatmap, at most
MARKS = 300  # marks of a kind on a curve, at most


@dataclass(frozen=True)
class Trace:
    """The measured rows of a run, all of one length, however far the run goes on meanwhile."""

    columns: dict[str, np.ndarray]
    layers: tuple[Layer, ...]
    layer_norms: np.ndarray  # (steps, layers)
    changes: tuple[Event, ...]
    experiment: Experiment
    first_nonfinite_step: int | None

    def __len__(self) -> int:
        return len(self.columns["step"])

    def __getitem__(self, name: str) -> np.ndarray:
        return self.columns[name]

    @cached_property
    def in_force(self) -> list[tuple[int, int, Experiment]]:
        """The knobs that held from each step up to another, in order."""
        spans, start, knobs = [], 0, self.experiment
        for change in self.changes:
            if change.step > start:
                spans.append((start, change.step, knobs))
                start = change.step
            if change.value is not None:
                knobs = knobs.with_value(change.knob, change.value)
        return [*spans, (start, len(self), knobs)]


def take(run: Run) -> Trace:
    """The run as it stands now."""
    history, count = run.history, len(run.history)
    return Trace(
        columns={name: history.column(name, 0, count) for name in COLUMNS},
        layers=history.layers,
        layer_norms=history.layer_metric("grad_norm", 0, count),
        changes=tuple(event for event in list(run.events) if event.kind == "knob_changed"),
        experiment=run.experiment,
        first_nonfinite_step=run.first_nonfinite_step,
    )


def reduce(values: np.ndarray, points: int = POINTS) -> np.ndarray:
    """Indices of at most so many values that keep a curve's look: the smallest and largest of every bucket, its first
    non-finite one (which leaves a gap), and both ends."""
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
    """At most so many of the steps, none further than a bucket from one that is left out."""
    buckets = (steps * marks) // max(count, 1)
    return steps[np.unique(buckets, return_index=True)[1]]


def reduce_cells(norms: np.ndarray, cells: int = CELLS) -> np.ndarray:
    """(steps, layers) as at most so many columns: (layers, columns). A column is the largest of its steps, NaN where any is not finite."""
    if len(norms) > cells:
        edges = np.linspace(0, len(norms), cells + 1).astype(int)[:-1]
        norms = np.maximum.reduceat(norms.astype(float), edges, axis=0)  # a NaN wins, an Inf is the largest
    return np.where(np.isfinite(norms), norms, np.nan).T.astype(float)
