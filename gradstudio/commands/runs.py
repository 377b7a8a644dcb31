"""`gradstudio runs` lists the run library, shows and compares runs, edits their notes and tags, deletes them, and
exports or imports them."""

from __future__ import annotations

import shlex
import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gradstudio.commands.comparing import compare
from gradstudio.commands.options import (
    HELP,
    ROOM_TO_DELETE,
    Json,
    LibraryFile,
    RunName,
    RunNames,
    library_file,
    open_library,
)
from gradstudio.commands.places_command import Elsewhere, library_at
from gradstudio.commands.terminal import WrongRequest, complain, complain_at_length, say, say_json, table

if TYPE_CHECKING:
    from gradstudio.core.events import Change
    from gradstudio.session.library.run_entries import Entry
    from gradstudio.session.record.run import Run

app = typer.Typer(
    help="The run library, newest first: list, show, compare, delete, annotate, export, import.",
    context_settings=HELP,
    rich_markup_mode=None,
)


@app.callback(invoke_without_command=True)
def list_runs(
    context: typer.Context,
    search: Annotated[
        str,
        typer.Option(
            metavar="TEXT", help="Only runs with every word in their title, preset, id, outcome, note or tags."
        ),
    ] = "",
    library: LibraryFile = None,
    as_json: Json = False,
    place: Elsewhere = "",
) -> None:
    path = library_file(library)
    if context.invoked_subcommand is not None:
        if search or place:
            option = "--search lists runs" if search else "--place here lists the runs of a place"
            raise WrongRequest(f"{option}; for the command {context.invoked_subcommand} leave it out")
        return
    from gradstudio.session.library.store import library_exists

    entries: list[Entry] = []
    there = bool(place) or library_exists(path)
    if place:
        with library_at(place) as elsewhere:
            entries = elsewhere.entries(search)
    elif there:
        with open_library(library) as store:
            entries = store.entries(search)
    if as_json:
        say_json([_entry(entry) for entry in entries])
    elif entries:
        table(("Run", "Outcome", "Steps", "Loss", "Started", "Title", "Tags"), [_line(entry) for entry in entries])
    else:
        path = place or path
        complain(f"no such run in {path}" if search and there else f"no runs in {path}; `gradstudio run` begins one")


@app.command("show", help="Print what came of a run, its knobs, findings, note and tags.")
def show(
    run: RunName,
    measure: Annotated[
        list[str] | None,
        typer.Option("--measure", metavar="MEASURE", help="Print this of it instead, as grad_norm.median. Repeatable."),
    ] = None,
    library: LibraryFile = None,
    as_json: Json = False,
) -> None:
    from gradstudio.session.files import summary

    with open_library(library) as store:
        record = store.load(store.find(run))
        entry = next(entry for entry in store.entries() if entry.id == record.id)
    if measure:
        _say_measures(record, measure, as_json)
        return
    if as_json:
        say_json(summary.summarize(record))
        return
    from gradstudio.session.words.story import in_words

    say(in_words(record) + "\n")
    table(("", ""), _about(record, entry))


def _say_measures(record: Run, texts: list[str], as_json: bool) -> None:
    from gradstudio.core.measure import measure
    from gradstudio.core.text import number
    from gradstudio.session.course import questions

    values = {text: questions.value(measure(text), record) for text in texts}
    if as_json:
        say_json(values)
    else:
        table(
            ("", ""),
            [(text, "unknown" if value is None else number(value, digits=5)) for text, value in values.items()],
        )


app.command(
    "compare", help="Compare 2 to 8 runs: knobs that differ, figures, and the step from which the losses differ."
)(compare)


@app.command("delete", help="Delete runs for good, and give their space back.")
def delete(
    runs: RunNames,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    library: LibraryFile = None,
) -> None:
    from gradstudio.core.text import plural

    with open_library(library, room=ROOM_TO_DELETE) as store:
        ids = list(dict.fromkeys(store.find(run) for run in runs))
        if not yes:
            if not sys.stdin.isatty():
                raise WrongRequest("deleting needs --yes where nobody can be asked")
            complain_at_length("\n".join(ids))
            if not typer.confirm(f"Delete {plural(len(ids), 'run', 'runs')} for good?", err=True):
                return
        store.delete(ids)
        store.purge(runs=ids)
    say(f"deleted {plural(len(ids), 'run', 'runs')}")


