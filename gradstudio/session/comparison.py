"""Several runs held against each other, as plain data: the knobs and the surroundings that differ, the figures side by side, and from
which step on the losses do. Command line, window and report all read this."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, TypeVar

import numpy as np

from gradstudio.core.events import Change
from gradstudio.core.history import BLOCK
from gradstudio.core.knobs import Value, format_value
from gradstudio.core.text import number, plural
from gradstudio.session.run import Run, Status
from gradstudio.session.summary import Figures, figures, ranked
from gradstudio.session.wording import percent

FEWEST, MOST = 2, 8  # runs that can be held against each other
CURVES = ("loss", "grad_norm")  # columns of the history that are written side by side

# What is compared of the figures, and what it is called.
LABELS = {
    "outcome": "outcome", "steps": "steps", "first_nonfinite_step": "non-finite at step", "initial_loss": "loss at the start",
    "final_loss": "loss at the end", "best_loss": "best loss", "accuracy": "accuracy", "peak_grad_norm": "largest gradient norm",
    "clipped_share": "steps clipped", "skipped_steps": "updates skipped", "final_scale": "loss scale at the end", "seconds": "seconds in steps",
}  # fmt: skip
_SHARES = ("accuracy", "clipped_share")

_Kind = TypeVar("_Kind")


class ComparisonError(ValueError):
    """Runs that cannot be held against each other. One line, fit for a person."""


@dataclass(frozen=True)
class Setting:
    """A knob that is not the same in all runs: what it began with, the changes made to it, and whether it had an effect; each of every
    run, in their order."""

    knob: str
    values: tuple[Value, ...]
    changes: tuple[tuple[Change, ...], ...]
    applies: tuple[bool, ...]

    def texts(self) -> list[str]:
        """'0.1', or '0.1; 0.05 from step 100', of every run."""
        told = []
        for value, changes, applies in zip(self.values, self.changes, self.applies, strict=True):
            later = [f"; {format_value(change.value)} from step {change.step:,}" for change in changes]
            told.append(format_value(value) + "".join(later) + ("" if applies else " (no effect)"))
        return told


@dataclass(frozen=True)
class Member:
    """One of the runs: who it is, and what came of it."""

    run: str
    title: str
    started: float  # seconds since 1970
    status: Status
    figures: Figures
    findings: tuple[str, ...]  # names of the rules, most severe first
    differs_at: int | None  # the first step at which its loss has other bits than that of the first run; None where none has
    shared_steps: int  # steps that it and the first run both made


@dataclass(frozen=True)
class Comparison:
    """What `compare` found; the first run is the one that the others are held against."""

    members: tuple[Member, ...]
    settings: tuple[Setting, ...]
    surroundings: dict[str, tuple[str, ...]]  # facts of the environment that differ, such as torch, of every run

    def figure_texts(self) -> list[tuple[str, list[str]]]:
        """A label and the figure of every run in words, of every figure that any of them has."""
        rows = []
        for name, label in LABELS.items():
            values = [getattr(member.figures, name) for member in self.members]
            if any(value is not None for value in values):
                rows.append((label, [_text(name, value) for value in values]))
        return [*rows, ("findings", [", ".join(member.findings) or "none" for member in self.members])]


def compare(runs: Sequence[Run]) -> Comparison:
    """Hold runs against each other; ComparisonError where they are too few, too many, or one of them twice."""
    check([run.id for run in runs])
    members = []
    for run in runs:
        step, shared = first_difference(runs[0].history.column("loss"), run.history.column("loss"))
        rules = tuple(finding.rule for finding in ranked(run))
        members.append(Member(run.id, run.title, run.started, run.status, figures(run), rules, step, shared))
    return Comparison(tuple(members), tuple(_settings(runs)), _surroundings(runs))


def check(ids: Sequence[str]) -> None:
    """ComparisonError where runs with these ids are too few or too many to compare, or one of them is there twice."""
    if not FEWEST <= len(ids) <= MOST:
        raise ComparisonError(f"{plural(len(ids), 'run', 'runs')} cannot be compared; allowed: {FEWEST} to {MOST}")
    if len(set(ids)) < len(ids):
        raise ComparisonError("a run cannot be compared with itself; name each run once")


def first_difference(first: np.ndarray, second: np.ndarray) -> tuple[int | None, int]:
    """The first row at which two float64 columns have other bits (so that NaN equals NaN, and 0.0 is not -0.0), or None; and how many
    rows both have."""
    shared = min(len(first), len(second))
    bits = [np.ascontiguousarray(column[:shared]).view(np.uint64) for column in (first, second)]
    differ = np.flatnonzero(bits[0] != bits[1])
    return (int(differ[0]) if len(differ) else None), shared


def as_json(found: Comparison) -> dict[str, Any]:
    """The comparison as lists and dicts; values of `knobs` and `environment` are in the order of the `runs`."""
    return {
        "runs": [
            {"run": member.run, "title": member.title, **vars(member.figures), "findings": list(member.findings),
             "first_different_step": member.differs_at, "shared_steps": member.shared_steps}
            for member in found.members
        ],
        "knobs": [
            {"knob": setting.knob, "values": list(setting.values),
             "changes": [[{"step": change.step, "value": change.value} for change in changes] for changes in setting.changes]}
            for setting in found.settings
        ],
        "environment": {name: list(values) for name, values in found.surroundings.items()},
    }  # fmt: skip


def curves_csv(runs: Sequence[Run], file: BinaryIO) -> None:
    """A line a step and a column for each curve of each run; empty where a run made no such step. Floats read back bit for bit; NaN and
    Inf are spelled nan, inf, -inf."""
    lengths = [len(run.history) for run in runs]
    head = ["step", *(f"{name} {run.id}" for run in runs for name in CURVES)]
    file.write(_line(head))
    for start in range(0, max(lengths), BLOCK):
        stop = min(start + BLOCK, max(lengths))
        columns = [
            [repr(value) for value in run.history.column(name, min(start, length), min(stop, length)).tolist()]
            for run, length in zip(runs, lengths, strict=True)
            for name in CURVES
        ]
        padded = [column + [""] * (stop - start - len(column)) for column in columns]
        steps = [str(step) for step in range(start, stop)]
        file.write("".join(",".join(cells) + "\n" for cells in zip(steps, *padded, strict=True)).encode())


def _settings(runs: Sequence[Run]) -> list[Setting]:
    found = []
    courses = [run.course for run in runs]
    for knob, _ in runs[0].experiment.items():
        values = tuple(run.experiment[knob.name] for run in runs)
        changes = tuple(tuple(change for change in course if change.knob == knob.name) for course in courses)
        if len(set(zip(values, changes, strict=True))) > 1:
            applies = tuple(run.experiment.applies(knob.name) or run.in_force.applies(knob.name) for run in runs)
            found.append(Setting(knob.name, values, changes, applies))
    return found


def _surroundings(runs: Sequence[Run]) -> dict[str, tuple[str, ...]]:
    names = dict.fromkeys(name for run in runs for name in run.environment)
    facts = {name: tuple(run.environment.get(name, "–") for run in runs) for name in names}
    return {name: values for name, values in facts.items() if len(set(values)) > 1}


def _text(name: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    if name in _SHARES:
        return percent(value)
    return f"{value:,}" if isinstance(value, int) else number(value)


def _line(cells: list[str]) -> bytes:
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerow(cells)
    return buffer.getvalue().encode(errors="replace")
