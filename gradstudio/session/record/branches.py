"""Branches: runs that continue from a step of another run, and the family formed by a run and its branches."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

import numpy as np

from gradstudio.core import ranks_allowed
from gradstudio.core.events import Change, Event
from gradstudio.core.experiment import Experiment
from gradstudio.core.knobs import KnobError, Value
from gradstudio.session.record.run import Run
from gradstudio.session.record.run_writer import RunWriter

if TYPE_CHECKING:
    from collections.abc import Sequence

USUAL = 200  # steps before the run diverged whose gradient norms are the usual ones
MOST = 50  # runs of a family that are kept in memory; the library has the others
SHORTLY = 10  # steps before the last healthy one in which a manual change may be what broke the run
TIMES = 4.0  # a step whose norm is more than this many times the usual one is not healthy
_step = attrgetter("step")
_BEFORE_A_STEP = {"started", "branched", "knob_changed", "knob_refused"}  # events that precede their step


def fork(
    parent: Run,
    step: int,
    *,
    experiment: Experiment | None = None,
    steps: int | None = None,
    changes: tuple[Change, ...] = (),
    compare_at: tuple[int, ...] = (),
) -> Run:
    """Return the run as it was before a step, with the changes that act from that step on, for a worker to continue. It
    shares its parent's rows. KnobError for a step that the parent has not reached.

    `experiment` is the initial one of the parent, if that is continued with another number of steps; `steps` is how
    many steps the branch will have. `asked` and `compare_at` are the branch's own changes and comparisons."""
    if parent.watched is not None:
        raise KnobError(f"{parent.id} was made by a script of yours: it has no branches")
    ranks_allowed.check_alone(parent.experiment, "a run has no branches")
    if not 0 <= step <= len(parent.history):
        raise KnobError(f"step {step:,} is not among the steps 0 to {len(parent.history):,} of {parent.id}")
    start = experiment or parent.experiment
    history, broke = parent.history.until(step), parent.first_nonfinite_step
    timeline = [change for change in list(parent.timeline) if change.step <= step]
    broken = broke is not None and broke < step
    run = Run(
        parent.preset,
        start if steps is None else start.with_value("run.steps", steps),
        planned=tuple(sorted((*parent.planned, *parent.asked), key=_step)),
        compare_at=(*parent.compare_at, *compare_at),
        parent=parent.id,
        parent_step=step,
        ancestors={ancestor: min(end, step) for ancestor, end in parent.ancestors.items()} | {parent.id: step},
        at_fork=start.with_values({change.knob: change.value for change in timeline}),
        asked=changes,
        branched_from=parent,
        environment=parent.environment,
        history=history,
        timeline=timeline,
        events=_events_at(parent, step),
        first_nonfinite_step=broke if broken else None,
        provenance=parent.provenance if broken else None,
        seconds=float(history.column("step_seconds").sum()),
    )
    RunWriter(run).inherit()
    return run


def _events_at(parent: Run, step: int) -> list[Event]:
    """Return the events of a branch at its first own step: those of the parent before it made that step."""
    before = [event for event in list(parent.events) if event.step == step and event.kind in _BEFORE_A_STEP]
    return [*before, Event(step, "branched", f"went on from {parent.title}")]


def shared_rows(one: Run, other: Run) -> int:
    """Return how many rows two runs of a family share."""
    lines = [{**run.ancestors, run.id: len(run.history)} for run in (one, other)]
    return max((min(end, lines[1][run]) for run, end in lines[0].items() if run in lines[1]), default=0)


def last_healthy_step(run: Run) -> int | None:
    """Return the last step before the run diverged whose gradient norm was still usual. None if it did not diverge, was
    never healthy, or cannot be rewound, such as a watched run."""
    broke = run.first_nonfinite_step
    if not broke or run.watched is not None or ranks_allowed.several(run.experiment):
        return None
    first = max(broke - USUAL, 0)
    norms = run.history.column("grad_norm", first, broke)
    finite = norms[np.isfinite(norms)]
    if not len(finite):
        return None
    usual = np.flatnonzero(norms <= TIMES * np.median(finite))
    return first + int(usual[-1])


def manual_changes(run: Run, step: int) -> dict[str, tuple[Value, Value]]:
    """Return the knobs that the user changed at a step, each with its values before and after: planned changes are
    repeated automatically."""
    planned = {*run.planned, *run.asked}
    changed: dict[str, tuple[Value, Value]] = {}
    for event in run.changes:
        value, before = event.value, event.before
        if event.step == step and value is not None and before is not None:
            if event.knob not in changed and Change(event.step, event.knob, value) in planned:
                continue
            changed[event.knob] = (changed.get(event.knob, (before,))[0], value)
    return {knob: (before, after) for knob, (before, after) in changed.items() if before != after}


def last_changes(run: Run, healthy: int | None) -> tuple[int, dict[str, tuple[Value, Value]]]:
    """Return the step and the knobs of the last manual change shortly before a run's last healthy step, as a run that
    was well until then would not have diverged without it."""
    if healthy is not None:
        for step in sorted({change.step for change in list(run.timeline)}, reverse=True):
            if healthy - SHORTLY <= step <= healthy and (changes := manual_changes(run, step)):
                return step, changes
    return 0, {}


class Family:
    """A run and all its branches, by id. The most recently shown branch comes last."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self.members: dict[str, Run] = {run.id: run for run in runs}

    def add(self, run: Run) -> None:
        """Add a branch."""
        self.members[run.id] = run

    def shows(self, run: Run) -> None:
        """Mark this branch as shown, so that it is dropped later than the others."""
        if run.parent and run.id in self.members:
            self.members[run.id] = self.members.pop(run.id)

    def missed_least(self, shown: Run) -> Run | None:
        """Return the least recently shown branch, preferably one without branches of its own. Never the run that is
        shown, nor the root."""
        others = [run for run in self.members.values() if run.parent and run is not shown]
        parents = {run.parent for run in self.members.values()}
        return next((run for run in others if run.id not in parents), next(iter(others), None))

    def parent(self, run: Run) -> Run | None:
        """Return the run that it branched from, if the family has it."""
        return self.members.get(run.parent)

    def children(self, run: Run) -> list[Run]:
        """Return its branches."""
        return [other for other in self.members.values() if other.parent == run.id]

    def offspring(self, run: Run) -> list[Run]:
        """Return the run and all its descendants, each before its children."""
        return [run, *(late for child in self.children(run) for late in self.offspring(child))]

    def owner(self, run: Run, step: int) -> Run:
        """Return the run that made a step of a run: itself, or an ancestor."""
        while step < run.parent_step and (parent := self.parent(run)):
            run = parent
        return run
