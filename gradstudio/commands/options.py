"""The options that several commands share, and how their values are read."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from gradstudio.commands.terminal import WrongRequest, complain
from gradstudio.core import files

if TYPE_CHECKING:
    from gradstudio.core.events import Change
    from gradstudio.core.experiment import Experiment
    from gradstudio.core.presets import Preset
    from gradstudio.session.library.store import Library
    from gradstudio.session.record.run import Run

LARGEST_SUMMARY = 10_000_000  # bytes of a run.json
LONGEST_STEP = 18  # digits
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
    str,
    typer.Argument(metavar="RUN", help="A run's id, the beginning of one, or last.", autocompletion=known_runs),
]


class Request(NamedTuple):
    """The requested experiment, with its live changes. `threads`: the CPU threads of the run that is repeated, or
    empty."""

    preset: Preset
    experiment: Experiment
    timeline: tuple[Change, ...]
    threads: str


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


def read_request(
    source: str,
    library: Path | None,
    assignments: list[str] | None,
    changes: list[str] | None,
    flags: dict[str, Any],
    *,
    beginning: bool,
) -> Request:
    """Return a preset, a file, a folder of a run or a run of the library, with the requested changes. `beginning`: the
    beginning of a run's id is enough. PresetError, KnobError, LibraryError or WrongRequest otherwise."""
    from gradstudio.core.experiment import parse_assignment
    from gradstudio.session import own_model

    preset, threads = _load(source, library, beginning=beginning)
    given = {name: value for name, value in flags.items() if value is not None}
    values = dict(parse_assignment(text, preset.experiment) for text in assignments or [])
    experiment = preset.experiment.with_values({**values, **given})
    own_model.agree_to_own(experiment, values)
    planned = _planned_changes(preset, changes or [], experiment)
    tell_unseen()
    return Request(preset, experiment, planned, threads)


def tell_unseen() -> None:
    """Report which of the user's own files are inaccessible: they are in another user's folder."""
    from gradstudio.core import presets

    if unseen := [why for why in (presets.why_unreachable(), files.why_unreachable(files.user_rules())) if why]:
        complain(f"left out: {'; '.join(unseen)}")


def asked_changes(changes: list[str] | None, first: int, experiment: Experiment) -> list[dict[str, Any]]:
    """Return the changes of --at as entries of a timeline; WrongRequest for one before the step `first` or after the
    end of the run."""
    from gradstudio.core.experiment import parse_assignment

    entries, steps = [], experiment.run.steps
    for text in changes or []:
        step, colon, assignment = text.partition(":")
        if not colon or not (step.isascii() and step.isdecimal() and len(step) <= LONGEST_STEP):
            raise WrongRequest(
                f"--at {text[:80]} is not allowed; allowed: STEP:KNOB=VALUE, such as 100:optimizer.lr=0.01"
            )
        if int(step) < first:
            raise WrongRequest(f"--at {text[:80]} comes before the branch begins; its first step is {first}")
        if int(step) >= steps:
            raise WrongRequest(f"--at {text[:80]} comes after the end of the run; its last step is {steps - 1}")
        name, value = parse_assignment(assignment, experiment)
        entries.append({"step": int(step), "knob": name, "value": value})
    return entries


def compared_steps(asked: list[int] | None, first: int, steps: int) -> tuple[int, ...]:
    """Return the steps of --compare; WrongRequest for a step that the run does not make."""
    for step in asked or []:
        if step < first:
            raise WrongRequest(f"--compare {step} comes before the branch begins; its first step is {first}")
        if step >= steps:
            raise WrongRequest(f"--compare {step} comes after the end of the run; its last step is {steps - 1}")
    return tuple(asked or [])


def run_of_folder(folder: Path) -> dict[str, Any]:
    """Return the content of run.json in this folder; empty if there is none, or it cannot be read."""
    try:
        data = files.read_bounded(folder / "run.json", LARGEST_SUMMARY)
        content = json.loads(data) if len(data) <= LARGEST_SUMMARY else {}
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def threads_of_folder(folder: Path) -> str:
    """Return the CPU threads of the run in this folder; empty if unknown."""
    from gradstudio.core import threads

    environment = run_of_folder(folder).get("environment")
    return threads.of(environment) if isinstance(environment, dict) else ""


def _load(source: str, library: Path | None, *, beginning: bool) -> tuple[Preset, str]:
    """Return the preset, file, folder or run with this name, and the CPU threads that it ran with. Presets come first,
    then the file system, then the library."""
    from gradstudio.core import presets

    if source in {path.stem for path in presets.available()}:
        return presets.load(source), ""
    if os.path.isfile(os.path.join(source, "experiment.toml")):
        return presets.load(Path(source, "experiment.toml")), threads_of_folder(Path(source))
    if source.lower().endswith((".toml", ".py")) or os.path.isfile(source):
        return presets.load(source), ""
    if stored := _run_of_library(source, library, beginning=beginning):
        return stored
    if os.path.isdir(source):
        raise WrongRequest(
            f"{source[:80]} is no folder of a run: it has no experiment.toml; allowed: one that --out wrote, a TOML "
            "file, a preset"
        )
    try:
        return presets.load(source), ""
    except presets.PresetError as fault:
        raise presets.PresetError(
            f"{fault}, or {'' if beginning else 'the whole id of '}a run of the library (`gradstudio runs`)"
        ) from None


def _run_of_library(source: str, asked: Path | None, *, beginning: bool) -> tuple[Preset, str] | None:
    """Return the run of the library with this name, as a preset with every change that was made to it; None if there is
    none."""
    from gradstudio.core import threads
    from gradstudio.session.files.run_files import as_preset
    from gradstudio.session.library.store import library_exists

    if source != "last" and not library_exists(library_file(asked)):
        return None

    with open_library(asked) as library:
        if source != "last" and not any(
            entry.id == source or (beginning and entry.id.startswith(source)) for entry in library.entries()
        ):
            return None
        run = library.load(library.find(source))
    check_own(run)
    return as_preset(run), threads.of(run.environment)


def check_own(run: Run) -> None:
    """Raise WrongRequest for a run made by a user's script rather than the studio."""
    if run.watched is not None:
        raise WrongRequest(
            f"{run.id} is a watched run, which only its script can make again; "
            "`gradstudio report` and `gradstudio runs show` tell what was measured"
        )


def _planned_changes(preset: Preset, changes: list[str], experiment: Experiment) -> tuple[Change, ...]:
    """Return the preset's own changes and those of --at, in the order of their steps."""
    from gradstudio.core.knobs import KnobError
    from gradstudio.core.planned_changes import read_timeline

    entries = [{"step": change.step, "knob": change.knob, "value": change.value} for change in preset.timeline]
    try:
        return read_timeline([*entries, *asked_changes(changes, 0, experiment)], experiment)
    except KnobError as fault:
        raise WrongRequest(re.sub(r"^timeline\.\d+: ", "--at: ", str(fault))) from None


def formats(option: str, text: str, known: tuple[str, ...]) -> list[str]:
    """Return the formats in a comma-separated list; WrongRequest for an unknown one."""
    asked = [part.strip().lower() for part in text.split(",") if part.strip()]
    for part in asked:
        if part not in known:
            raise WrongRequest(
                f"{option} {part[:40]} is not allowed; allowed: {', '.join(known)}, or several with a comma between"
            )
    return list(dict.fromkeys(asked))
