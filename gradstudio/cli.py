"""The command line `gradstudio`, and how errors become exit codes. What takes time to import is imported by the command
that needs it, so that --help is there at once."""

from __future__ import annotations

import io
import os
import sys
from functools import cache
from typing import Annotated, Any, NoReturn

import typer
import typer.main

from gradstudio.commands import (
    branch,
    check_presets,
    course,
    crash,
    desktop,
    diagnose,
    exam,
    exit_codes,
    grade,
    json_schema,
    map,
    memory,
    new,
    places_command,
    report,
    runs,
    top,
    training,
    watch,
    worker_command,
)
from gradstudio.commands.options import HELP, Json, LibraryFile, library_file, tell_unseen
from gradstudio.commands.terminal import (
    WrongRequest,
    close_stdout,
    complain,
    say,
    say_file,
    say_json,
    stdout_fault,
    table,
)
from gradstudio.core.text import LONGEST_LINE, brief
from gradstudio.session.running import interrupts

app = typer.Typer(
    help="A flight simulator for training stability. Without a command it opens the app.",
    context_settings=HELP, rich_markup_mode=None, pretty_exceptions_enable=False,
)  # fmt: skip
presets_app = typer.Typer(
    help="List the presets, print one, or check what they promise.", context_settings=HELP, rich_markup_mode=None
)
app.add_typer(presets_app, name="presets")
presets_app.command("check")(check_presets.check)
app.command("run")(training.run)
app.command("branch")(branch.branch)
app.command("watch", help=watch.HELP, context_settings=watch.PASSED_ON)(watch.watch)
app.command("diagnose")(diagnose.diagnose)
app.command("top")(top.top)
app.command("new")(new.new)
app.command("map", help=map.HELP)(map.map_)
app.command("script")(training.script)
app.command("memory")(memory.memory)
app.command("report")(report.report)
app.add_typer(runs.app, name="runs")
app.add_typer(places_command.app, name="places")
app.add_typer(course.app, name="course")
app.add_typer(exam.app, name="exam")
app.command("grade")(grade.grade)
app.command("schema")(json_schema.schema)
app.command("worker", hidden=True)(worker_command.worker)
app.add_typer(crash.app, name="crash")
app.command("record", help="Ask a watched run for a crash file now.")(crash.record)
app.add_typer(desktop.app, name="desktop")


