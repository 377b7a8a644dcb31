"""What a step adds to a run: its row, and the events and findings that follow from it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from gradstudio.core import plugins
from gradstudio.core.columns import COLUMNS
from gradstudio.core.diagnosis.finding import RANK, Finding
from gradstudio.core.events import Event, Kind
from gradstudio.core.history import History
from gradstudio.core.knobs import Value
from gradstudio.core.loop_calls import in_words
from gradstudio.core.row import ALIKE, Logged, Row
from gradstudio.session.record import row_news
from gradstudio.session.record.run import MOST_ALIKE, JoinedBatch, Run

_SECONDS = list(COLUMNS).index("step_seconds")
_BY_STEPS: frozenset[Kind] = frozenset({"step_skipped", "outlier", "nan_batch"})


class RowWriter:
    """Writes the rows of one run, and what the rules find in them; run_writer.py writes the rest."""

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

    def record(self, row: Row) -> None:
        """Add the row of a step, report its news, and let the rules look at it."""
        self.append(row)
        self.look()

    def append(self, row: Row) -> None:
        """Add the row of a step, and leave its news for the next look."""
        run = self.run
        row = _with_columns(row, len(run.history), self.gauges.pop(row.step, ()))
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
        """Report the news of the rows since the last look, and show each to the rules as if it were the latest."""
        watch, history = self.run.rule_watch, self.run.history
        seen, unseen, diagnosis = watch.seen, watch.unseen, watch.diagnosis
        has_bad_batches = bool(self.run.in_force.problem.outlier_every or self.run.in_force.problem.nan_every)
        lacks_notes = seen.lacks_notes_of(history)
        while unseen:
            row, step = unseen.popleft(), len(seen)
            if row is None and not lacks_notes:
                seen.grow_finite()
            else:
                self._grow(seen, row, step)
                lacks_notes = seen.lacks_notes_of(history)
            if has_bad_batches:
                self._tell_batch(step)
            if seen.broken and self.run.first_nonfinite_step is None and row is not None:
                self._diverge(row, step)
            for finding in diagnosis.look(seen):
                self.find(finding)

    def _grow(self, history: History, row: Row | None, step: int) -> None:
        """Let the rules see one more row, and report its news."""
        stretches = len(history.loops)
        history.grow(self.run.history, row is not None and row.went_nonfinite)
        if len(history.loops) > stretches and (calls := history.loops[-1][1].calls) != (
            history.loops[-2][1].calls if stretches else ()
        ):
            self.note("loop", in_words(calls), step)
        if row is not None:
            self._tell(row, step)

    def _tell_batch(self, step: int) -> None:
        """Report what happens to the batch of a step."""
        for kind, text in row_news.of_batch(self.run.in_force.problem, step):
            self.note(kind, text, step)

    def find(self, finding: Finding) -> None:
        """Store a finding in its current state; it is an event only the first time."""
        before = self.run.findings.get(finding.rule)
        if before is None:
            self.note("finding", finding.title, finding.first_step)
        self._values["findings"][finding.rule] = finding
        if self.on_finding is not None and (before is None or RANK[finding.severity] > RANK[before.severity]):
            self.on_finding(finding)

    def diverge_in_weights(self) -> None:
        """Record that the last update left weights that are NaN or Inf, though its own row was finite."""
        step = len(self.run.history) - 1
        self._values["first_nonfinite_step"] = step
        self.note("nonfinite", "the update left weights that are NaN or Inf", step)

    def _diverge(self, row: Row, step: int) -> None:
        """Record the first non-finite row."""
        self._values["first_nonfinite_step"] = step
        self.note("nonfinite", row_news.divergence(row, of_log=not self.run.history.layers), step)

    def _tell(self, row: Row, step: int) -> None:
        """Report what a row contains besides its figures."""
        if row.joined_problem:
            self._values["not_compared"] = row.joined_problem
            self.note("compared", row.joined_problem, step)
        elif row.joined_difference is not None:
            alike = row.joined_difference <= ALIKE[self.run.in_force.precision.dtype]
            self._values["compared"].append(JoinedBatch(step, row.joined_difference, alike))
            self._values["not_compared"] = ""
            self.note("compared", row_news.comparison(row.joined_difference), step)
        if row.skipped == 1:
            self.note("step_skipped", row_news.skipped(row, in_script=self.run.watched is not None), step)


def _with_columns(row: Row, place: int, gauges: tuple[tuple[str, float], ...] = ()) -> Row:
    """Return the run's row at this position with the columns of plug-ins, and these gauges of theirs."""
    columns = list(gauges)
    for name in plugins.names("columns"):
        value = plugins.attempt("columns", name, lambda name=name: float(plugins.get("columns", name)(row)))
        if value is not None:
            columns.append((name, value))
    logged = tuple(Logged(place, name, value) for name, value in columns)
    return replace(row, logged=(*row.logged, *logged)) if logged else row
