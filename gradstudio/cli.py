"""The commands. What costs time is imported by the command that needs it, so that --help is there at once."""

from __future__ import annotations

import io
import json
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

if TYPE_CHECKING:
    from gradstudio.core.events import Change
    from gradstudio.core.experiment import Experiment
    from gradstudio.core.presets import Preset

INTERNAL, WRONG, INTERRUPTED = 1, 2, 130

_HELP = {"help_option_names": ["-h", "--help"]}

app = typer.Typer(
    help="A flight simulator for training stability. Without a command it opens the app.",
    context_settings=_HELP, rich_markup_mode=None, add_completion=False, pretty_exceptions_enable=False,
)  # fmt: skip
presets_app = typer.Typer(help="List the presets, or print one.", context_settings=_HELP, rich_markup_mode=None)
app.add_typer(presets_app, name="presets")

Json = Annotated[bool, typer.Option("--json", help="Print JSON, and nothing else.")]
Assignments = Annotated[list[str] | None, typer.Option("--set", metavar="KNOB=VALUE", help="Set a knob. Repeatable.")]
Changes = Annotated[list[str] | None, typer.Option("--at", metavar="STEP:KNOB=VALUE", help="Change a live knob at that step. Repeatable.")]
Steps = Annotated[int | None, typer.Option(metavar="N", help="Optimizer steps.")]
Seed = Annotated[int | None, typer.Option(metavar="S", help="Seed of weights, batches and noise.")]
Device = Annotated[str | None, typer.Option(metavar="D", help="auto, cpu, cuda:0, mps; see `gradstudio devices`.")]


class WrongRequest(ValueError):
    """What was asked for cannot be done. One line, fit for a person."""


