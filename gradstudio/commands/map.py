"""`gradstudio map` draws where training holds, over two knobs; `gradstudio map show` prints the contents of a map."""

from __future__ import annotations

import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, NoReturn

import typer

from gradstudio.commands import exit_codes
from gradstudio.commands.agreement import Trust, agree
from gradstudio.commands.options import Assignments, Changes, Device, Json, LibraryFile, Quiet, Seed, Steps
from gradstudio.commands.places_command import PlaceName, cells_at
from gradstudio.commands.request import Request, read_request
from gradstudio.commands.terminal import WrongRequest, complain, complain_at_length, say, say_json
from gradstudio.core.text import duration

if TYPE_CHECKING:
    from gradstudio.core.files import Content
    from gradstudio.session.map.journal import JournalContent
    from gradstudio.session.map.map_plan import Plan
    from gradstudio.session.map.mapper import Mapper
    from gradstudio.session.map.place_cells import PlaceCells

HELP = """Draw where training holds, over two knobs: each cell is a run. `gradstudio map show FILE.map` tells what a map
holds. Exit code: 0 every cell has an outcome, 1 cells failed, 2 wrong request, 130 interrupted; --resume goes on."""
CELLS = 64  # of an axis
PICTURES = (".png", ".svg")
LOOK = 0.1  # seconds between two checks of the progress

Axis = Annotated[str, typer.Option("--x", metavar="KNOB=FROM:TO[:log]", help="The knob to the right, and its range.")]
Upwards = Annotated[str, typer.Option("--y", metavar="KNOB=FROM:TO[:log]", help="The knob upwards, and its range.")]
Third = Annotated[
    str, typer.Option("--by", metavar="KNOB=A,B,...", help="A third knob: a panel for each of these values.")
]
Cells = Annotated[int | None, typer.Option(metavar="N", help="Cells of an axis.  [default: the preset's, or 64]")]
Seeds = Annotated[int, typer.Option(metavar="N", help="Seeds of a cell.")]
Full = Annotated[bool, typer.Option("--full", help="Train every cell, not only those where neighbours differ.")]
MapFile = Annotated[Path | None, typer.Option("--out", metavar="FILE.map", help="The map, written cell by cell.")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with the map that is in --out.")]
Workers = Annotated[int, typer.Option(metavar="N", min=0, help="Worker processes; 0: one a core.")]
On = Annotated[
    str,
    typer.Option("--on", metavar="ADDRESS|FILE", help="Train on a Dask cluster: tcp://HOST:PORT, or a scheduler file."),
]
Picture = Annotated[Path | None, typer.Option(metavar="FILE.png|svg", help="Draw the map.")]
Csv = Annotated[Path | None, typer.Option("--csv", metavar="FILE", help="Write a row for each trained cell.")]
Npz = Annotated[Path | None, typer.Option("--npz", metavar="FILE", help="Write the arrays of the map.")]


class Files(NamedTuple):
    """The files that are made from a map."""

    picture: Path | None
    csv: Path | None
    npz: Path | None

    def check(self, of: Path | None) -> None:
        """Raise WrongRequest or OutputError, before anything is trained, if one of them is impossible. `of`: the map's
        own file."""
        from gradstudio.session.files import output

        if self.picture and self.picture.suffix not in PICTURES:
            raise WrongRequest(f"--picture {self.picture} is not allowed; allowed: a file name with .png or .svg")
        taken = {of.resolve(): "the map itself"} if of else {}
        for option, path in self._asdict().items():
            if path is None:
                continue
            output.check_folder(path.parent)
            if (other := taken.setdefault(path.resolve(), f"--{option}")) != f"--{option}":
                raise WrongRequest(f"--{option} {path} is not allowed: {other} is in that file; allowed: another file")

    def write(self, stored: JournalContent) -> None:
        from gradstudio.session.files import output
        from gradstudio.session.map import tables

        contents: dict[Path, Content] = {}
        if self.picture:
            from gradstudio.session.map import picture_file

            contents[self.picture] = picture_file.render(stored, self.picture.suffix.removeprefix("."))
        if self.csv:
            contents[self.csv] = lambda file: tables.write_csv(stored, file)
        if self.npz:
            contents[self.npz] = lambda file: tables.write_npz(stored, file)
        output.write_together(contents)


def map_(
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help="A preset's id, a TOML file, a studio file, a run, or show.")
    ],
    file: Annotated[Path | None, typer.Argument(metavar="[FILE.map]", help="The map that is shown.")] = None,
    x: Axis = "",
    y: Upwards = "",
    by: Third = "",
    cells: Cells = None,
    seeds: Seeds = 1,
    full: Full = False,
    assignments: Assignments = None,
    changes: Changes = None,
    steps: Steps = None,
    seed: Seed = None,
    device: Device = None,
    out: MapFile = None,
    resume: Resume = False,
    workers: Workers = 0,
    on: On = "",
    place: PlaceName = "",
    picture: Picture = None,
    csv: Csv = None,
    npz: Npz = None,
    library: LibraryFile = None,
    as_json: Json = False,
    quiet: Quiet = False,
    trust: Trust = False,
) -> None:
    (files := Files(picture, csv, npz)).check(file if source == "show" else out)
    if source == "show":
        show(file, files, as_json=as_json)
    if file is not None:
        raise WrongRequest(f"{file} is one name too many; allowed: gradstudio map SOURCE --out FILE.map, or map show")
    if not out:
        raise WrongRequest("--out is missing: gradstudio map SOURCE --out FILE.map")
    if (workers > 0) + bool(on) + bool(place) > 1:
        raise WrongRequest("--workers, --on and --place do not go together: a cluster or a place has its own workers")
    request = read_request(
        source, library, assignments, changes, {"run.steps": steps, "run.seed": seed, "run.device": device},
        beginning=True
    )  # fmt: skip
    plan = _plan(request, x, y, by, cells, seeds, whole=full, shortened=not steps, trusted=trust)
    with cells_at(place) if place else nullcontext() as there:
        make(plan, out, files, resume=resume, workers=workers, on=on, there=there, as_json=as_json, quiet=quiet)


