"""`gradstudio report` writes the files of a run of the library at any time, without a screen."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gradstudio.commands.options import LibraryFile, RunName, formats, open_library
from gradstudio.commands.request import check_own
from gradstudio.commands.terminal import WrongRequest, say

if TYPE_CHECKING:
    from gradstudio.session.record.run import Run

TENSORBOARD = "tensorboard"


Wanted = Annotated[
    str,
    typer.Option(
        "--format",
        metavar="FORMATS",
        help="html, pdf, json (run.json), csv (metrics.csv, events.csv), npz (layers.npz; of several ranks "
        "ranks.npz too), toml (experiment.toml, which repeats the run), "
        "py (train.py and the data that it reads), parquet (metrics.parquet, layers.parquet), "
        "tensorboard (event files); several with a comma between.",
    ),
]
Out = Annotated[Path | None, typer.Option(metavar="DIR", help="The folder; without it, one named as the run.")]
MapFile = Annotated[
    Path | None, typer.Option("--map", metavar="FILE.map", help="Show the run on this map in its report.")
]
WithMemory = Annotated[
    bool, typer.Option("--memory", help="Show in its report what a step takes of memory, which is worked out first.")
]


def report(
    run: RunName,
    wanted: Wanted = "html",
    out: Out = None,
    map_file: MapFile = None,
    with_memory: WithMemory = False,
    library: LibraryFile = None,
) -> None:
    """Write a run of the library as files: all of them, or none."""
    from gradstudio.core import plugins
    from gradstudio.core.files import file_name
    from gradstudio.session.files import output
    from gradstudio.session.files.tensorboard import export

    added = plugins.names("exporters")
    allowed = (*output.EXPORTS, TENSORBOARD, *added)
    asked = formats("--format", wanted, allowed)
    if not asked:
        raise WrongRequest(f"--format names no format; allowed: {', '.join(allowed)}")
    with open_library(library) as store:
        record = store.load(store.find(run))
        line = store.line(record)
        note = next(entry.note for entry in store.entries() if entry.id == record.id)
    if {"toml", "py"} & set(asked):
        check_own(record)
    sections = ()
    if map_file is not None:
        from gradstudio.session.map import journal, report_section

        sections = (report_section.of(record, journal.load(map_file)),)
    if with_memory:
        _work_out_memory(record)
    folder = out or Path(file_name(record.id))
    more = export.event_file(record) if TENSORBOARD in asked else {}
    more |= added_files(record, [name for name in asked if name in added])
    for path in output.export(
        record, folder, [name for name in asked if name in output.EXPORTS], note, more, sections, line
    ):
        say(str(path))


def added_files(run: Run, exporters: list[str]) -> dict[str, bytes | str]:
    """Return the files that exporters of plug-ins make from a run, by name. WrongRequest if one fails."""
    from gradstudio.core import plugins

    contents: dict[str, bytes | str] = {}
    for name in exporters:
        made = plugins.attempt("exporters", name, lambda name=name: _checked(plugins.get("exporters", name)(run)))
        if made is None:
            raise WrongRequest("; ".join(plugins.problems()))
        contents |= made
    return contents


def _checked(made: Any) -> dict[str, bytes | str]:
    """Return the files of an exporter. TypeError if they are not texts or bytes, by names without a folder."""
    if not all(isinstance(name, str) and Path(name).name == name for name in made):
        raise TypeError("an exporter gives names of files without a folder")
    if not all(isinstance(content, str | bytes) for content in made.values()):
        raise TypeError("an exporter gives texts or bytes")
    return dict(made)


def _work_out_memory(run: Run) -> None:
    """Compute the memory use of a step of the run, for its report."""
    from gradstudio.session.footprint.budget import ASKED
    from gradstudio.session.footprint.process import FootprintUnknown

    try:
        if run.watched is not None:
            raise FootprintUnknown("a run that was watched has no knobs to work it out from")
        ASKED.of(run.experiment)
    except FootprintUnknown as why:
        raise WrongRequest(f"the memory of {run.id} is not known: {why}") from None
    finally:
        ASKED.end()