@app.command("export", help="Write a run as one file (.gsrun), which `gradstudio runs import` takes in elsewhere.")
def export(
    run: RunName,
    out: Annotated[Path, typer.Argument(metavar="FILE", help="The file; .gsrun is added to a name without an ending.")],
    library: LibraryFile = None,
) -> None:
    from gradstudio.session.library import travelling

    path = out if out.suffix else out.with_suffix(travelling.ENDING)
    with open_library(library) as kept:
        travelling.export(kept, kept.find(run), path)
    say(str(path))


@app.command("import", help="Put the run of a file that `gradstudio runs export` wrote into the library.")
def import_run(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A .gsrun file.")], library: LibraryFile = None
) -> None:
    from contextlib import closing

    from gradstudio.session.library import travelling
    from gradstudio.session.library.store import Library

    with closing(Library(library_file(library))) as kept:
        say(travelling.import_run(kept, file))


@app.command("copy", help="Copy a run from the library of a place into the library here.")
def copy(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run there: its id, the beginning of one, or last.")],
    place: Elsewhere,
    library: LibraryFile = None,
) -> None:
    from contextlib import closing

    from gradstudio.session.library.store import Library
    from gradstudio.session.remote.place_library import import_run

    with closing(Library(library_file(library))) as kept, library_at(place) as elsewhere:
        say(import_run(kept, elsewhere.fetch(run)))


@app.command("note", help="Write a note to a run; an empty one takes it away.")
def note(run: RunName, text: Annotated[str, typer.Argument(metavar="TEXT")], library: LibraryFile = None) -> None:
    with open_library(library) as store:
        store.annotate(store.find(run), note=text)


@app.command("tag", help="Give a run these tags instead of those that it has; none takes them away.")
def tag(
    run: RunName,
    tags: Annotated[list[str] | None, typer.Argument(metavar="TAG...")] = None,
    library: LibraryFile = None,
) -> None:
    with open_library(library) as store:
        store.annotate(store.find(run), tags=tags or [])


def _entry(entry: Entry) -> dict[str, Any]:
    return {
        "run": entry.id, "title": entry.title, "outcome": entry.outcome, "started": _when(entry.started, "seconds"),
        "steps": entry.steps,
        "preset": entry.preset, "final_loss": entry.final_loss, "accuracy": entry.accuracy, "seconds": entry.seconds,
        "note": entry.note,
        "tags": list(entry.tags), "source": "watch" if entry.watched else "studio",
        "parent": entry.parent, "parent_step": entry.parent_step,
    }  # fmt: skip


def _line(entry: Entry) -> tuple[str, ...]:
    from gradstudio.core.text import number
    from gradstudio.session.words.run_texts import outcome

    loss, started = number(entry.final_loss), _when(entry.started, "minutes")[:16].replace("T", " ")
    return (entry.id, outcome(entry)[0], f"{entry.steps:,}", loss, started, entry.title, ", ".join(entry.tags))


def _when(started: float, precision: str) -> str:
    """Return a time in ISO 8601 with its time zone; "" for one outside the calendar."""
    try:
        return datetime.fromtimestamp(started).astimezone().isoformat(timespec=precision)
    except (OverflowError, OSError, ValueError):
        return ""


def _about(run: Run, entry: Entry) -> list[tuple[str, str]]:
    """Return what `run` does not print at its end: id, start, knobs, changes, tags and note."""
    from gradstudio.core.knobs import format_value

    knobs = [
        f"{knob.name} = {format_value(value)}" + ("" if run.experiment.applies(knob.name) else " (no effect)")
        for knob, value in run.experiment.items()
        if value != knob.default
    ]
    lines = [("run", run.id), ("started", _when(entry.started, "seconds").replace("T", " "))]
    if run.watched is not None:
        lines += [("script", shlex.join((run.watched.script, *run.watched.arguments))), *run.watched.facts]
        lines += _under("recorded", [run.watched.rows_in_words] if run.watched.every > 1 else [])
    else:
        if file := run.experiment.studio_file:
            lines += [("file", f"{file.name}, SHA-256 {file.sha256}")]
        lines += _under("knobs", knobs or ["all at their default"])
    lines += _under("changed", [_change(change) for change in run.course])
    lines += _under("tags", [", ".join(entry.tags)] if entry.tags else [])
    return lines + _under("note", entry.note.splitlines())


def _under(name: str, texts: list[str]) -> list[tuple[str, str]]:
    return [(name if index == 0 else "", text) for index, text in enumerate(texts)]


def _change(change: Change) -> str:
    from gradstudio.core.knobs import format_value

    return f"{change.knob} = {format_value(change.value)} from step {change.step:,}"