def _plan(
    request: Request, x: str, y: str, by: str, cells: int | None, seeds: int, *,
    whole: bool, shortened: bool, trusted: bool,
) -> Plan:  # fmt: skip
    """Return the requested plan, or the one proposed by the preset, once its studio files are agreed to."""
    from gradstudio.session import own_model
    from gradstudio.session.map.map_plan import read_plan

    preset = request.preset.model_copy(update={"experiment": request.experiment, "timeline": request.timeline})
    proposed, own_panels = request.preset.map, bool(by)
    if proposed and not (x or y):
        x, y, by = proposed.x, proposed.y, by or proposed.by
        if proposed.steps and shortened and request.experiment.run.steps == request.preset.experiment.run.steps:
            shorter = request.experiment.with_value("run.steps", proposed.steps)
            preset = preset.model_copy(update={"experiment": shorter})
    for option, axis in (("--x", x), ("--y", y)):
        if not axis:
            raise WrongRequest(f"{option} is missing: gradstudio map SOURCE --x KNOB=FROM:TO --y ... --out FILE.map")
    usual = proposed.cells if proposed else CELLS
    plan = read_plan(preset, x, y, usual if cells is None else cells, by, seeds, full=whole)
    for each in plan.of_panels if own_panels else ():
        own_model.agree_to_own(each, {plan.by: each[plan.by]})
    agree(*plan.of_panels, trusted=trusted)
    return plan


def make(
    plan: Plan, out: Path, files: Files, *, resume: bool, workers: int, on: str, there: PlaceCells | None,
    as_json: bool, quiet: bool,
) -> NoReturn:  # fmt: skip
    """Make a map, write its files, report the outcome, and exit with its exit code."""
    from gradstudio.session.map import journal
    from gradstudio.session.map.mapper import Mapper
    from gradstudio.session.running import interrupts

    mapper = Mapper(plan, out, resume=resume, size=workers, cluster=on, there=there)
    with interrupts.stopping(mapper.stop) as signals:
        mapper.start()
        _watch(mapper, quiet=quiet)
        while mapper.is_alive() and not signals.overdue:
            mapper.join(LOOK)
    if mapper.status == "failed":
        if mapper.failure:
            complain_at_length(mapper.failure)
        complain(f"error: {mapper.message}")
        raise typer.Exit(exit_codes.WRONG_REQUEST if mapper.refused else exit_codes.FAILED)
    stored = journal.load(out)
    files.write(stored)
    _say(stored, out, as_json=as_json, quiet=quiet)
    if mapper.status != "finished":
        if not quiet:
            complain(f"interrupted; --resume goes on with {out}")
        raise typer.Exit(exit_codes.INTERRUPTED)
    raise typer.Exit(_code(stored))


def show(file: Path | None, files: Files, *, as_json: bool) -> NoReturn:
    """Print what a map contains."""
    from gradstudio.session.map import journal

    if file is None:
        raise WrongRequest("no map to show; allowed: gradstudio map show FILE.map")
    stored = journal.load(file)
    files.write(stored)
    _say(stored, file, as_json=as_json, quiet=False)
    raise typer.Exit(0)


def _code(stored: JournalContent) -> int:
    failed = any(trained.outcome == "failed" for trained in stored.results.values())
    return exit_codes.FAILED if failed else exit_codes.FINISHED


def _say(stored: JournalContent, path: Path, *, as_json: bool, quiet: bool) -> None:
    from gradstudio.session.map import tables
    from gradstudio.session.map.map_texts import in_words

    if as_json:
        say_json(tables.as_json(stored, path))
    elif not quiet:
        say(in_words(stored))


def _watch(mapper: Mapper, *, quiet: bool) -> None:
    """Show the progress of the map on stderr, until it has ended: a bar on a terminal, elsewhere a line for each
    level."""
    if quiet:
        return
    if not sys.stderr.isatty():
        _tell_levels(mapper)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns: tuple[Any, ...] = (
        TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(),
        TextColumn("{task.fields[left]}", markup=False),
    )  # fmt: skip
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("preparing", total=None, left="")
        while mapper.is_alive():
            mapper.join(LOOK)
            now = mapper.progress
            left = "" if now.seconds_left is None else f"{duration(now.seconds_left)} left in this level"
            if now.level:
                bar.update(task, description=f"level {now.level}", completed=now.done, total=now.of, left=left)


def _tell_levels(mapper: Mapper) -> None:
    told, begun = 0, time.monotonic()
    while mapper.is_alive():
        mapper.join(LOOK)
        now = mapper.progress
        # with the time left, once some cells are known
        if now.level > told and (now.seconds_left is not None or now.done == now.of):
            told = now.level
            left = "" if now.seconds_left is None else f", about {duration(now.seconds_left)}"
            complain(f"level {now.level}: {now.of:,} runs{left} ({duration(time.monotonic() - begun)} so far)")
