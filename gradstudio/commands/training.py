"""`run` and `script`: an experiment, trained here or printed as a program."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple, NoReturn

import typer

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
    compared_steps,
    formats,
    library_file,
    requested,
)
from gradstudio.commands.terminal import complain, say, say_file, say_json, table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gradstudio.session.library.keeper import Keeper
    from gradstudio.session.remedies import Trial
    from gradstudio.session.run import Run
    from gradstudio.session.snapshots import Snapshots

LAST_WRITING = 30.0  # seconds that the library may take for what it has not written yet
NOTHING_MADE = "interrupted before step {} was reached again: nothing new was measured"


class Wanted(NamedTuple):
    """What is to be made of a run, and what is to be said of it."""

    out: Path | None
    report: str
    library: Path | None
    as_json: bool
    quiet: bool
    try_fixes: bool = False

    def check(self) -> list[str]:
        """The formats of the report; WrongRequest or OutputError where what is wanted cannot be, before anything is trained."""
        from gradstudio.session import output

        reports = formats("--report", self.report, output.REPORTS)
        if self.out:
            output.check_folder(self.out)
        return reports

    @property
    def progress(self) -> bool:
        return not self.quiet and sys.stderr.isatty()


def run(
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help="A preset's id, a TOML file, or a run to repeat: its whole id, its folder, or last.")
    ],
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
) -> None:
    """Train without a window. Exit code: 0 finished, 1 failed, 2 wrong request, 3 non-finite, 4 critical finding, 130 interrupted."""
    from gradstudio.session.run import Run

    request = requested(
        source, library, assignments, changes, {"run.steps": steps, "run.seed": seed, "run.device": device}, beginning=False
    )  # fmt: skip
    compare_at = compared_steps(compare, 0, request.experiment.run.steps)
    wanted = Wanted(out, report, library, as_json, quiet, try_fixes)
    wanted.check()
    hint_at_threads(request.threads, wanted)
    carry_out(Run(request.preset, request.experiment, request.timeline, compare_at), wanted)


def hint_at_threads(of_run: str, wanted: Wanted) -> None:
    """Say it where a run that was made before had another number of CPU threads."""
    from gradstudio.core import threads

    if of_run not in ("", threads.chosen()) and not wanted.quiet:
        complain(f"it ran with {of_run} CPU threads, and now runs with {threads.chosen()}: GRADSTUDIO_THREADS={of_run} repeats it to the last bit")


def carry_out(record: Run, wanted: Wanted, snapshots: Snapshots | None = None) -> NoReturn:
    """Train a run, keep it, write its files, say what came of it, and end with its exit code."""
    from gradstudio.session import foreground, output, summary
    from gradstudio.session.library.keeper import Keeper
    from gradstudio.session.snapshots import Snapshots

    reports = wanted.check()
    snapshots = Snapshots() if snapshots is None else snapshots
    folder = wanted.out or (Path(record.id) if reports else None)
    if folder:
        output.check_folder(folder)
    of_parent = record.environment
    keeper = Keeper(library_file(wanted.library))
    keeper.follow(record, snapshots)
    try:
        failure = foreground.train(record, progress=wanted.progress, snapshots=snapshots)
    finally:
        kept = _close(keeper)
    if record.differs_at is not None and not wanted.quiet:
        complain(_differs(record, of_parent))
    begun = not record.refused and not (record.parent and not record.own)
    if folder and begun:
        output.write(record, folder, reports)
    if record.status == "failed":
        if failure and os.environ.get("GRADSTUDIO_DEBUG"):
            complain(failure)
        complain(f"error: {record.message}")
    if wanted.as_json:
        from gradstudio.session import remedies

        say_json(summary.summarize(record) | ({"fixes": remedies.as_json(_tried(record, wanted, snapshots))} if wanted.try_fixes else {}))
    elif record.status == "stopped" and not begun:
        complain(NOTHING_MADE.format(record.parent_step))
    elif not wanted.quiet and record.status != "failed":
        from gradstudio.session.report.story import in_words

        say(in_words(record) + (f"\n\nkept as {record.id}" if kept else ""))
    if folder and begun and not wanted.quiet:
        (complain if wanted.as_json else say)(f"files in {folder}")
    if wanted.try_fixes and not (wanted.as_json or wanted.quiet):
        _say_fixes(record, _tried(record, wanted, snapshots), kept)
    raise typer.Exit(summary.exit_code(record))


def _tried(record: Run, wanted: Wanted, snapshots: Snapshots | None) -> list[Trial]:
    """What came of each fix of a run that broke or is not sound, the best first; nothing where there is nothing to heal."""
    from gradstudio.session import foreground, remedies

    if record.status not in ("finished", "nonfinite") or snapshots is None or not remedies.broken(record):
        return []
    trials = remedies.Trials(record, snapshots)
    foreground.wait_for(trials, progress=wanted.progress)
    if trials.failure and os.environ.get("GRADSTUDIO_DEBUG"):
        complain(trials.failure)
    return trials.ranked


def _say_fixes(record: Run, fixes: list[Trial], kept: bool) -> None:
    from gradstudio.session.remedies import acts_live

    if not fixes:
        return
    say("\nfixes tried on the same seed and batches:")
    rows = []
    for fix in fixes:
        steps = f"{fix.from_step}–{fix.from_step + fix.steps - 1}" if fix.steps else "–"
        broke = "" if fix.broke_at is None else f" at {fix.broke_at}"
        rows.append((fix.remedy or "(no change)", f"{fix.outcome}{broke}", steps, fix.reached or "–"))
    table(("Fix", "Outcome", "Steps", "Reached"), rows, headed=True)
    best = fixes[0]
    if kept and best.outcome == "held" and best.remedy:
        how = f"branch {record.id} --step {best.from_step}" if acts_live(best.remedy) else f"run {record.id}"
        say(f"\nto go on with the first: gradstudio {how}{''.join(f' --set {part}' for part in best.remedy.split())}")


def _differs(record: Run, of_parent: Mapping[str, str]) -> str:
    """From where on this machine does not make the steps again that a branch has from its parent, and what may be the cause."""
    facts = ("device_name", "processor", "threads", "torch")
    other = [f"{name} {of_parent.get(name)}, here {here}" for name in facts if of_parent.get(name) != (here := record.environment.get(name))]
    why = "; ".join(other) or "though processor, threads and torch are the same: its device adds up in another order each time"
    return f"from step {record.differs_at} on, the steps before the branch are not repeated to the last bit here: {why}"


def _close(keeper: Keeper) -> bool:
    """Wait until the run is written; what keeps it from that is one line, and no fault of the run."""
    from gradstudio.core.text import one_line

    kept = keeper.close(LAST_WRITING)
    if keeper.notice:
        complain(one_line(keeper.notice))
    if not kept:
        complain(f"not kept: {one_line(keeper.problem or f'the run library {keeper.path} takes too long')}")
    return kept


def script(
    source: Annotated[str, typer.Argument(metavar="SOURCE|RUN", help="A preset's id, a TOML file, a folder that `run --out` has written, or a run "
                                          "of the library: its id, the beginning of one, or last.")],
    assignments: Assignments = None,
    changes: Changes = None,
    steps: Steps = None,
    seed: Seed = None,
    device: Device = None,
    library: LibraryFile = None,
) -> None:  # fmt: skip
    """Print the plain PyTorch program of an experiment or a run: it needs only torch and numpy, and prints the run's step, loss and
    gradient norm."""
    from gradstudio.core import threads
    from gradstudio.session.script import script as program

    request = requested(
        source, library, assignments, changes, {"run.steps": steps, "run.seed": seed, "run.device": device}, beginning=True
    )  # fmt: skip
    of_run = request.threads or threads.chosen()
    say_file(program(request.experiment, request.timeline, title=request.preset.title, threads=of_run).rstrip("\n"))