def main() -> NoReturn:
    """The program: every fault becomes one line on stderr and an exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that knows few letters is no reason to fail
    try:
        code = app(standalone_mode=False) or 0
        sys.stdout.flush()
    except KeyboardInterrupt:
        code = INTERRUPTED
    except BrokenPipeError:
        _close_stdout()
        code = 0
    except Exception as fault:
        if os.environ.get("GRADSTUDIO_DEBUG"):
            raise
        code = _report_fault(fault)
    sys.exit(code)


@app.callback(invoke_without_command=True)
def open_app(
    context: typer.Context,
    preset: Annotated[str, typer.Option("--preset", metavar="ID|FILE.toml", help="Open the app with this preset.")] = "",
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        from gradstudio import __version__

        _say(f"gradstudio {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is not None:
        if preset:
            raise WrongRequest(f"--preset opens the app; for the command {context.invoked_subcommand} leave it out")
        return
    try:
        from gradstudio.gui.app import launch
    except ModuleNotFoundError as fault:
        if (fault.name or "").partition(".")[0] in ("PySide6", "shiboken6", "pyqtgraph"):
            raise WrongRequest(
                f"the window needs {fault.name}, which is not installed: pip install 'PySide6-Essentials>=6.10.3,<6.12' pyqtgraph; "
                "`gradstudio run` trains without a window"
            ) from None
        raise
    raise typer.Exit(launch(preset or None))


@presets_app.callback(invoke_without_command=True)
def list_presets(context: typer.Context, as_json: Json = False) -> None:
    if context.invoked_subcommand is not None:
        return
    from gradstudio.core import presets

    found = []
    for path in presets.available():
        try:
            found.append(presets.read(path))
        except presets.PresetError as fault:
            _complain(f"left out: {fault}")
    if as_json:
        from gradstudio.session.summary import to_json

        _say(to_json([{"id": preset.id, "title": preset.title, "summary": preset.summary, "bundled": preset.bundled} for preset in found]))
    else:
        _table(("ID", "Title", "Summary"), [(preset.id, preset.title, preset.summary) for preset in found])


@presets_app.command("show", help="Print the TOML file of a preset.")
def show_preset(preset: Annotated[str, typer.Argument(metavar="ID", help="A preset's id, or the path of a TOML file.")]) -> None:
    from gradstudio.core import presets

    found = presets.load(preset)
    _say(found.path.read_text(encoding="utf-8").rstrip("\n") if found.path else presets.to_toml(found))


@app.command(help="Train without a window. Exit code: 0 finished, 1 failed, 2 wrong request, 3 non-finite, 4 critical finding, 130 interrupted.")
def run(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="A preset's id, or the path of a TOML file.")],
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
    as_json: Json = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")] = False,
) -> None:
    from gradstudio.session import foreground, output, summary
    from gradstudio.session.run import Run

    preset, experiment, timeline = _requested(source, assignments, changes, {"run.steps": steps, "run.seed": seed, "run.device": device})
    for step in compare or []:
        if step >= experiment.run.steps:
            raise WrongRequest(f"--compare {step} comes after the end of the run; its last step is {experiment.run.steps - 1}")
    record = Run(preset, experiment, timeline, tuple(compare or []))
    formats = _formats(report)
    folder = out or (Path(record.id) if formats else None)
    if folder:
        output.check_folder(folder)
    failure = foreground.train(record, progress=not quiet and sys.stderr.isatty())
    if folder and not record.refused:
        output.write(record, folder, formats)
    if record.status == "failed":
        if failure and os.environ.get("GRADSTUDIO_DEBUG"):
            _complain(failure)
        _complain(f"error: {record.message}")
    if as_json:
        _say(summary.to_json(summary.summarize(record)))
    elif not quiet and record.status != "failed":
        from gradstudio.session.report.story import in_words

        _say(in_words(record))
    if folder and not quiet and not record.refused:
        (_complain if as_json else _say)(f"files in {folder}")
    raise typer.Exit(summary.exit_code(record))


@app.command(help="Print the plain PyTorch program of an experiment or a run: it needs only torch and numpy, and prints the run's step, loss "
             "and gradient norm.")  # fmt: skip
def script(
    source: Annotated[str, typer.Argument(metavar="SOURCE|RUN", help="A preset's id, a TOML file, or a folder that `run --out` has written.")],
    assignments: Assignments = None,
    changes: Changes = None,
    steps: Steps = None,
    seed: Seed = None,
    device: Device = None,
) -> None:
    from gradstudio.session.script import script as program

    preset, experiment, timeline = _requested(source, assignments, changes, {"run.steps": steps, "run.seed": seed, "run.device": device})
    _say(program(experiment, timeline, title=preset.title, threads=_threads(Path(source))).rstrip("\n"))


@app.command(help="List what can train here.")
def devices(as_json: Json = False) -> None:
    from gradstudio.session import doctor, summary

    found = doctor.devices()
    if as_json:
        _say(summary.to_json([{"id": name, "name": title} for name, title in found]))
    else:
        _table(("ID", "Name"), found)
        if sentence := doctor.without_accelerator(found):
            _complain(sentence.removeprefix("; "))


@app.command("doctor", help="Check versions, devices, display and folders. Exit code: 0 all well, 1 a problem.")
def examine(as_json: Json = False) -> None:
    from gradstudio.session import doctor, summary

    checks = doctor.examine()
    if as_json:
        _say(summary.to_json([vars(check) for check in checks]))
    else:
        _table(("", "What", "Found"), [("ok" if check.ok else "problem", check.name, check.text) for check in checks])
        for check in checks:
            if not check.ok:
                _say(f"\n{check.name}: {check.advice}")
    raise typer.Exit(0 if all(check.ok for check in checks) else 1)


def _requested(
    source: str, assignments: list[str] | None, changes: list[str] | None, flags: dict[str, Any]
) -> tuple[Preset, Experiment, tuple[Change, ...]]:
    """What was asked for, and its live changes; PresetError, KnobError or WrongRequest where it cannot be."""
    from gradstudio.core import presets
    from gradstudio.core.experiment import parse_assignment

    folder = Path(source)
    if folder.is_dir() and not (folder / "experiment.toml").is_file():
        raise WrongRequest(f"{source[:80]} is no folder of a run: it has no experiment.toml; allowed: one that --out wrote, a TOML file, a preset")
    preset = presets.load(folder / "experiment.toml" if folder.is_dir() else source)
    given = {name: value for name, value in flags.items() if value is not None}
    experiment = preset.experiment.with_values({**dict(parse_assignment(text) for text in assignments or []), **given})
    return preset, experiment, _planned(preset, experiment.run.steps, changes or [], experiment)


def _threads(source: Path) -> str:
    """The CPU threads that the run in this folder had; elsewhere those that one would have here."""
    from gradstudio.core import threads

    try:
        found = json.loads((source / "run.json").read_text(encoding="utf-8"))["environment"]["threads"]
    except (OSError, ValueError, KeyError, TypeError):  # no run, or one whose file somebody changed
        found = ""
    return found if isinstance(found, str) and found.isascii() and found.isdecimal() else threads.chosen()


def _planned(preset: Preset, steps: int, changes: list[str], experiment: Experiment) -> tuple[Change, ...]:
    """The preset's own changes and those asked for, in the order of their steps."""
    from gradstudio.core import presets
    from gradstudio.core.experiment import parse_assignment
    from gradstudio.core.knobs import KnobError

    entries = [{"step": change.step, "knob": change.knob, "value": change.value} for change in preset.timeline]
    for text in changes:
        step, colon, assignment = text.partition(":")
        if not colon or not (step.isascii() and step.isdecimal()):
            raise WrongRequest(f"--at {text[:80]} is not allowed; allowed: STEP:KNOB=VALUE, such as 100:optimizer.lr=0.01")
        if int(step) >= steps:
            raise WrongRequest(f"--at {text[:80]} comes after the end of the run; its last step is {steps - 1}")
        name, value = parse_assignment(assignment)
        entries.append({"step": int(step), "knob": name, "value": value})
    try:
        return presets.read_timeline(entries, experiment)
    except KnobError as fault:
        raise WrongRequest(re.sub(r"^timeline\.\d+: ", "--at: ", str(fault))) from None


