"""The sections of a report on how a run was configured and how to repeat it."""

from __future__ import annotations

import shlex
import time

from gradstudio.core.knobs import format_value
from gradstudio.session.files import run_files
from gradstudio.session.files.report.blocks import Block, Code, Fold, Prose, Section, Table
from gradstudio.session.record.run import Run


def script_section(run: Run) -> Section | None:
    """Return the watched script, and what was read from it; None for a run of the studio."""
    script = run.watched
    if script is None:
        return None
    every = [("recorded", script.rows_in_words)] if script.every > 1 else []
    rows = [("script", script.script), ("arguments", shlex.join(script.arguments)), ("sha256", script.sha256)]
    if script.log:
        rows = [("log", script.script)]
    told = tuple(row for row in (*rows, *every, *script.facts) if row[1])
    title = "The log" if script.log else "The script"
    return Section("watched", title, (Table(("fact", "value"), told, (0.25, 0.75), code=(1,)),))


def knobs(run: Run) -> Section | None:
    """Return the knobs that were set, and how many are at their default. None for a watched run, which has none."""
    if run.watched is not None:
        return None
    set_rows, at_default = [], 0
    groups: set[str] = set()
    for knob, value in run.experiment.items():
        now = run.in_force[knob.name]
        if value == knob.default and now == value:
            at_default += 1
            continue
        if knob.group not in groups:
            groups.add(knob.group)
            set_rows.append((knob.group,))
        idle = "" if run.experiment.applies(knob.name) or run.in_force.applies(knob.name) else " (no effect here)"
        set_rows.append(
            (
                f"● {knob.name}",
                format_value(value) + idle,
                format_value(now) if now != value else "",
                format_value(knob.default),
            )
        )
    blocks: list[Block] = []
    if set_rows:
        blocks.append(Prose("● differs from its default, at the start or by a change on the way.", dim=True))
        blocks += _against_the_preset(run)
        blocks.append(
            Table(
                ("knob", "at the start", "changed to", "default"),
                tuple(set_rows),
                (0.37, 0.27, 0.18, 0.18),
                code=(0, 1, 2, 3),
            )
        )
    others = "every other knob" if set_rows else "every knob"
    blocks.append(Prose(f"{others.capitalize()}, {at_default} in all, is at its default.", dim=True))
    return Section("knobs", "Knobs", tuple(blocks))


def _against_the_preset(run: Run) -> list[Block]:
    """Return the knobs that differ from the preset; empty if none does."""
    preset = run.preset.experiment
    rows = [
        (knob.name, format_value(preset[knob.name]), format_value(value))
        for knob, value in run.experiment.items()
        if preset[knob.name] != value
    ]
    if not rows:
        return []
    table = Table(("knob", "in the preset", "in this run"), tuple(rows), (0.4, 0.3, 0.3), code=(0, 1, 2))
    return [Prose("Different from the preset:"), table, Prose("Different from the defaults:")]


def environment(run: Run) -> Section:
    """Return where and when the run was made."""
    line = [("branch of", run.parent), ("from step", f"{run.parent_step:,}")] if run.parent else []
    rows = [
        ("run", run.id),
        *line,
        ("started", time.strftime("%Y-%m-%d %H:%M:%S %z", time.localtime(run.started))),
        *run.environment.items(),
    ]
    return Section("environment", "Environment", (Table(("fact", "value"), tuple(rows), (0.25, 0.75), code=(1,)),))


def repeat(run: Run) -> Section | None:
    """Return how to repeat the run; None for a watched run, which only its script can repeat."""
    if run.watched is not None:
        return None
    blocks: list[Block] = []
    if run.preset.bundled:
        blocks += [Prose("From the bundled preset:"), Code(command(run))]
    blocks += [
        Prose(f"{'Or from' if run.preset.bundled else 'From'} this file, saved as experiment.toml:"),
        Code("gradstudio run experiment.toml"),
        Code(run_files.experiment_toml(run).strip()),
        Prose("The same experiment, changes, seed and device give the same run: bit for bit on the CPU.", dim=True),
        *(
            [Prose("This repeats it from step 0 on, with the changes of the run that it branched from.", dim=True)]
            if run.parent
            else []
        ),
    ]
    return Section("repeat", "How to repeat it", tuple(blocks))


def script(run: Run) -> Section | None:
    """Return the program that repeats the run without GradStudio; None for a watched run."""
    if run.watched is not None:
        return None
    about = "Plain PyTorch, without GradStudio. It prints step, loss and gradient norm, and repeats this run."
    listing = Fold(
        "train.py",
        run_files.train_py(run),
        "It is train.py among the run's files, and what this prints: gradstudio script experiment.toml",
        True,
    )
    return Section("script", "The script", (Prose(about), listing))


def command(run: Run) -> str:
    """Return the command line that makes the run from its preset."""
    words = ["gradstudio", "run", run.preset.id]
    flags = {"run.steps": "--steps", "run.seed": "--seed", "run.device": "--device"}
    for knob, value in run.experiment.items():
        if value != run.preset.experiment[knob.name]:
            words += (
                [flags[knob.name], format_value(value)]
                if knob.name in flags
                else ["--set", f"{knob.name}={format_value(value)}"]
            )
    if "--seed" not in words:
        words += ["--seed", str(run.experiment.run.seed)]
    for change in list(run.timeline):
        if change not in run.preset.timeline:
            words += ["--at", f"{change.step}:{change.knob}={format_value(change.value)}"]
    return shlex.join(words)
