"""What the rows of a run report: the events and findings that follow from them."""

from __future__ import annotations

from typing import Protocol

from gradstudio.core.diagnosis.finding import Finding
from gradstudio.core.events import Kind
from gradstudio.core.history import History
from gradstudio.core.loop_calls import in_words
from gradstudio.core.row import Row
from gradstudio.session.record import row_news
from gradstudio.session.record.run import Run


class ReportWriter(Protocol):
    """The interface of the run's writer that the reports go to."""

    run: Run

    def note(self, kind: Kind, text: str, step: int | None = None) -> None: ...
    def find(self, finding: Finding) -> None: ...
    def diverge(self, step: int, text: str) -> None: ...
    def compare(self, step: int, difference: float | None, problem: str) -> None: ...


def look(writer: ReportWriter) -> None:
    """Report the news of the rows since the last look, and show each to the rules as if it were the latest."""
    run = writer.run
    watch = run.rule_watch
    seen, unseen, diagnosis = watch.seen, watch.unseen, watch.diagnosis
    has_bad_batches = bool(run.in_force.problem.outlier_every or run.in_force.problem.nan_every)
    lacks_notes = seen.lacks_notes_of(run.history)
    while unseen:
        row, step = unseen.popleft(), len(seen)
        if row is None and not lacks_notes:
            seen.grow_finite()
        else:
            _grow(writer, seen, row, step)
            lacks_notes = seen.lacks_notes_of(run.history)
        if has_bad_batches:
            for kind, text in row_news.of_batch(run.in_force.problem, step):
                writer.note(kind, text, step)
        if seen.broken and run.first_nonfinite_step is None and row is not None:
            writer.diverge(step, row_news.divergence(row, of_log=not run.history.layers))
        for finding in diagnosis.look(seen):
            writer.find(finding)


def _grow(writer: ReportWriter, history: History, row: Row | None, step: int) -> None:
    """Let the rules see one more row, and report its news."""
    stretches = len(history.loops)
    history.grow(writer.run.history, row is not None and row.went_nonfinite)
    if len(history.loops) > stretches and (calls := history.loops[-1][1].calls) != (
        history.loops[-2][1].calls if stretches else ()
    ):
        writer.note("loop", in_words(calls), step)
    if row is None:
        return
    writer.compare(step, row.joined_difference, row.joined_problem)
    if row.skipped == 1:
        writer.note("step_skipped", row_news.skip_reason(row, in_script=writer.run.watched is not None), step)
