"""`gradstudio course`: the lessons in the recommended order, all of them as one handbook, and the exercises with their
worksheets."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gradstudio.commands.options import Json, LibraryFile, formats, open_library
from gradstudio.commands.terminal import WrongRequest, complain, say, say_json, table

if TYPE_CHECKING:
    from gradstudio.core.exercise import Exercise, ExerciseRun
    from gradstudio.core.presets import Preset
    from gradstudio.session.course.worksheet import Worksheet
    from gradstudio.session.record.run import Run

HANDBOOK_FORMATS = ("html", "pdf")

app = typer.Typer(
    help="List the lessons, write them as a handbook; begin an exercise, and hand in its worksheet.",
    rich_markup_mode=None,
)


@app.callback(invoke_without_command=True)
def course(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        list_lessons()


@app.command("list", help="List the lessons in the order in which they are best taken.")
def list_lessons(as_json: Json = False) -> None:
    from gradstudio.core import gallery

    chosen = gallery.in_order(_bundled_lessons())
    if as_json:
        say_json(
            [
                {
                    "id": preset.id, "title": preset.title, "group": preset.group, "level": preset.level,
                    "minutes": gallery.minutes(preset), "prerequisites": list(preset.after),
                }
                for preset in chosen
            ]
        )  # fmt: skip
        return
    rows = [
        (preset.id, preset.title, preset.group, preset.level, f"{gallery.minutes(preset)} min", ", ".join(preset.after))
        for preset in chosen
    ]
    table(("ID", "Title", "Group", "Level", "Time", "After"), rows)


@app.command("handbook", help="Write the lessons as one document to print: handbook.html, handbook.pdf.")
def handbook(
    wanted: Annotated[
        str, typer.Option("--format", metavar="FORMATS", help="html, pdf; several with a comma between.")
    ] = "html",
    out: Annotated[Path, typer.Option(metavar="DIR", help="The folder.")] = Path(),
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="ID", help="This lesson alone; repeatable.")
    ] = None,
) -> None:
    from gradstudio.session.files import output, report

    asked = formats("--format", wanted, HANDBOOK_FORMATS)
    if not asked:
        raise WrongRequest(f"--format names no format; allowed: {', '.join(HANDBOOK_FORMATS)}")
    lessons = {preset.id: preset for preset in _bundled_lessons()}
    for name in only or []:
        if name not in lessons:
            raise WrongRequest(f"--only {name[:60]}: no such lesson; `gradstudio course list` has them")
    chosen = [lessons[name] for name in only] if only else list(lessons.values())
    for path in output.write_together({out / f"handbook.{each}": report.handbook(chosen, each) for each in asked}):
        say(str(path))


@app.command("exercises", help="List the exercises.")
def list_exercises(as_json: Json = False) -> None:
    from gradstudio.core import exercise

    sheets = [exercise.load(id) for id in exercise.available()]
    if as_json:
        say_json(
            [
                {
                    "id": each.id, "title": each.title, "minutes": each.minutes, "runs": len(each.run),
                    "questions": len(each.question),
                }
                for each in sheets
            ]
        )  # fmt: skip
        return
    rows = [
        (str(place), each.id, each.title, f"{each.minutes} min", f"{len(each.run)} runs")
        for place, each in enumerate(sheets, 1)
    ]
    table(("", "ID", "Title", "Time", ""), rows)


@app.command("begin", help="Write the empty worksheet of an exercise: a text to fill in.")
def begin(
    exercise: Annotated[str, typer.Argument(metavar="ID|FILE.toml", help="An exercise's id or number, or a file.")],
    name: Annotated[str, typer.Option(metavar="NAME", help="Whose worksheet it is.")],
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="The worksheet.")] = None,
) -> None:
    from gradstudio.core import exercise as exercises
    from gradstudio.core.text import clean
    from gradstudio.session.course import worksheet
    from gradstudio.session.files import output

    sheet, name = exercises.load(exercise), clean(name.strip())
    if not 0 < len(name) <= worksheet.LONGEST_NAME:
        raise WrongRequest(f"--name has {len(name):,} characters; allowed: 1 to {worksheet.LONGEST_NAME}")
    path = out or Path(f"{sheet.id}.toml")
    if path.exists():
        raise WrongRequest(f"{path} is there already; name another with --out, so that no answers are lost")
    own = exercise if exercise.endswith(".toml") else ""
    for written in output.write_together({path: worksheet.blank(sheet, name, str(path), own)}):
        say(str(written))


@app.command("runs", help="Make the runs of a worksheet that the library does not have yet.")
def make_runs(
    exercise: Annotated[
        str | None, typer.Argument(metavar="ID|FILE.toml", help="The exercise, where it is none of the bundled.")
    ] = None,
    *,
    sheet: Annotated[Path, typer.Option("--sheet", metavar="FILE.toml", help="The worksheet.")],
    at: Annotated[
        int | None,
        typer.Option("--at", metavar="STEP", min=0, help="The step of your choice, where a run is changed in mid-run."),
    ] = None,
    library: LibraryFile = None,
) -> None:
    from gradstudio.commands.training import OutputOptions, train_and_keep
    from gradstudio.core.assignment import AssignmentError
    from gradstudio.session.course import worksheet
    from gradstudio.session.library.library_faults import LibraryError
    from gradstudio.session.running.backend import LocalFamily

    filled, asked_exercise = _sheet_and_exercise(sheet, exercise)
    if at is None and (changed := [run for run in asked_exercise.run if run.then]):
        raise WrongRequest(f"{changed[0].name} is changed while it trains: say with --at STEP when ({changed[0].text})")
    for asked in asked_exercise.run:
        try:
            with open_library(library) as store:
                say(f"{asked.name}: there is {worksheet.run_for(store, asked, filled).id}")
            continue
        except (AssignmentError, LibraryError):
            run = _run_of(asked, filled.seed, at or 0)
        _, kept = train_and_keep(run, OutputOptions(None, "", library, False, False), LocalFamily())
        say(f"{asked.name}: {run.status}{f', kept as {run.id}' if kept else ''}")
        if run.status == "stopped":
            raise KeyboardInterrupt
        if asked.then and len(run.history) <= (at or 0):
            complain(f"{asked.name}: the run had ended before step {at:,}: name an earlier one with --at")


@app.command("hand-in", help="Add what its runs were to a worksheet, and write it with its curves to print.")
def hand_in(
    sheet: Annotated[Path, typer.Argument(metavar="FILE.toml", help="The worksheet that was filled in.")],
    wanted: Annotated[
        str, typer.Option("--format", metavar="FORMATS", help="html, pdf; several with a comma between.")
    ] = "html",
    out: Annotated[Path, typer.Option(metavar="DIR", help="The folder.")] = Path("handed-in"),
    exercise: Annotated[
        str | None,
        typer.Option("--exercise", metavar="FILE.toml", help="The exercise, where it is none of the bundled."),
    ] = None,
    library: LibraryFile = None,
) -> None:
    from gradstudio.session.course import worksheet
    from gradstudio.session.files import output, report

    asked = formats("--format", wanted, HANDBOOK_FORMATS)
    filled, asked_exercise = _sheet_and_exercise(sheet, exercise)
    with open_library(library) as store:
        done, runs = worksheet.hand_in(store, filled, asked_exercise)
    peaks = worksheet.peaks(asked_exercise, filled.seed)
    contents = {
        out / f"{sheet.stem}.{each}": report.worksheet(done, asked_exercise, runs, peaks, each) for each in asked
    }
    for path in output.write_together({out / f"{sheet.stem}.toml": done.to_toml(), **contents}):
        say(str(path))
    if told := worksheet.unanswered_questions(done, asked_exercise):
        complain(told)


def _run_of(asked: ExerciseRun, seed: int, at: int) -> Run:
    """Return the run of an exercise, not trained yet, with its live changes at a step."""
    from gradstudio.core.planned_changes import read_timeline
    from gradstudio.session.record.run import Run

    preset, experiment = asked.beginning(), asked.starts_with(seed)
    changes = [{"step": at, "knob": name, "value": value} for name, value in asked.changes.items()]
    timeline = sorted((*preset.timeline, *read_timeline(changes, experiment)), key=lambda change: change.step)
    return Run(preset, experiment, tuple(timeline))


def _sheet_and_exercise(path: Path, own: str | None) -> tuple[Worksheet, Exercise]:
    """Return the worksheet in a file, and its exercise."""
    from gradstudio.core import exercise as exercises
    from gradstudio.session.course import worksheet

    filled = worksheet.read(path)
    own_exercise = exercises.load(own or filled.exercise)
    if own_exercise.id != filled.exercise:
        raise WrongRequest(f"{path} is a worksheet of {filled.exercise[:60]}, and not of {own_exercise.id}")
    return filled, own_exercise


def _bundled_lessons() -> list[Preset]:
    """Return the bundled presets that have a lesson."""
    from gradstudio.core import files, presets

    lessons = (presets.read(path) for path in sorted(files.PRESETS.glob("*.toml")))
    return [preset for preset in lessons if preset.lesson]
