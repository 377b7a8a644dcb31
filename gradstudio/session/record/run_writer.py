"""The only way to write to a run. It is used by its worker, and by code that reads a run back from the library or names
one without a worker. A reader never needs it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from gradstudio.core.columns import COLUMNS
from gradstudio.core.diagnosis.diagnosis import Diagnosis
from gradstudio.core.diagnosis.finding import RANK, Finding
from gradstudio.core.diagnosis.script_faults import is_observed
from gradstudio.core.events import Change, Event, Kind
from gradstudio.core.experiment import find_knob
from gradstudio.core.gauge_samples import Sample, add_sample
from gradstudio.core.history import History
from gradstudio.core.knobs import Value, value_text
from gradstudio.core.older_meanings import differences
from gradstudio.core.provenance import Provenance
from gradstudio.core.row import ALIKE, Layer, Row
from gradstudio.core.unknown import UNKNOWN
from gradstudio.session.record import row_news, row_reports
from gradstudio.session.record.rule_watch import RuleWatch
from gradstudio.session.record.run import MOST_ALIKE, JoinedBatch, Run, Status

_SECONDS = list(COLUMNS).index("step_seconds")
_BY_STEPS: frozenset[Kind] = frozenset({"step_skipped", "outlier", "nan_batch"})
# What a later reading of a run replaces; its rows come on top of the existing ones.
_GROWN = (
    "name", "message", "refused", "environment", "differs_at", "seconds", "events", "timeline", "refusals", "compared",
    "not_compared", "findings", "first_nonfinite_step", "provenance", "accuracy", "in_force",
)  # fmt: skip


class RunWriter:
    """Writes one run. One thread at a time may use it: the run's worker, until it has called `end`."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self._values = vars(run)  # a run has no setters
        self.gauges: dict[int, tuple[tuple[str, float], ...]] = {}  # of plug-ins, by step, until their rows come
        self.on_finding: Callable[[Finding], object] | None = None  # called if one is new, or has become worse
        self._counts: dict[Kind, int] = {}  # events of the kinds in _BY_STEPS; a missing kind was not counted yet

    def note(self, kind: Kind, text: str, step: int | None = None, value: Value | None = None) -> None:
        """Add an event, by default at the next step. Of the kinds that steps cause by themselves, only the first
        MOST_ALIKE are kept: a run of a hundred million steps may have that many."""
        if kind in _BY_STEPS:
            if kind not in self._counts:
                self._counts[kind] = sum(event.kind == kind for event in self.run.events)
            if self._counts[kind] >= MOST_ALIKE:
                return
            self._counts[kind] += 1
            if self._counts[kind] == MOST_ALIKE:
                text += "; later ones are not listed"
        self._values["events"].append(Event(len(self.run.history) if step is None else step, kind, text, value=value))

    def rename(self, name: str) -> None:
        """Name the run; with "" its title shows what changed."""
        self._values["name"] = name

    # ---- progress

    def queue(self) -> None:
        """Record that a worker has accepted the run. One that was stopped continues."""
        if self.run.status == "stopped":
            self.note("resumed", "goes on")
        self._values["status"] = "starting"

    def begin(self, layers: tuple[Layer, ...], environment: Mapping[str, str]) -> None:
        """Make room for rows: the model has been built."""
        history = History(layers)
        watch = RuleWatch(self.run.rule_watch.diagnosis, history.before(0))
        self._values.update(history=history, rule_watch=watch, environment=environment)
        device = environment.get("device", "")
        if self.run.watched is not None:
            watched = f"a script that trains on {device} is watched"
            self.note("started", "the log begins" if self.run.watched.log else watched)
            return
        self.note("started", f"training on {device} with seed {self.run.experiment.run.seed}")
        for text in differences(self.run.preset.written_in, self.run.experiment, self.run.course):
            self.note("notice", text)

    def go_on(self, environment: Mapping[str, str]) -> None:
        """Record that the run continues after its last row, in this environment."""
        self._values["environment"] = environment

    def take_rows_before(self, environment: Mapping[str, str]) -> None:
        """Let the rules see the rows that a run continues from. `environment`: the environment that it continues in."""
        self.go_on(environment)
        self.run.rule_watch.unseen.extend([None] * len(self.run.history))
        self.look()

    def need_not_fall(self, why: str) -> None:
        """Record that the loss of this run need not fall; `why` is a sentence."""
        self.run.rule_watch.diagnosis.progress.by_accuracy = True
        self.note("notice", why)

    def set_status(self, status: Status) -> None:
        """Set the status, without an event."""
        self._values["status"] = status

    def step_begins(self, step: int) -> None:
        """Record which step is being made from now on."""
        self._values["step_now"] = (step, time.monotonic())

    def step_ends(self) -> None:
        """Record that no step is being made."""
        self._values["step_now"] = None

    def unheard(self, seconds: float) -> None:
        """Record for how many seconds the training process has been silent; 0 if it responds."""
        self._values["unheard"] = seconds

    def at_line(self, text: str) -> None:
        """Record the current line of a studio file in a step that takes long, as a sentence."""
        self._values["at_line"] = text

    def identify(self, run_id: str, started: float) -> None:
        """Adopt the id of the same run in another process."""
        self._values.update(id=run_id, started=started)

    def refuse_to_train(self) -> None:
        """Record that the run fails because the request is impossible here."""
        self._values["refused"] = True

    def end(self, status: Status, message: str, accuracy: float | None) -> None:
        """Record how the run ended; the last call by its worker."""
        run = self.run
        self._values.update(message=message, accuracy=accuracy)
        if run.watched is not None:  # others are judged by their final accuracy, or may continue
            self.look()
            for finding in run.rule_watch.diagnosis.look_at_the_rest(run.history):
                self.find(finding)
        known = UNKNOWN if accuracy is None and run.watched is not None else accuracy
        if status == "finished" and known is not None and len(run.history):
            for finding in run.rule_watch.diagnosis.conclude(run.history, known):
                self.find(finding)
        match status:
            case "failed":
                self.note("failed", message)
            case "stopped":
                self.note("stopped", "stopped")
            case "nonfinite" if run.first_nonfinite_step == len(run.history) - 1:
                self.note("finished", "ended, as the run diverged")
            case _:
                self.note("finished", "finished")
        self._values["status"] = status

    def catch_up(self, later: Run) -> None:
        """Copy what a later reading of the same run has; existing rows stay."""
        run, rows = self.run, len(self.run.history)
        if len(later.history) > rows or run.step_now is None:
            self.step_begins(len(later.history))
        if rows == 0 and run.history.layers != later.history.layers:
            self._values["history"] = later.history
        else:
            run.history.catch_up(later.history)
        for name in _GROWN:
            self._values[name] = getattr(later, name)
        self._values["status"] = later.status  # last: a reader that sees the end sees all of it

    # ---- rows

    def record(self, row: Row) -> None:
        """Add the row of a step, report its news, and let the rules look at it."""
        self.append(row)
        self.look()

    def append(self, row: Row) -> None:
        """Add the row of a step, and leave its news for the next look."""
        run = self.run
        row = row_news.with_columns(row, len(run.history), self.gauges.pop(row.step, ()))
        run.history.append(row)  # first: a reader of an event must find its row
        self._values["seconds"] += row.step_seconds
        told = row.skipped == 1 or run.history.broken or row.joined_difference is not None or row.joined_problem
        run.rule_watch.unseen.append(row if told else None)

    def append_finite(self, columns: np.ndarray, layers: np.ndarray) -> None:
        """Add the rows of several steps without news: (rows, columns) and (metrics, rows, layers)."""
        run = self.run
        run.history.extend_finite(columns, layers)
        self._values["seconds"] += float(columns[:, _SECONDS].sum())
        run.rule_watch.unseen.extend([None] * len(columns))

    def look(self) -> None:
        """Report the news of the rows since the last look, and let the rules see them."""
        row_reports.look(self)

    def find(self, finding: Finding) -> None:
        """Store a finding in its current state; it is an event only the first time."""
        before = self.run.findings.get(finding.rule)
        if before is not None and is_observed(before) and not is_observed(finding):
            # a watch has seen more of it than the rows tell
            finding = replace(before, severity=finding.severity, last_step=finding.last_step, layers=finding.layers)
        if before is None:
            self.note("finding", finding.title, finding.first_step)
        self._values["findings"][finding.rule] = finding
        if self.on_finding is not None and (before is None or RANK[finding.severity] > RANK[before.severity]):
            self.on_finding(finding)

    def diverge(self, step: int, text: str) -> None:
        """Record the first step that is not finite, and what is not."""
        self._values["first_nonfinite_step"] = step
        self.note("nonfinite", text, step)

    def diverge_in_weights(self) -> None:
        """Record that the last update left weights that are NaN or Inf, though its own row was finite."""
        self.diverge(len(self.run.history) - 1, "the update left weights that are NaN or Inf")

    def compare(self, step: int, difference: float | None, problem: str) -> None:
        """Record the comparison of a step's accumulated gradient with that of one large batch, or why there is none."""
        if problem:
            self._values["not_compared"] = problem
            self.note("compared", problem, step)
        elif difference is not None:
            alike = difference <= ALIKE[self.run.in_force.precision.dtype]
            self._values["compared"].append(JoinedBatch(step, difference, alike))
            self._values["not_compared"] = ""
            self.note("compared", row_news.comparison(difference), step)

    # ---- rewinding

    def inherit(self) -> None:
        """Report the news of the rows that a branch shares with its parent. A parent that was still training when the
        branch was made may not have looked at its latest rows, so this is repeated before the branch trains."""
        run, parent, step = self.run, self.run.branched_from, self.run.parent_step
        if parent is None:
            return
        self._counts.clear()
        RunWriter(parent).inherit()  # it may be a branch that has never trained itself
        before = [event for event in list(parent.events) if event.step < step]
        self._values.update(
            events=[*before, *(event for event in run.events if event.step >= step)],
            compared=[comparison for comparison in list(parent.compared) if comparison.step < step],
        )

    def release_parent(self) -> None:
        """Release the parent, once the branch has copied everything that it needs."""
        self._values["branched_from"] = None

    def replay(self, step: int | None) -> None:
        """Record which step a rewind has reached; None once it is done."""
        self._values["replayed"] = step

    def differs(self, step: int) -> None:
        """Record that a rewind replayed this step with another loss; only the first such step is kept."""
        if self.run.differs_at is None:
            self._values["differs_at"] = step

    def resume(self, diagnosis: Diagnosis, findings: dict[str, Finding]) -> None:
        """Reset the diagnosis to its state before the run's next step."""
        history = self.run.history.before(len(self.run.history))
        # about earlier steps, but reported after the next step
        late = [event for event in self.run.events if event.kind == "finding"][len(findings) :]
        events = [event for event in self.run.events if event not in late]
        self._counts.clear()
        self._values.update(rule_watch=RuleWatch(diagnosis, history), findings=findings, events=events)

    # ---- knobs

    def change(self, name: str, value: Value) -> None:
        """Change a live knob from the next step on, to a value that the trainer has validated. A change that is undone
        before that step leaves no trace in the timeline."""
        run, step = self.run, len(self.run.history)
        before, in_force = run.in_force[name], run.in_force.with_checked(name, value)
        timeline = list(run.timeline)
        earlier = [change.value for change in timeline if change.knob == name and change.step < step]
        if timeline and timeline[-1].step == step:
            timeline = [change for change in timeline if (change.step, change.knob) != (step, name)]
        if value != (earlier[-1] if earlier else run.experiment[name]):
            timeline.append(Change(step, name, value))
        self._values.update(in_force=in_force, timeline=timeline)
        text = f"{find_knob(name).name} {value_text(before)} → {value_text(value)}"
        self._values["events"].append(Event(step, "knob_changed", text, name, before, value))

    def put_in_force(self, values: Mapping[str, Value]) -> None:
        """Copy the values in force of a run that another process trains; it has validated them."""
        in_force = self.run.in_force
        for name, value in values.items():
            in_force = in_force.with_checked(name, value)
        self._values["in_force"] = in_force

    def refuse(self, name: str, value: Value, why: str) -> None:
        """Record a live change that the device or the knob does not allow; the run continues unchanged."""
        refusal = Event(len(self.run.history), "knob_refused", why, name, self.run.in_force[name], value)
        self._values["events"].append(refusal)
        self._values["refusals"].append(refusal)

    def explain(self, provenance: Provenance | None) -> None:
        """Record where the first non-finite value was born."""
        self._values["provenance"] = provenance

    def add_gauge_sample(self, name: str, sample: Sample) -> None:
        """Add a sample of an on-demand gauge."""
        self._values["gauge_samples"][name] = add_sample(self.run.gauge_samples.get(name, []), sample)
        self._values["gauge_problems"].pop(name, None)

    def fail_gauge(self, name: str, why: str) -> None:
        """Record why a gauge could not be measured."""
        self._values["gauge_problems"][name] = why
