"""Runs that go on from a step of another run, and what is known of where they come from."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

import numpy as np

from gradstudio.core.events import Event
from gradstudio.core.knobs import KnobError
from gradstudio.session.run import Run

if TYPE_CHECKING:
    from collections.abc import Sequence

USUAL = 200  # steps before a break whose norms say what was usual
TIMES = 4.0  # a norm so many times the usual one is no healthy step any more
_step = attrgetter("step")
_BEFORE_A_STEP = {"started", "branched", "knob_changed", "knob_refused"}  # news that come before the step of their number is made


def fork(parent: Run, step: int) -> Run:
    """The run as it stood before a step, with the changes that act from it on; to be gone on with by a worker. The parent's rows are
    shared. KnobError for a step that it has not come to."""
    if not 0 <= step <= len(parent.history):
        raise KnobError(f"step {step:,} is not among the steps 0 to {len(parent.history):,} of {parent.id}")
    planned = tuple(sorted((*parent.planned, *parent.asked), key=_step))
    run = Run(parent.preset, parent.experiment, planned, parent.compare_at)
    run.parent, run.parent_step = parent.id, step
    run.ancestors = {ancestor: min(end, step) for ancestor, end in parent.ancestors.items()} | {parent.id: step}
    run.history, run.environment = parent.history.until(step), parent.environment
    run.timeline = [change for change in list(parent.timeline) if change.step <= step]
    run.at_fork = run.in_force = run.values_at(step)
    run.events = [event for event in list(parent.events) if event.step == step and event.kind in _BEFORE_A_STEP]
    run.events.append(Event(step, "branched", f"went on from {parent.title}"))
    run.forked_from = parent
    inherit(run)
    broke = parent.first_nonfinite_step
    if broke is not None and broke < step:
        run.first_nonfinite_step, run.provenance = broke, parent.provenance
    run.seconds = float(run.history.column("step_seconds").sum())
    return run


def inherit(run: Run) -> None:
    """Take over the news of the rows that a fork shares with its parent: when it is made, to be seen, and once the parent stands, which may
    not have looked at its latest rows before."""
    parent, step = run.forked_from, run.parent_step
    if parent is not None:
        inherit(parent)  # which may never have begun
        run.events = [*(event for event in list(parent.events) if event.step < step), *(event for event in run.events if event.step >= step)]
        run.compared = [comparison for comparison in list(parent.compared) if comparison.step < step]


def parting(one: Run, other: Run) -> int:
    """How many rows two runs of a family share: the step from which on each has its own."""
    lines = [{**run.ancestors, run.id: len(run.history)} for run in (one, other)]
    return max((min(end, lines[1][run]) for run, end in lines[0].items() if run in lines[1]), default=0)


def last_healthy_step(run: Run) -> int | None:
    """The last step whose gradient norm was still usual, before the run went non-finite; None where it did not, or was never healthy."""
    broke = run.first_nonfinite_step
    if not broke:
        return None
    first = max(broke - USUAL, 0)
    norms = run.history.column("grad_norm", first, broke)
    finite = norms[np.isfinite(norms)]
    if not len(finite):
        return None
    usual = np.flatnonzero(norms <= TIMES * np.median(finite))
    return first + int(usual[-1])


class Family:
    """A run and everything that branched from it."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self.members: dict[str, Run] = {run.id: run for run in runs}

    def add(self, run: Run) -> None:
        self.members[run.id] = run

    def parent(self, run: Run) -> Run | None:
        return self.members.get(run.parent)

    def children(self, run: Run) -> list[Run]:
        """In the order in which they branched."""
        return [other for other in self.members.values() if other.parent == run.id]

    def offspring(self, run: Run) -> list[Run]:
        """The run and all that come of it, each before its children."""
        return [run, *(late for child in self.children(run) for late in self.offspring(child))]

    def owner(self, run: Run, step: int) -> Run:
        """The run whose row that step is, of a run's line."""
        while step < run.parent_step and (parent := self.parent(run)):
            run = parent
        return run
