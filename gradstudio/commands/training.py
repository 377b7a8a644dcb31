"""`gradstudio run` trains an experiment; `gradstudio script` prints it as a program."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple, NoReturn

import typer

from gradstudio.commands import exit_codes
from gradstudio.commands.agreement import Trust, agree
from gradstudio.commands.options import (
    Assignments,
    Changes,
    Compared,
    Device,
    Json,
    LibraryFile,
    Out,
    Quiet,
    Report,
    Seed,
    Steps,
    TryFixes,
    formats,
    library_file,
)
from gradstudio.commands.places_command import Keep, PlaceName, backend_at
from gradstudio.commands.request import compared_steps, read_request
from gradstudio.commands.terminal import WrongRequest, complain, complain_at_length, say, say_file, say_json, table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gradstudio.core.experiment import Experiment
    from gradstudio.session.library.writer import LibraryWriter
    from gradstudio.session.record.run import Run
    from gradstudio.session.running.backend import AnyWorker, RunFamily
    from gradstudio.session.running.remedy_trial import Trial

LAST_WRITING = 30.0  # seconds allowed for the library to write the last rows
HURRIED_WRITING = 0.5  # likewise, if a second Ctrl+C ends the program
NOTHING_MADE = "interrupted before step {} was reached again: nothing new was measured"


class OutputOptions(NamedTuple):
    """The files to write for a run, and how to report its outcome."""

    out: Path | None
    report: str
    library: Path | None
    as_json: bool
    quiet: bool
    try_fixes: bool = False

    def check(self) -> list[str]:
        """Return the formats of the report; WrongRequest or OutputError, before anything is trained, if they or the
        folder are impossible."""
        from gradstudio.session.files import output

        reports = formats("--report", self.report, output.REPORTS)
        if self.out:
            output.check_folder(self.out)
        return reports

    @property
    def progress(self) -> bool:
        return not self.quiet and sys.stderr.isatty()


Source = Annotated[
    str,
    typer.Argument(
        metavar="SOURCE",
        help="A preset's id, a TOML file, a studio file (FILE.py), or a run to repeat: its whole id, its folder, "
        "or last.",
    ),
]


def run(
    source: Source,
    assignments: Assignments = None,
    changes: Changes = None,
    compare: Compared = None,
    steps: Steps = None,
    seed: Seed = None,
    device: Device = None,
    out: Out = None,
    report: Report = "",
    try_fixes: TryFixes = False,
    library: LibraryFile = None,
    as_json: Json = False,
    quiet: Quiet = False,
    trust: Trust = False,
    place: PlaceName = "",
    keep: Keep = False,
) -> None:
    """Train without a window. Exit code: 0 finished, 1 failed, 2 wrong request, 3 diverged, 4 critical finding, 130
    interrupted."""
    from gradstudio.session.record.run import Run
    from gradstudio.session.running.backend import LocalBackend

    if keep and not place:
        raise WrongRequest("--keep goes with --place: it is about the connection to it")
    backend = backend_at(place, keep=keep) if place else LocalBackend()
    request = read_request(
        source, library, assignments, changes, {"run.steps": steps, "run.seed": seed, "run.device": device},
        beginning=False
    )  # fmt: skip
    compare_at = compared_steps(compare, 0, request.experiment.run.steps)
    outputs = OutputOptions(out, report, library, as_json, quiet, try_fixes)
    outputs.check()
    if try_fixes:
        from gradstudio.core import ranks_allowed

        ranks_allowed.check_alone(request.experiment, "no fixes are tried")
    agree(request.experiment, trusted=trust)
    if not place:
        hint_at_threads(request.threads, outputs)
        _hint_at_format(request.experiment, outputs)
    try:
        carry_out(Run(request.preset, request.experiment, request.timeline, compare_at), outputs, backend.family())
    finally:
        backend.close()


def hint_at_threads(of_run: str, outputs: OutputOptions) -> None:
    """Warn if the run that is repeated was made with another number of CPU threads."""
    from gradstudio.core import threads

    if of_run not in ("", threads.chosen()) and not outputs.quiet:
        complain(
            f"the run was made with {of_run} CPU threads, now it has {threads.chosen()}: GRADSTUDIO_THREADS={of_run} "
            "repeats it to the last bit"
        )


def _hint_at_format(experiment: Experiment, outputs: OutputOptions) -> None:
    """Warn if the number format makes the steps of a run far slower here."""
    from gradstudio.session.words.knob_hints import slow_format

    if slow_format(experiment, "cpu") and not outputs.quiet:
        from gradstudio.session.machine.device_search import device_of

        if why := slow_format(experiment, device_of(experiment)):
            complain(why)


def carry_out(record: Run, outputs: OutputOptions, family: RunFamily) -> NoReturn:
    """Train a run, store it, write its files, report its outcome, and end with its exit code."""
    from gradstudio.session.files import output

    reports = outputs.check()
    folder = outputs.out or (Path(record.id) if reports else None)
    if folder:
        output.check_folder(folder)
        output.check_files(record, folder)
    of_parent = record.environment
    failure, kept = train_and_keep(record, outputs, family)
    if record.differs_at is not None and not outputs.quiet:
        complain(_differs(record, of_parent))
    for event in record.events:
        if event.kind == "notice" and event.step >= record.parent_step and not outputs.quiet:
            complain(event.text)
    begun = not record.never_began and not (record.parent and not record.own)
    if not begun:
        folder = None
    early = outputs.as_json or bool(folder and reports)  # for the report
    fixes = _try_fixes(record, outputs, family) if early else []
    unwritten = ""
    if folder:
        try:
            output.write(record, folder, reports, fixes={record.id: fixes})
        except output.OutputError as fault:  # such as a full disk; the outcome is reported all the same
            folder, unwritten = None, str(fault)
    if record.status == "failed":
        if failure and os.environ.get("GRADSTUDIO_DEBUG"):
            complain_at_length(failure)
        complain(f"error: {record.message}")
    _say_outcome(record, outputs, fixes, begun=begun, kept=kept)
    if folder and not outputs.quiet:
        (complain if outputs.as_json else say)(f"files in {folder}")
    if not (outputs.as_json or outputs.quiet):
        _say_fixes(record, fixes if early else _try_fixes(record, outputs, family), kept)
    if unwritten:
        complain(f"error: {unwritten}")
    raise typer.Exit(exit_codes.FAILED if unwritten else exit_codes.of_run(record))


def train_and_keep(record: Run, wanted: OutputOptions, family: RunFamily) -> tuple[str, bool]:
    """Train a run while the library writes it. Return the traceback of a failure, and whether the run was stored."""
    from gradstudio.session.library.writer import LibraryWriter
    from gradstudio.session.running import foreground, interrupts

    writer = LibraryWriter(library_file(wanted.library))
    failure, kept = "", False

    def keep(worker: AnyWorker) -> None:
        writer.follow(record, family.snapshots, worker.on_request, worker.show_waiting)

    with interrupts.stopping(lambda: None, lambda: writer.close(HURRIED_WRITING)) as signals:
        try:
            failure = foreground.train(record, progress=wanted.progress, began=keep, family=family)
        finally:
            kept = _close(writer)
    if signals.interrupted and record.status in ("finished", "nonfinite"):  # there was nothing left to stop
        raise KeyboardInterrupt
    return failure, kept


def _say_outcome(record: Run, outputs: OutputOptions, fixes: list[Trial], *, begun: bool, kept: bool) -> None:
    """Print the outcome of a run, as JSON or in words."""
    from gradstudio.session.files import summary
    from gradstudio.session.running import remedy_trial
    from gradstudio.session.words.story import in_words

    if outputs.as_json:
        tried = {"fixes": remedy_trial.as_json(fixes)} if outputs.try_fixes else {}
        say_json(summary.summarize(record) | tried)
    elif record.status == "stopped" and not begun:
        complain(NOTHING_MADE.format(record.parent_step))
    elif not outputs.quiet and record.status != "failed":
        say(in_words(record) + (f"\n\nkept as {record.id}" if kept else ""))


def _try_fixes(record: Run, wanted: OutputOptions, family: RunFamily) -> list[Trial]:
    """Return the results of the fixes for a run that diverged or has a critical finding, the best first; empty if fixes
    were not requested or there is nothing to fix."""
    from gradstudio.session.running import fix_trials, foreground

    healable = record.status in ("finished", "nonfinite") and fix_trials.broken(record)
    if not (wanted.try_fixes and healable):
        return []
    trials = family.trials(record)
    foreground.wait_for(trials, progress=wanted.progress)
    if trials.failure and os.environ.get("GRADSTUDIO_DEBUG"):
        complain_at_length(trials.failure)
    return trials.best_first


def _say_fixes(record: Run, fixes: list[Trial], kept: bool) -> None:
    from gradstudio.session.running.remedy_trial import acts_live
    from gradstudio.session.words.fix_results import describe_result

    if not fixes:
        return
    say("\nfixes tried on the same seed and batches:")
    rows = []
    for fix in fixes:
        steps = f"{fix.from_step}–{fix.from_step + fix.steps - 1}" if fix.steps else "–"
        broke = "" if fix.broke_at is None else f" at {fix.broke_at}"
        rows.append((fix.remedy or "(no change)", f"{fix.outcome}{broke}", steps, describe_result(fix) or "–"))
    table(("Fix", "Outcome", "Steps", "Reached"), rows, headed=True)
    if kept and (best := fixes[0]).outcome == "held" and best.remedy:
        how = f"branch {record.id} --step {best.from_step}" if acts_live(best.remedy) else f"run {record.id}"
        say(f"\nto go on with the first: gradstudio {how}{''.join(f' --set {part}' for part in best.remedy.split())}")


def _differs(record: Run, of_parent: Mapping[str, str]) -> str:
    """Return the step from which this machine does not repeat the parent's steps to the last bit, and the likely
    cause."""
    other = [
        f"{name} {of_parent.get(name)}, here {here}"
        for name in ("device_name", "processor", "threads", "torch")
        if of_parent.get(name) != (here := record.environment.get(name))
    ]
    why = (
        "; ".join(other)
        or "processor, threads and torch are the same, so the device adds up in another order each time"
    )
    return (
        f"from step {record.differs_at} on, this machine does not repeat the steps before the branch to the last bit: "
        f"{why}"
    )


def _close(writer: LibraryWriter) -> bool:
    """Wait until the run is written, and return whether it is. A failure is one line on stderr, and no error."""
    from gradstudio.core.text import one_line

    kept = writer.close(LAST_WRITING)
    if writer.notice:
        complain(one_line(writer.notice))
    if not kept:
        complain(f"not kept: {one_line(writer.problem or f'the run library {writer.path} takes too long')}")
    return kept


def script(
    source: Annotated[str, typer.Argument(metavar="SOURCE|RUN", help="A preset's id, a TOML file, a folder that `run "
        "--out` has written, or a run "
                                          "of the library: its id, the beginning of one, or last.")],
    assignments: Assignments = None,
    changes: Changes = None,
    steps: Steps = None,
    seed: Seed = None,
    device: Device = None,
    library: LibraryFile = None,
) -> None:  # fmt: skip
    """Print the plain PyTorch program of an experiment or a run. It needs only torch and numpy, and prints the run's
    step, loss and gradient norm."""
    from gradstudio.core import threads
    from gradstudio.program import script as program

    request = read_request(
        source, library, assignments, changes, {"run.steps": steps, "run.seed": seed, "run.device": device},
        beginning=True
    )  # fmt: skip
    of_run = request.threads or threads.chosen()
    say_file(program(request.experiment, request.timeline, title=request.preset.title, threads=of_run).rstrip("\n"))
