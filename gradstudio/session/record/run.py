"""A run as anyone may read it: an experiment, the changes made to it, and everything that was measured.

Plots, reports, files and commands receive a `Run`, which is read-only: its worker writes it through a `RunWriter`
(run_writer.py), and nothing else does."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Literal, NamedTuple

from gradstudio.core.diagnosis.diagnosis import Diagnosis
from gradstudio.core.diagnosis.finding import Finding
from gradstudio.core.diagnosis.progress import Progress
from gradstudio.core.events import Change, Event
from gradstudio.core.experiment import Experiment, differing_values
from gradstudio.core.gauge_samples import Sample
from gradstudio.core.history import History
from gradstudio.core.knobs import Value, value_text, values_text
from gradstudio.core.presets import Preset
from gradstudio.core.provenance import Provenance
from gradstudio.core.rule_thresholds import all_rules, rules_of_a_script
from gradstudio.core.text import LONGEST_TITLE, shorten
from gradstudio.session.record.rule_watch import RuleWatch
from gradstudio.session.record.watched_script import WatchedScript

Status = Literal["ready", "starting", "running", "paused", "finished", "nonfinite", "stopped", "failed", "interrupted"]
MOST_ALIKE = 10_000  # events of one kind that steps bring about by themselves
OVER: frozenset[Status] = frozenset({"finished", "nonfinite", "stopped", "failed", "interrupted"})
_step = attrgetter("step")


class JoinedBatch(NamedTuple):
    """Relative distance between a step's accumulated gradient and that of its micro-batches joined into one batch.
    `alike` is set if rounding explains the distance."""

    step: int
    difference: float
    alike: bool


@dataclass(frozen=True, eq=False)
class Run:
    """A read-only view of a run. Any thread may read it at any time.

    Its lists grow while it trains, or are replaced as a whole: a reader that needs a consistent state copies them
    first."""

    # Identity
    preset: Preset
    experiment: Experiment  # the values at step 0
    planned: tuple[Change, ...] = ()  # planned changes; a branch has those of its parent too
    compare_at: tuple[int, ...] = ()  # steps that also compute the gradient of their micro-batches joined into one
    id: str = ""
    name: str = ""  # given by the user; "" if `title` is derived from the preset
    started: float = field(default_factory=time.time)
    watched: WatchedScript | None = None  # the script of a run that was watched; None for a run of the studio

    # Origin of a branch
    parent: str = ""  # id of the run that it branched from
    parent_step: int = 0  # number of rows that come from the parent; the run made every later row itself
    # by id, the oldest first: the step up to which rows come from it
    ancestors: Mapping[str, int] = field(default_factory=dict)
    at_fork: Experiment | None = None  # the values in force at parent_step
    asked: tuple[Change, ...] = ()  # the branch's own planned changes
    branched_from: Run | None = field(default=None, repr=False)  # the parent, until the branch trains

    # Progress
    status: Status = "ready"
    message: str = ""  # why it failed
    refused: bool = False  # it failed because the request is impossible here, such as a missing device
    environment: Mapping[str, str] = field(default_factory=dict)
    replayed: int | None = None  # the step that a rewind has reached, until the run continues
    differs_at: int | None = None  # first step whose loss differed when a rewind replayed it
    seconds: float = 0.0  # total for all steps
    step_now: tuple[int, float] | None = None  # the current step, and when it began, by time.monotonic()

    # seconds since the last message of the process that trains it; 0: on time, inf: permanently silent
    unheard: float = 0.0
    at_line: str = ""  # the current line of a studio file in a step that takes long, as a sentence

    # Measurements and events
    history: History = field(default_factory=History)
    events: Sequence[Event] = field(default_factory=list)
    timeline: Sequence[Change] = field(default_factory=list)  # live changes that were made
    refusals: Sequence[Event] = field(default_factory=list)  # live changes that could not be made
    compared: Sequence[JoinedBatch] = field(default_factory=list)
    not_compared: str = ""  # why the latest comparison with the joined batch failed
    findings: Mapping[str, Finding] = field(default_factory=dict)  # by rule
    first_nonfinite_step: int | None = None
    provenance: Provenance | None = None  # of the first non-finite value
    accuracy: float | None = None  # on the test set, once the run is over

    # Gauges that are measured on demand
    gauge_samples: Mapping[str, list[Sample]] = field(default_factory=dict)  # a list is replaced, never mutated
    gauge_problems: Mapping[str, str] = field(default_factory=dict)  # why the latest sample of a gauge is missing

    in_force: Experiment = field(init=False)  # the values in force
    rule_watch: RuleWatch = field(init=False, repr=False)  # for the writer only

    def __post_init__(self) -> None:
        stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(self.started))
        vars(self).update(
            # random digits: runs that begin in the same second must never be confused
            id=self.id or f"{self.preset.id}-{stamp}-{secrets.token_hex(4)}",
            in_force=self.experiment.with_values({change.knob: change.value for change in self.timeline})
            if self.timeline
            else self.experiment,
            rule_watch=RuleWatch(self.new_diagnosis(), self.history.before(0)),
        )

    def new_diagnosis(self) -> Diagnosis:
        """Return the diagnosis before the first step. Nothing is known about the task of a watched script."""
        if self.watched is not None:
            return Diagnosis(rules_of_a_script(), Progress())
        return Diagnosis(all_rules(), Progress.of(self.experiment))

    @property
    def over(self) -> bool:
        """True once the run will not grow any more."""
        return self.status in OVER

    @property
    def never_began(self) -> bool:
        """True if it did not reach its first step: what it asks for is impossible here, or no model was built."""
        return self.refused or not (len(self.history) or self.environment)

    @property
    def title(self) -> str:
        """The name, or the preset's title, with the changes of a branch; at most LONGEST_TITLE characters."""
        title = self.name or (f"{self.preset.title}: {self.default_name}" if self.parent else self.preset.title)
        return shorten(title, LONGEST_TITLE)

    @property
    def own(self) -> int:
        """Number of rows that the run made itself. A rewound run has none before it continues."""
        return len(self.history) - self.parent_step

    @property
    def what_changed(self) -> str:
        """The changes that distinguish a branch from its parent, in words."""
        planned = {(change.knob, change.value) for change in self.planned}
        net = differing_values(self.at_fork or self.in_force, self.in_force)
        told = {change.knob: change.value for change in self.asked if change in self.timeline}
        told |= {knob: value for knob, value in net.items() if (knob, value) not in planned}
        return values_text(told) or "no change"

    @property
    def default_name(self) -> str:
        """The name of a branch that the user has not named."""
        changed = self.what_changed
        return changed if changed != "no change" else f"same knobs, again from step {self.parent_step:,}"

    def owner(self, step: int) -> str:
        """Return the id of the oldest run that was in the same state before that step."""
        return next((run for run, end in self.ancestors.items() if step <= end), self.id)

    def values_at(self, step: int) -> Experiment:
        """Return the values that were in force at a step."""
        return self.experiment.with_values(
            {change.knob: change.value for change in list(self.timeline) if change.step <= step}
        )

    @property
    def changes(self) -> list[Event]:
        """The changes of the timeline as events, each with the previous value. A change that was undone before its step
        is not included, though `events` lists it."""
        values: dict[str, Value] = {}
        told = []
        for change in list(self.timeline):
            before = values.get(change.knob, self.experiment[change.knob])
            text = f"{change.knob} {value_text(before)} → {value_text(change.value)}"
            told.append(Event(change.step, "knob_changed", text, change.knob, before, change.value))
            values[change.knob] = change.value
        return told

    @property
    def to_come(self) -> list[Change]:
        """The planned changes that are still to come. A change at the next step has happened if there is an event for
        it; a change that had no effect has none, and is repeated."""
        step = len(self.history)
        news = [event for event in list(self.events) if event.step == step]
        branched = max((place for place, event in enumerate(news) if event.kind == "branched"), default=-1)
        # the parent made the changes whose events precede "branched"
        heard, of_own = {event.knob for event in news}, {event.knob for event in news[branched + 1 :]}
        planned = [change for change in self.planned if _still_comes(change, step, heard)]
        changes = [change for change in self.asked if _still_comes(change, step, of_own)]
        return sorted((*planned, *changes), key=_step)

    @property
    def course(self) -> tuple[Change, ...]:
        """Every change of the run: those that were made, and those still to come."""
        return tuple(sorted((*self.to_come, *self.timeline), key=_step))  # at one step, planned changes came first


def _still_comes(change: Change, step: int, heard: set[str]) -> bool:
    return change.step > step or (change.step == step and change.knob not in heard)


def recent_mean(history: History, column: str, rows: int = 50) -> float:
    """Return the mean of the last rows of a column: NaN if one of them is NaN, or if there are none."""
    values = history.column(column, len(history) - rows)
    return float(values.mean()) if len(values) else float("nan")
