"""The options that several commands share, and how the library is opened."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gradstudio.commands.terminal import WrongRequest, complain
from gradstudio.core import files

if TYPE_CHECKING:
    from gradstudio.session.library.store import Library

SPARE = 1 << 20  # bytes of a disk that is not full
ROOM_TO_DELETE = 64 << 20  # bytes, where the library has so many

HELP = {"help_option_names": ["-h", "--help"]}

Json = Annotated[bool, typer.Option("--json", help="Print JSON, and nothing else.")]
Assignments = Annotated[list[str] | None, typer.Option("--set", metavar="KNOB=VALUE", help="Set a knob. Repeatable.")]
Changes = Annotated[
    list[str] | None,
    typer.Option("--at", metavar="STEP:KNOB=VALUE", help="Change a live knob at that step. Repeatable."),
]
Steps = Annotated[int | None, typer.Option(metavar="N", help="Optimizer steps.")]
Seed = Annotated[int | None, typer.Option(metavar="S", help="Seed of weights, batches and noise.")]
Device = Annotated[str | None, typer.Option(metavar="D", help="auto, cpu, cuda:0, mps; see `gradstudio devices`.")]
Compared = Annotated[
    list[int] | None,
    typer.Option(
        "--compare",
        metavar="STEP",
        min=0,
        help="Compare the accumulated gradient of that step with that of one large batch. Repeatable.",
    ),
]
Out = Annotated[Path | None, typer.Option("--out", metavar="DIR", help="Write the run's files here.")]
Report = Annotated[
    str,
    typer.Option(
        "--report",
        metavar="FORMATS",
        help="Write a report: html, pdf or html,pdf. Without --out, into a folder named as the run.",
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]
TryFixes = Annotated[
    bool,
    typer.Option(
        "--try-fixes",
        help="If the run diverges or has a critical finding, try each remedy from the last healthy step, and rank "
        "them.",
    ),
]
LibraryFile = Annotated[
    Path | None,
    typer.Option(
        "--library", metavar="FILE", help="The run library. Without it $GRADSTUDIO_LIBRARY, or the user's own."
    ),
]


def known_runs(begun: str) -> list[str]:
    """Return the runs that a shell offers as completions."""
    from contextlib import closing, suppress

    from gradstudio.session.library.library_faults import LibraryError
    from gradstudio.session.library.store import Library, library_exists

    with suppress(LibraryError):
        if library_exists(files.user_library()):
            with closing(Library(files.user_library())) as library:
                return [entry.id for entry in library.entries() if entry.id.startswith(begun)]
    return []


RunName = Annotated[
    str, typer.Argument(metavar="RUN", help="A run's id, the beginning of one, or last.", autocompletion=known_runs)
]

RunNames = Annotated[
    list[str], typer.Argument(metavar="RUN...", help="Runs: the id of each, the beginning of one, or last.")
]


def library_file(path: Path | None) -> Path:
    """Return the library file, and set it for the whole program; it need not exist."""
    if path is not None:
        _check_library(path)
        try:
            os.environ["GRADSTUDIO_LIBRARY"] = str(path.absolute())
        except OSError as fault:  # the folder that it is relative to is gone
            raise WrongRequest(f"--library {path}: {files.reason(fault)}") from None
    return files.user_library()


def _check_library(path: Path) -> None:
    """Raise WrongRequest for an impossible library. One that is inaccessible is reported when it is opened."""
    try:
        files.check_kind(path)
    except (NotADirectoryError, PermissionError):
        return
    except (OSError, ValueError) as fault:  # ValueError: a name that no file can have
        raise WrongRequest(f"--library {path}: {files.reason(fault)}") from None


@contextmanager
def open_library(asked: Path | None, *, room: int = SPARE) -> Iterator[Library]:
    """Open the library while the command reads it; LibraryError if there is none. `room`: bytes that the command would
    write beside it."""
    from gradstudio.session.library.library_faults import LibraryError
    from gradstudio.session.library.store import Library, library_exists

    path = library_file(asked)
    if not library_exists(path):
        raise LibraryError(f"there is no run library {path}; `gradstudio run` begins it")
    # a full disk rejects the files that SQLite writes beside the library
    full = shutil.disk_usage(path.parent).free < min(room, os.path.getsize(path) + SPARE)
    library = Library(path, on_full_disk=full)
    told = ""
    try:
        if told := library.notice:
            complain(told)
        if library.lacks:
            complain(library.lacks)
        yield library
    finally:
        if library.notice != told:  # the command itself found the damage
            complain(library.notice)
        library.close()


def tell_unseen() -> None:
    """Report which of the user's own files are inaccessible: they are in another user's folder."""
    from gradstudio.core import presets

    if unseen := [why for why in (presets.why_unreachable(), files.why_unreachable(files.user_rules())) if why]:
        complain(f"left out: {'; '.join(unseen)}")


def formats(option: str, text: str, known: tuple[str, ...]) -> list[str]:
    """Return the formats in a comma-separated list; WrongRequest for an unknown one."""
    asked = [part.strip().lower() for part in text.split(",") if part.strip()]
    for part in asked:
        if part not in known:
            raise WrongRequest(
                f"{option} {part[:40]} is not allowed; allowed: {', '.join(known)}, or several with a comma between"
            )
    return list(dict.fromkeys(asked))
