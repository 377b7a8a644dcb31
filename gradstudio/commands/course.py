"""`gradstudio course`: the lessons in the order in which they are best taken, and all of them as one handbook."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gradstudio.commands.options import Json, formats
from gradstudio.commands.terminal import WrongRequest, say, say_json, table

if TYPE_CHECKING:
    from gradstudio.core.presets import Preset

HANDBOOK_FORMATS = ("html", "pdf")

app = typer.Typer(help="List the lessons of the course, or write them as a handbook.", rich_markup_mode=None)


@app.callback(invoke_without_command=True)
def course(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        list_lessons()


@app.command("list", help="List the lessons in the order in which they are best taken.")
def list_lessons(as_json: Json = False) -> None:
    from gradstudio.core import gallery

    found = gallery.in_order(_bundled())
    if as_json:
        say_json(
            [
                {
                    "id": preset.id, "title": preset.title, "group": preset.group, "level": preset.level,
                    "minutes": gallery.minutes(preset), "prerequisites": list(preset.after),
                }
                for preset in found
            ]
        )  # fmt: skip
        return
    rows = [
        (preset.id, preset.title, preset.group, preset.level, f"{gallery.minutes(preset)} min", ", ".join(preset.after))
        for preset in found
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
    lessons = {preset.id: preset for preset in _bundled()}
    for name in only or []:
        if name not in lessons:
            raise WrongRequest(f"--only {name[:60]}: no such lesson; `gradstudio course list` has them")
    chosen = [lessons[name] for name in only] if only else list(lessons.values())
    for path in output.write_together({out / f"handbook.{each}": report.handbook(chosen, each) for each in asked}):
        say(str(path))


def _bundled() -> list[Preset]:
    """Return the bundled presets that have a lesson."""
    from gradstudio.core import files, presets

    found = (presets.read(path) for path in sorted(files.PRESETS.glob("*.toml")))
    return [preset for preset in found if preset.lesson]