def main() -> NoReturn:
    """Run the program: every error becomes one line on stderr and an exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal with few characters is no reason to fail
    with interrupts.listening():
        try:
            code = _carry_out()
        except KeyboardInterrupt:
            code = exit_codes.INTERRUPTED
    sys.exit(code)


def _carry_out() -> int:
    """Carry out what the command line asks for, and return the exit code."""
    try:
        code = _commands()(standalone_mode=False) or 0
        sys.stdout.flush()
        return code
    except typer.Abort:  # of a question
        return exit_codes.INTERRUPTED
    except BrokenPipeError:
        close_stdout()
        return 0
    except Exception as fault:
        if isinstance(fault, OSError) and fault.filename is None and (why := stdout_fault()):
            close_stdout()
            complain(f"error: what the command says cannot be written: {why}")
            return exit_codes.FAILED
        if os.environ.get("GRADSTUDIO_DEBUG"):
            raise
        return _report_fault(fault)


@cache
def _commands() -> Any:
    """Return all commands with the names by which they are called; `app` itself would build them again at each call."""
    return typer.main.get_command(app)


@app.callback(invoke_without_command=True)
def open_app(
    context: typer.Context,
    preset: Annotated[
        str, typer.Option("--preset", metavar="ID|FILE.toml", help="Open the app with this preset.")
    ] = "",
    library: LibraryFile = None,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        from gradstudio import __version__

        say(f"gradstudio {__version__}")
        raise typer.Exit
    library_file(library)
    if context.invoked_subcommand is not None:
        if preset:
            raise WrongRequest(f"--preset opens the app; for the command {context.invoked_subcommand} leave it out")
        return
    from gradstudio.gui.app import launch

    raise typer.Exit(launch(preset or None))


@app.command("open", help="Open the window with the runs of a place: its name, or ssh://HOST.")
def open_place(
    place: Annotated[str, typer.Argument(metavar="PLACE", help="A place of `gradstudio places`, or ssh://HOST.")],
) -> None:
    from gradstudio.core import worker_places
    from gradstudio.gui.app import launch

    raise typer.Exit(launch(None, worker_places.find_address(place)))


@presets_app.callback(invoke_without_command=True)
def list_presets(context: typer.Context, as_json: Json = False) -> None:
    if context.invoked_subcommand is not None:
        return
    from gradstudio.core import presets

    tell_unseen()
    listed = []
    for path in presets.available():
        try:
            listed.append(presets.read(path))
        except presets.PresetError as fault:
            complain(f"left out: {fault}")
    listed.sort(key=lambda preset: presets.GROUPS.index(preset.group))  # the last group is none
    if as_json:
        say_json(
            [
                {
                    "id": preset.id, "group": preset.group, "title": preset.title, "summary": preset.summary,
                    "bundled": preset.bundled,
                }
                for preset in listed
            ]
        )  # fmt: skip
    else:
        rows = [(preset.id, preset.group, preset.title, preset.summary) for preset in listed]
        table(("ID", "Group", "Title", "Summary"), rows)


@presets_app.command("show", help="Print the TOML file of a preset.")
def show_preset(
    preset: Annotated[str, typer.Argument(metavar="ID", help="A preset's id, or the path of a TOML file.")],
) -> None:
    from gradstudio.core import presets

    chosen = presets.load(preset)
    say_file(chosen.path.read_text(encoding="utf-8").rstrip("\n") if chosen.path else presets.to_toml(chosen))


@app.command(help="List what can train here.")
def devices(as_json: Json = False) -> None:
    from gradstudio.session.machine import doctor

    available = doctor.devices()
    if as_json:
        say_json([{"id": name, "name": title} for name, title in available])
    else:
        table(("ID", "Name"), available)
        if sentence := doctor.without_accelerator(available):
            complain(sentence.removeprefix("; "))


@app.command(
    "doctor", help="Check versions, devices, display, folders and the run library. Exit code: 0 all well, 1 a problem."
)
def examine(library: LibraryFile = None, as_json: Json = False) -> None:
    from gradstudio.session.machine import doctor

    library_file(library)
    checks = doctor.examine()
    if as_json:
        say_json([vars(check) for check in checks])
    else:
        table(("", "What", "Found"), [("ok" if check.ok else "problem", check.name, check.text) for check in checks])
        for check in checks:
            if not check.ok:
                say(f"\n{check.name}: {check.advice}")
    raise typer.Exit(0 if all(check.ok for check in checks) else 1)


def _report_fault(fault: Exception) -> int:
    """Print one line on stderr for an exception, and return its exit code."""
    from gradstudio.core import extras
    from gradstudio.core.assignment import AssignmentError
    from gradstudio.core.knobs import KnobError
    from gradstudio.core.presets import PresetError
    from gradstudio.core.worker_places import PlaceError
    from gradstudio.session.files.comparison import ComparisonError
    from gradstudio.session.files.output import OutputError
    from gradstudio.session.library.library_faults import LibraryError
    from gradstudio.session.map.journal import JournalError

    from_typer = getattr(fault, "format_message", None)  # a mistake in the command line itself
    message = " ".join((from_typer() if from_typer else str(fault)).split()) or type(fault).__name__
    if message.startswith("No such command"):
        message += " To open a preset or studio file: gradstudio --preset FILE; to train it: gradstudio run FILE"
    if from_extra := extras.missing(fault):
        complain(f"error: {from_extra}")
        return exit_codes.WRONG_REQUEST
    if from_typer or isinstance(
        fault,
        (
            WrongRequest, KnobError, PresetError, OutputError, LibraryError, ComparisonError, JournalError,
            AssignmentError, PlaceError,
        ),
    ):  # fmt: skip
        complain(f"error: {message}")
        return exit_codes.WRONG_REQUEST
    complain(f"error: {type(fault).__name__}: {brief(message, LONGEST_LINE - 80)} (GRADSTUDIO_DEBUG=1 shows where)")
    return exit_codes.FAILED
