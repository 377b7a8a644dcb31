"""`gradstudio branch` continues a run from one of its steps, as another run with changes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from gradstudio.commands import exit_codes
from gradstudio.commands.agreement import Trust, agree
from gradstudio.commands.options import (
    Compared,
    Json,
    LibraryFile,
    Out,
    Quiet,
    Report,
    TryFixes,
    library_file,
    open_library,
)
from gradstudio.commands.request import asked_changes, check_own, compared_steps, run_of_folder
from gradstudio.commands.terminal import WrongRequest, complain
from gradstudio.commands.training import NOTHING_MADE, OutputOptions, carry_out, hint_at_threads
from gradstudio.core.text import plural

if TYPE_CHECKING:
    from gradstudio.core.events import Change
    from gradstudio.session.record.run import Run
    from gradstudio.session.running.backend import LocalFamily


class Parent(NamedTuple):
    """The run that is branched from, with its rows if the library has them; the number of its steps, and its
    environment."""

    run: Run
    steps: int
    environment: Mapping[str, str]


Source = Annotated[
    str,
    typer.Argument(
        metavar="RUN", help="A run of the library: its id, the beginning of one, or last. Or a folder that --out wrote."
    ),
]
Step = Annotated[
    int,
    typer.Option(
        "--step", metavar="N", help="The first step that is made anew; the steps before it are those of the run."
    ),
]
Assignments = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KNOB=VALUE", help="Change a live knob at step N, after the run's own changes. Repeatable."
    ),
]
Changes = Annotated[
    list[str] | None,
    typer.Option("--at", metavar="STEP:KNOB=VALUE", help="Change a live knob at a later step. Repeatable."),
]
Steps = Annotated[
    int | None,
    typer.Option(
        "--steps", metavar="M", help="Optimizer steps in all, with those before N; without it, as many as the run."
    ),
]
Seed = Annotated[
    int | None, typer.Option("--seed", metavar="S", help="A branch has its run's seed: only that one is allowed.")
]
Device = Annotated[
    str | None, typer.Option("--device", metavar="D", help="A branch has its run's device: only that one is allowed.")
]


def branch(
    source: Source,
    step: Step,
    assignments: Assignments = None,
    changes: Changes = None,
    compare: Compared = None,
    steps: Steps = None,
    seed: Seed = None,
    device: Device = None,
    out: Out = None,
    report: Report = "",
    try_fixes: TryFixes = False,
    library: LibraryFile = None,
    as_json: Json = False,
    quiet: Quiet = False,
    trust: Trust = False,
) -> None:
    """Continue a run from one of its steps with live knobs changed. The steps before are those of the run, to the last
    bit. Changes that were planned for later still come; those made by hand do not. Exit codes as for run."""
    from gradstudio.core import ranks_allowed, threads
    from gradstudio.session.library import stored_snapshots
    from gradstudio.session.record.branches import fork
    from gradstudio.session.running.backend import LocalFamily

    output = OutputOptions(out, report, library, as_json, quiet, try_fixes)
    parent = _parent(source, library)
    ranks_allowed.check_alone(parent.run.experiment, "a run has no branches")
    total = _total_steps(parent, step, steps)
    _check_same(parent, "seed", seed)
    _check_same(parent, "device", device)
    asked = _requested_changes(parent.run, step, total, assignments or [], changes)
    compare_at = compared_steps(compare, step, total)
    output.check()
    agree(parent.run.experiment, trusted=trust)
    hint_at_threads(threads.of(parent.environment), output)
    family = LocalFamily(stored=partial(stored_snapshots.read, library_file(library)))
    stood = parent.run if step <= len(parent.run.history) else _repeat(parent.run, step, output, family)
    record = fork(stood, step, experiment=parent.run.experiment, steps=total, changes=asked, compare_at=compare_at)
    carry_out(record, output, family)


def _parent(source: str, library: Path | None) -> Parent:
    """Return the run with that name; WrongRequest or LibraryError if there is none."""
    if os.path.isdir(source):
        return _of_folder(Path(source))
    with open_library(library) as store:
        run = store.load(store.find(source))
    check_own(run)
    return Parent(run, len(run.history), run.environment)


def _of_folder(folder: Path) -> Parent:
    """Return the run that was written into a folder, as it was before its first step: the folder has its rows, but not
    the states that a branch needs."""
    from gradstudio.core import presets
    from gradstudio.session.record.run import Run

    told = run_of_folder(folder)
    run, steps, title, environment = (told.get(name) for name in ("run", "steps", "title", "environment"))
    there = os.path.isfile(folder / "experiment.toml")
    if not (isinstance(run, str) and run and type(steps) is int and steps >= 0 and there):
        raise WrongRequest(
            f"{str(folder)[:80]} is no folder of a run; allowed: one with experiment.toml and run.json, as --out "
            "writes them"
        )
    preset = presets.load(folder / "experiment.toml")
    record = Run(preset, preset.experiment, preset.timeline, id=run, name=title if isinstance(title, str) else "")
    return Parent(record, steps, environment if isinstance(environment, dict) else {})


def _total_steps(parent: Parent, step: int, asked: int | None) -> int:
    """Return how many steps the branch will have, including those before it."""
    if not 0 <= step <= parent.steps:
        raise WrongRequest(
            f"--step {step} is not allowed: {parent.run.id} made {plural(parent.steps, 'step', 'steps')}; allowed: 0 "
            f"to {parent.steps}"
        )
    experiment = parent.run.experiment if asked is None else parent.run.experiment.with_value("run.steps", asked)
    if experiment.run.steps <= step:
        raise WrongRequest(f"--step {step} leaves nothing to train, as the branch ends at step "
            f"{experiment.run.steps}; "
                           f"allowed: an earlier step, or --steps {step + 1} or more")  # fmt: skip
    return experiment.run.steps


def _check_same(parent: Parent, name: str, asked: int | str | None) -> None:
    """Raise WrongRequest for a seed or device other than that of the run."""
    own = parent.run.experiment[f"run.{name}"]
    if asked is not None and asked not in (own, parent.environment.get(name)):
        raise WrongRequest(
            f"--{name} {asked} is not allowed: a branch has its run's, {own}; "
            f"`gradstudio run {parent.run.id} --{name} {asked}` repeats the whole run with another"
        )


def _requested_changes(
    run: Run, step: int, total: int, assignments: list[str], changes: list[str] | None
) -> tuple[Change, ...]:
    """Return the branch's own changes in order, checked together with the earlier ones and those still to come."""
    from gradstudio.core.experiment import KNOBS, parse_assignment
    from gradstudio.core.knobs import KnobError
    from gradstudio.core.planned_changes import read_timeline
    from gradstudio.session.record.branches import fork

    experiment = run.experiment
    course = (fork(run, step) if step <= len(run.history) else run).course
    at_once = [
        {"step": step, "knob": name, "value": value}
        for name, value in dict(parse_assignment(text, experiment) for text in assignments).items()
    ]
    entries = [
        *({"step": change.step, "knob": change.knob, "value": change.value} for change in course),
        *at_once,
        *asked_changes(changes, step, experiment.with_value("run.steps", total)),
    ]
    for entry in entries:
        if not (knob := experiment.find_knob(entry["knob"])).live:
            live = ", ".join(other.name for other in KNOBS.values() if other.live and other.section == knob.section)
            raise WrongRequest(f"{knob.name} acts on restart and cannot change in a branch; allowed: a live "
                f"knob{f', such as {live}' if live else ''}; "
                               "--steps lengthens the run")  # fmt: skip
    try:
        timeline = read_timeline(entries, run.experiment)
    except KnobError as fault:
        place, _, text = str(fault).removeprefix("timeline.").partition(": ")
        late = (
            ""
            if int(place) >= len(course)
            else f"the change that is planned at step {entries[int(place)]['step']} does not go with it: "
        )
        raise WrongRequest(late + text) from None
    order = sorted(range(len(entries)), key=lambda place: entries[place]["step"])
    return tuple(change for place, change in zip(order, timeline, strict=True) if place >= len(course))


def _repeat(run: Run, step: int, wanted: OutputOptions, family: LocalFamily) -> Run:
    """Return the run, repeated from its beginning: one step further than needed, so that every change before that step
    is made."""
    from gradstudio.session.record.run import Run
    from gradstudio.session.running import foreground

    again = Run(run.preset, run.experiment.with_value("run.steps", step + 1), run.planned, id=run.id, name=run.name)
    foreground.train(again, progress=wanted.progress, family=family)
    if again.status in ("failed", "stopped"):
        complain(f"error: {again.message}" if again.status == "failed" else NOTHING_MADE.format(step))
        raise typer.Exit(exit_codes.of_run(again))
    if len(again.history) < step:
        raise WrongRequest(
            f"--step {step} is not allowed: made again here, {run.id} diverged at step {again.first_nonfinite_step}"
        )
    return again
