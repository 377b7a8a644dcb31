"""What a command is asked to train: a preset, a file, a folder of a run or a run, with changes."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from gradstudio.commands.options import library_file, open_library, tell_unseen
from gradstudio.commands.terminal import WrongRequest
from gradstudio.core import files

if TYPE_CHECKING:
    from gradstudio.core.events import Change
    from gradstudio.core.experiment import Experiment
    from gradstudio.core.presets import Preset
    from gradstudio.session.record.run import Run

LARGEST_SUMMARY = 10_000_000  # bytes of a run.json
LONGEST_STEP = 18  # digits


class Request(NamedTuple):
    """The requested experiment, with its live changes. `threads`: the CPU threads of the run that is repeated, or
    empty."""

    preset: Preset
    experiment: Experiment
    timeline: tuple[Change, ...]
    threads: str


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
