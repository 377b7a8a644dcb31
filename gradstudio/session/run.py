"""A run: an experiment, the changes made to it, and everything that was measured. Plots, reports and files read this."""

from __future__ import annotations

import secrets
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Literal, NamedTuple

from gradstudio.core.events import Change, Event, Kind
from gradstudio.core.experiment import Experiment, differing, find_knob
from gradstudio.core.history import ALIKE, History, Layer, Row
from gradstudio.core.knobs import Value, format_value
from gradstudio.core.loop_order import in_words
from gradstudio.core.presets import Preset
from gradstudio.core.probes import Sample
from gradstudio.core.provenance import Provenance
from gradstudio.core.rules import Finding, Rule, all_rules
from gradstudio.core.text import number

Status = Literal["ready", "starting", "running", "paused", "finished", "nonfinite", "stopped", "failed", "interrupted"]
_step = attrgetter("step")
OVER: frozenset[Status] = frozenset({"finished", "nonfinite", "stopped", "failed", "interrupted"})


class JoinedBatch(NamedTuple):
    """How far the accumulated gradient of a step was from that of its micro-batches joined into one, by the relative norm, and whether
    that is no more than rounding."""

    step: int
    difference: float
    alike: bool


@dataclass
class Run:
    """One writer, the worker, fills it through the methods below; any thread may read its attributes at any time.

    `experiment` is what the run started with, `in_force` what holds now, `planned` the changes that will come by
    themselves, as they do in the run that it branched from, `timeline` those that were made.
    """

    preset: Preset
    experiment: Experiment
    planned: tuple[Change, ...] = ()
    compare_at: tuple[int, ...] = ()  # steps that also compute the gradient of their micro-batches joined into one
    id: str = ""
    name: str = ""  # that a person gave it
    parent: str = ""  # the run that it branched from
    parent_step: int = 0  # its first row of its own; those before it are the parent's
    ancestors: Mapping[str, int] = field(default_factory=dict)  # every run that it has rows of, the first one first, and up to which step
    at_fork: Experiment | None = None  # the values in force where it branched
    asked: tuple[Change, ...] = ()  # of a branch: changes of its own that will come by themselves too
    started: float = field(default_factory=time.time)
    status: Status = "ready"
    message: str = ""  # why it failed
    refused: bool = False  # it failed because what was asked for is not possible, such as a device that is not there
    history: History = field(default_factory=History)
    events: list[Event] = field(default_factory=list)
    timeline: list[Change] = field(default_factory=list)
    compared: list[JoinedBatch] = field(default_factory=list)
    not_compared: str = ""  # why the latest comparison could not be made
    refusals: list[Event] = field(default_factory=list)  # live changes that could not be made
    findings: dict[str, Finding] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    first_nonfinite_step: int | None = None
    provenance: Provenance | None = None  # of its first non-finite value
    probes: dict[str, list[Sample]] = field(default_factory=dict)  # by gauge: what was measured on demand; a list is never written to
    probe_problems: dict[str, str] = field(default_factory=dict)  # why the latest sample of a gauge could not be had
    accuracy: float | None = None  # on the test set, once the run is over
    seconds: float = 0.0  # spent in steps
    replayed: int | None = None  # while it is on its way to where it goes on from: the step that is reached
    differs_at: int | None = None  # the first step that came out otherwise when it was replayed: another machine, or another torch
    in_force: Experiment = field(init=False)
    forked_from: Run | None = field(default=None, init=False, repr=False)  # until it goes on
    _rules: list[Rule] = field(init=False, repr=False)
    _rules_of_every_row: list[Rule] = field(init=False, repr=False)
    _seen: History = field(init=False, repr=False)  # as much of the history as the rules were shown
    _unseen: deque[Row | None] = field(default_factory=deque, init=False, repr=False)  # the rows behind that; None where figures are all there is

    def __post_init__(self) -> None:
        self.in_force = self.experiment
        self._take_rules(all_rules())
        self._seen = self.history.before(0)
        stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(self.started))
        self.id = self.id or f"{self.preset.id}-{stamp}-{secrets.token_hex(4)}"  # two that begin in one second must never be taken for each other

    @property
    def over(self) -> bool:
        return self.status in OVER

    @property
    def title(self) -> str:
        return self.name or (f"{self.preset.title}: {self.what_changed}" if self.parent else self.preset.title)

    @property
    def own(self) -> int:
        """How many rows it made itself. A run that was taken back to a step has none before it goes on."""
        return len(self.history) - self.parent_step

    @property
    def what_changed(self) -> str:
        """What makes a branch another run than its parent, in words."""
        planned = {(change.knob, change.value) for change in self.planned}
        net = differing(self.at_fork or self.in_force, self.in_force)
        told = {change.knob: change.value for change in self.asked if change in self.timeline}
        told |= {knob: value for knob, value in net.items() if (knob, value) not in planned}
        return ", ".join(f"{knob} = {format_value(value)}" for knob, value in told.items()) or "no change"

    def owner(self, step: int) -> str:
        """The run of its line whose state before that step it shares, itself the last."""
        return next((run for run, end in self.ancestors.items() if step <= end), self.id)

    def values_at(self, step: int) -> Experiment:
        """What was in force at a step."""
        return self.experiment.with_values({change.knob: change.value for change in list(self.timeline) if change.step <= step})

    @property
    def to_come(self) -> list[Change]:
        """The changes that are still to come by themselves to the run as it stands. Of those at its next step, what has come already has
        left news; one that changed nothing does so again."""
        step = len(self.history)
        news = [event for event in list(self.events) if event.step == step]
        forked = max((place for place, event in enumerate(news) if event.kind == "branched"), default=-1)  # what is before it, the parent did
        heard, of_own = {event.knob for event in news}, {event.knob for event in news[forked + 1 :]}
        planned = [change for change in self.planned if change.step > step or (change.step == step and change.knob not in heard)]
        asked = [change for change in self.asked if change.step > step or (change.step == step and change.knob not in of_own)]
        return sorted((*planned, *asked), key=_step)

    @property
    def course(self) -> tuple[Change, ...]:
        """Every change there is to the run: those that were made, and those that are still to come."""
        return tuple(sorted((*self.to_come, *self.timeline), key=_step))  # at one step, what was planned came first

    def begin(self, layers: tuple[Layer, ...], environment: Mapping[str, str]) -> None:
        """The model stands: rows can come."""
        self.history = History(layers)
        self._seen = self.history.before(0)
        self.environment = environment
        device = environment.get("device", "")
        self.note("started", f"training on {device} with seed {self.experiment.run.seed}")

    def resume(self, rules: list[Rule], findings: dict[str, Finding], progress: Any) -> None:
        """It stands before its next step again, with its rules, and what they share, as they were then."""
        self._take_rules(rules)
        self._seen = self.history.before(len(self.history))
        self._seen.progress = progress
        self.findings = findings
        late = [event for event in self.events if event.kind == "finding"][len(findings) :]  # of steps before, but seen only after them
        self.events = [event for event in self.events if event not in late]

    def _take_rules(self, rules: list[Rule]) -> None:
        """Most rules look every few rows, and are not even asked in between."""
        self._rules, self._rules_of_every_row = rules, [rule for rule in rules if rule.every_row]

    def keep(self, keep: Callable[[list[Rule], dict[str, Finding], float, History], None]) -> None:
        """Hand on what has to be kept of the run beside its model, to go on from here another time."""
        keep(self._rules, self.findings, self.seconds, self._seen)

    def change(self, name: str, value: Value) -> None:
        """A live knob has changed, in force from the next step on. What is changed back before that step leaves no trace in the timeline."""
        before, step = self.in_force[name], len(self.history)
        self.in_force = self.in_force.with_value(name, value)
        value = self.in_force[name]
        earlier = [change.value for change in self.timeline if change.knob == name and change.step < step]
        if self.timeline and self.timeline[-1].step == step:
            self.timeline = [change for change in self.timeline if (change.step, change.knob) != (step, name)]
        if value != (earlier[-1] if earlier else self.experiment[name]):
            self.timeline.append(Change(step, name, value))
        text = f"{find_knob(name).name} {format_value(before)} → {format_value(value)}"
        self.events.append(Event(step, "knob_changed", text, name, before, value))

    def refuse(self, name: str, value: Value, why: str) -> None:
        """A live change that the device or the knob does not allow: the run goes on as it was."""
        self.events.append(Event(len(self.history), "knob_refused", why, name, self.in_force[name], value))
        self.refusals.append(self.events[-1])

    def record(self, row: Row) -> None:
        """A step was made: keep its row, the news in it, and what the rules say of it."""
        self.append(row)
        self.look()

    def append(self, row: Row) -> None:
        """Keep its row, and leave what is new in it for the next look."""
        self.history.append(row)  # first: whoever reads of an event finds its row
        self.seconds += row.step_seconds
        told = row.skipped or self.history.broken or row.joined_difference is not None or row.joined_problem
        self._unseen.append(row if told else None)

    def look(self) -> None:
        """What is new in the rows that came since the last look, and what the rules say of each as if it were the latest."""
        seen, unseen = self._seen, self._unseen
        while unseen:
            row, step, stretches = unseen.popleft(), len(seen), len(seen.loops)
            seen.grow(self.history, row is not None and row.went_nonfinite)
            if len(seen.loops) > stretches and (calls := seen.loops[-1][1].calls) != (seen.loops[-2][1].calls if stretches else ()):
                self.note("loop", in_words(calls), step)
            if row is not None:
                self._tell(row)
            problem = self.in_force.problem
            if problem.outlier_every and (batch := step + problem.skip_batches) and batch % problem.outlier_every == 0:
                self.note("outlier", f"batch replaced by noise of deviation {problem.outlier_scale:g}", step)
            if seen.broken and self.first_nonfinite_step is None and row is not None:
                self.first_nonfinite_step = step
                what = f"loss is {number(row.loss)}" if row.loss - row.loss != 0 else f"{row.nonfinite} gradient entries are NaN or Inf"
                self.note("nonfinite", what, step)
            for rule in self._rules if seen.due or seen.broken else self._rules_of_every_row:
                finding = rule.update(seen)
                if finding is None:
                    continue
                if finding.rule not in self.findings:
                    self.note("finding", finding.title, finding.first_step)
                self.findings[finding.rule] = finding

    def _tell(self, row: Row) -> None:
        """What a step says of itself beside its figures."""
        if row.joined_problem:
            self.not_compared = row.joined_problem
            self.note("compared", row.joined_problem, row.step)
        elif row.joined_difference is not None:
            alike = row.joined_difference <= ALIKE[self.in_force.precision.dtype]
            self.compared.append(JoinedBatch(row.step, row.joined_difference, alike))
            self.not_compared = ""
            text = f"accumulated gradient and joined batch differ by {number(row.joined_difference, 2)} (relative norm)"
            self.note("compared", text, row.step)
        if row.skipped:
            self.note("step_skipped", f"overflow at scale {row.scale:g}: update skipped", row.step)

    def weights_broke(self) -> None:
        """The last update left weights that are NaN or Inf, though its own row was still finite."""
        self.first_nonfinite_step = len(self.history) - 1
        self.note("nonfinite", "the update left weights that are NaN or Inf", self.first_nonfinite_step)

    def end(self, status: Status, message: str, accuracy: float | None) -> None:
        """The run is over; the last thing the worker does."""
        self.message = message
        self.accuracy = accuracy
        match status:
            case "failed":
                self.note("failed", message)
            case "stopped":
                self.note("stopped", "stopped")
            case "nonfinite" if self.first_nonfinite_step == len(self.history) - 1:
                self.note("finished", "ended by the first non-finite step")
            case _:
                self.note("finished", "finished")
        self.status = status

    def note(self, kind: Kind, text: str, step: int | None = None) -> None:
        self.events.append(Event(len(self.history) if step is None else step, kind, text))


def recent_mean(history: History, column: str, rows: int = 50) -> float:
    """Mean of the last rows of a column; NaN where one of them is, and NaN of no rows."""
    values = history.column(column, len(history) - rows)
    return float(values.mean()) if len(values) else float("nan")
