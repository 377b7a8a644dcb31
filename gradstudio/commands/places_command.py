"""`gradstudio places` lists, adds, removes and queries places: where a run can be trained."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from gradstudio.commands import exit_codes
from gradstudio.commands.options import HELP, Json
from gradstudio.commands.terminal import complain, say, say_json, table

if TYPE_CHECKING:
    from gradstudio.core.worker_places import Place
    from gradstudio.session.machine.place_search import PlaceAnswer
    from gradstudio.session.map.place_cells import PlaceCells
    from gradstudio.session.remote.place_library import PlaceLibrary
    from gradstudio.session.remote.remote_backend import RemoteBackend

app = typer.Typer(
    help="Places where a run can be trained: another Python, machine or container.", context_settings=HELP,
    rich_markup_mode=None,
)  # fmt: skip
Elsewhere = Annotated[
    str, typer.Option("--place", metavar="NAME", help="The run library of this place; see `gradstudio places`.")
]
PlaceName = Annotated[
    str, typer.Option("--place", metavar="NAME", help="Train at this place; see `gradstudio places`.")
]
KEEP_HELP = "Where the connection breaks, a run goes on there; `gradstudio open NAME` follows it."
Keep = Annotated[bool, typer.Option("--keep", help=KEEP_HELP)]
Name = Annotated[str, typer.Argument(metavar="NAME", help="The name of the place.")]


@app.callback(invoke_without_command=True)
def without_command(context: typer.Context, as_json: Json = False) -> None:
    if context.invoked_subcommand is None:
        list_places(as_json)


@app.command("list", help="List the places, as without a command.")
def list_places(as_json: Json = False) -> None:
    places = list(_places().values())
    if as_json:
        say_json([vars(place) for place in places])
    elif places:
        table(("Place", "Command", ""), [(place.name, place.command, "keeps runs" * place.keep) for place in places])
    else:
        complain('no places yet; such as: gradstudio places add lab "ssh lab"')


@app.command("add", help="Add a place, or give one another command. Nothing is run.")
def add(
    name: Name,
    command: Annotated[
        str,
        typer.Argument(
            metavar="COMMAND",
            help='What leads to GradStudio there: "ssh lab", "~/proj/.venv/bin/python", "docker exec -i box".',
        ),
    ],
    keep: Keep = False,
) -> None:
    from gradstudio.core import worker_places

    place = worker_places.add(name, command, keep=keep)
    say(f"added {name}; `gradstudio places check {name}` runs: {' '.join(place.words('doctor', '--json'))}")


@app.command("remove", help="Forget a place.")
def remove(name: Name) -> None:
    from gradstudio.core import worker_places

    worker_places.remove(name)
    say(f"removed {name}")


@app.command("check", help="Ask places what they have; all of them without a name. Exit code: 0 all well, 1 a problem.")
def check(names: Annotated[list[str] | None, typer.Argument(metavar="NAME...")] = None, as_json: Json = False) -> None:
    from gradstudio.session.machine import place_search

    asked = [find(name) for name in names] if names else list(_places().values())
    with ThreadPoolExecutor(max(len(asked), 1)) as threads:
        answers = list(threads.map(place_search.ask, asked))
    if as_json:
        say_json([_as_json(place, answer) for place, answer in zip(asked, answers, strict=True)])
    for place, answer in [] if as_json else zip(asked, answers, strict=True):
        say(f"{place.name}: {answer.problem or answer.versions}")
        for device in answer.devices:
            say(f"  {device.id}: {device.in_words}")
    raise typer.Exit(exit_codes.FAILED if any(answer.problem for answer in answers) else exit_codes.FINISHED)


def find(name: str) -> Place:
    """Return the place with this name. PlaceError if there is none."""
    from gradstudio.core import worker_places

    return worker_places.find(name)


def backend_at(name: str, *, keep: bool = False) -> RemoteBackend:
    """Return the backend for the place with this name. `keep`: runs continue there if the connection breaks. PlaceError
    if there is none."""
    place = find(name)
    place = replace(place, keep=place.keep or keep)
    from gradstudio.session.remote import remote_backend

    return remote_backend.at(place)


@contextmanager
def library_at(name: str) -> Iterator[PlaceLibrary]:
    """Open the run library of the place with this name. PlaceError if there is none."""
    from gradstudio.session.remote.place_library import PlaceLibrary

    with closing(backend_at(name)) as backend:
        yield PlaceLibrary(find(name), backend)


@contextmanager
def cells_at(name: str) -> Iterator[PlaceCells]:
    """Have the cells of a map trained at the place of this name. PlaceError if there is none."""
    from gradstudio.session.map.place_cells import PlaceCells

    with closing(backend_at(name)) as backend:
        yield PlaceCells(find(name), backend)


def _places() -> dict[str, Place]:
    from gradstudio.core import worker_places

    return worker_places.read()


def _as_json(place: Place, answer: PlaceAnswer) -> dict[str, object]:
    devices = [vars(device) for device in answer.devices]
    return {"name": place.name, "problem": answer.problem, "versions": answer.versions, "devices": devices}
