"""The reports about the runs of a process on stderr, or as the exception that the script asked for."""

from __future__ import annotations

from collections.abc import Callable

from gradstudio.core.text import one_line, shorten
from gradstudio.watching.births.loss_code import BEFORE_THE_LOSS, OF_ANOTHER
from gradstudio.watching.births.skipped_batches import SkippedBatch
from gradstudio.watching.hooks.guard import Stop, say
from gradstudio.watching.recording.birth_lines import (
    NO_UPDATE,
    act,
    birth_lines,
    skipped_lines,
    unknown_lines,
    update_lines,
)
from gradstudio.watching.recording.watched_run import Outcome, WatchedRun
from gradstudio.watching.steps.measured_step import MeasuredStep

LONGEST_NAME = 60  # characters of a run's title before a line


class Reports:
    """Reports what happens in a run. `with_titles`: whether others train too, as in a GAN, so that a report names its
    run."""

    def __init__(self, with_titles: Callable[[], bool]) -> None:
        self._with_titles = with_titles

    def on_outcome(self, run: WatchedRun, outcome: Outcome) -> None:
        """Report the outcome of a step, or raise it as a FloatingPointError, as requested."""
        policy = run.observer.options.on_nonfinite
        if outcome.said and policy != "ignore":
            say(self._with_title(run, outcome.said))
        if (made := outcome.broken) is not None:
            no_update = made.left_out and not outcome.has_diverged
            act(self._with_file(run, [*self.lines(run, made), *[NO_UPDATE] * no_update]), policy, say)

    def on_outcome_of_ranks(self, run: WatchedRun, outcome: Outcome) -> None:
        """Report the outcome of a step of all ranks."""
        if outcome.has_diverged and run.observer.options.on_nonfinite == "explain":
            self.on_outcome(run, outcome)

    def on_last(self, run: WatchedRun, made: MeasuredStep) -> None:
        """Report a step after which the script has ended: it can no longer be stopped."""
        if run.observer.options.on_nonfinite != "ignore":
            act(self._with_file(run, self.lines(run, made)), "explain", say)

    def stop(self, run: WatchedRun, made: MeasuredStep) -> None:
        """Raise the report of a step in the script, before its update."""
        lines = self._with_file(run, [*self.lines(run, made), NO_UPDATE])
        raise Stop(FloatingPointError("\n".join(lines)))

    def on_skipped(self, run: WatchedRun, skipped: SkippedBatch) -> None:
        """Report a batch that the script has skipped."""
        if run.observer.options.on_nonfinite != "ignore":
            head, *lines = skipped_lines(skipped, run.numbers.own(run.observer.next_step))
            for line in (self._with_title(run, head), *lines):
                say(line)

    def on_critical(self, run: WatchedRun, title: str) -> None:
        """Report a critical finding, if a crash file is written for it."""
        if run.crash.may_be_written and run.crash.write(title, "critical"):
            say(self._with_title(run, f"critical: {title}"))
            say(run.crash.line)

    def lines(self, run: WatchedRun, made: MeasuredStep) -> list[str]:
        """Return the report about a non-finite step."""
        (provenance, unknown), every = made.birth, run.numbers.every
        own, row = run.numbers.own(made.step), made.row()
        if provenance is not None:
            lines, of_weights = birth_lines(provenance, own, row), provenance.phase == "update"
        else:
            lines = unknown_lines(unknown or "no pass of a model was seen", own, row)
            of_weights = BEFORE_THE_LOSS in unknown and OF_ANOTHER not in unknown
        if of_weights and run.run is not None and every == 1:
            lines += update_lines(run.run.history, run.numbers.row_of(made.step))
        if every > 1 and run.run is not None and run.run.first_nonfinite_step is not None:
            lines[0] += f"; step {run.run.first_nonfinite_step:,} of the run, which counts rows"
        lines[0] = self._with_title(run, lines[0])
        return lines

    def _with_file(self, run: WatchedRun, lines: list[str]) -> list[str]:
        """Write a crash file, unless a run of several ranks already has one, and add the line that says where it is."""
        has_file = run.joined is not None and "not finite" in run.crash.kinds
        return [*lines, run.crash.line] if has_file or run.crash.write(lines[0], "not finite") else lines

    def _with_title(self, run: WatchedRun, line: str) -> str:
        if run.run is None or not self._with_titles():
            return line
        return f"{shorten(one_line(run.run.title), LONGEST_NAME)}: {line}"