def _formats(text: str) -> list[str]:
    from gradstudio.session.output import REPORTS

    formats = [part.strip().lower() for part in text.split(",") if part.strip()]
    for part in formats:
        if part not in REPORTS:
            raise WrongRequest(f"--report {part[:40]} is not allowed; allowed: {', '.join(REPORTS)}, or both with a comma between")
    return list(dict.fromkeys(formats))


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    """Aligned columns: drawn on a terminal, plain lines without tabs elsewhere."""
    if sys.stdout.isatty():
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        table = Table(*head, box=None, header_style="dim", padding=(0, 2, 0, 0))
        for row in rows:
            table.add_row(*(Text(cell) for cell in row))
        Console().print(table)
        return
    widths = [max([len(row[index]) for row in rows], default=0) for index in range(len(head))]
    for row in rows:
        _say("  ".join(" ".join(cell.split()).ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _say(text: str) -> None:
    """Print; whoever closed the other end of the pipe has read enough."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        _close_stdout()


def _complain(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _close_stdout() -> None:
    """Let what is still to be printed vanish, so that Python does not complain at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _report_fault(fault: Exception) -> int:
    """One line on stderr for an exception, and the exit code it stands for."""
    from gradstudio.core.knobs import KnobError
    from gradstudio.core.presets import PresetError
    from gradstudio.session.output import OutputError

    from_typer = getattr(fault, "format_message", None)  # a mistake in the command line itself
    message = " ".join((from_typer() if from_typer else str(fault)).split()) or type(fault).__name__
    if message.startswith("No such command"):
        message += " To open a file: gradstudio --preset FILE.toml; to train it without a window: gradstudio run FILE.toml"
    if from_typer or isinstance(fault, (WrongRequest, KnobError, PresetError, OutputError)):
        _complain(f"error: {message}")
        return WRONG
    _complain(f"error: {type(fault).__name__}: {message[:400]} (GRADSTUDIO_DEBUG=1 shows where)")
    return INTERNAL
