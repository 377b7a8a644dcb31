"""`run` and `script`: an experiment, trained here or printed as a program."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gradstudio.commands.options import Assignments, Changes, Device, Json, LibraryFile, Seed, Steps, formats, library_file, requested
from gradstudio.commands.terminal import WrongRequest, complain, say, say_file, say_json

if TYPE_CHECKING:
    from gradstudio.session.library.keeper import Keeper

LAST_WRITING = 30.0  # seconds that the library may take for what it has not written yet


def run(
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help="A preset's id, a TOML file, or a run to repeat: its whole id, its folder, or last.")
    ],
    assignments: Assignments = None,
    changes: Changes = None,
    compare: Annotated[
        list[int] | None,
        typer.Option(metavar="STEP", min=0, help="Hold that step's accumulated gradient against that of one large batch. Repeatable."),
    ] = None,
    steps: Steps = None,
    seed: Seed = None,
    device: Device = None,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Write the run's files here.")] = None,
    report: Annotated[
        str, typer.Option(metavar="FORMATS", help="Write a report: html, pdf or html,pdf. Without --out, into a folder named as the run.")
    ] = "",
    library: LibraryFile = None,
    as_json: Json = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")] = False,
) -> None:
    """Train without a window. Exit code: 0 finished, 1 failed, 2 wrong request, 3 non-finite, 4 critical finding, 130 interrupted."""
    from gradstudio.core import threads
    from gradstudio.session import foreground, output, summary
    from gradstudio.session.library.keeper import Keeper
    from gradstudio.session.run import Run

    request = requested(
        source, library, assignments, changes, {"run.steps": steps, "run.seed": seed, "run.device": device}, beginning=False
    )  # fmt: skip
    experiment = request.experiment
    for step in compare or []:
        if step >= experiment.run.steps:
            raise WrongRequest(f"--compare {step} comes after the end of the run; its last step is {experiment.run.steps - 1}")
    record = Run(request.preset, experiment, request.timeline, tuple(compare or []))
    reports = formats("--report", report, output.REPORTS)
    folder = out or (Path(record.id) if reports else None)
    if folder:
        output.check_folder(folder)
    if request.threads not in ("", threads.chosen()) and not quiet:
        complain(f"it ran with {request.threads} CPU threads, and now runs with {threads.chosen()}: "
                 f"GRADSTUDIO_THREADS={request.threads} repeats it to the last bit")  # fmt: skip
    keeper = Keeper(library_file(library))
    keeper.follow(record)
    try:
        failure = foreground.train(record, progress=not quiet and sys.stderr.isatty())
    finally:
        kept = _close(keeper)
    if folder and not record.refused:
        output.write(record, folder, reports)
    if record.status == "failed":
        if failure and os.environ.get("GRADSTUDIO_DEBUG"):
            complain(failure)
        complain(f"error: {record.message}")
    if as_json:
        say_json(summary.summarize(record))
    elif not quiet and record.status != "failed":
        from gradstudio.session.report.story import in_words

        say(in_words(record) + (f"\n\nkept as {record.id}" if kept else ""))
    if folder and not quiet and not record.refused:
        (complain if as_json else say)(f"files in {folder}")
    raise typer.Exit(summary.exit_code(record))


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
