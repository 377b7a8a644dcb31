"""The comparison of several runs as plain data: the knobs and the environment that differ, the figures side by side,
and the step from which the losses differ. Command line, window and report all use it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, TypeVar

import numpy as np

from gradstudio.core.events import Change
from gradstudio.core.knobs import Value, format_value
from gradstudio.core.text import number, percent, plural
from gradstudio.session.files import csv_table
from gradstudio.session.record.ranked_findings import ranked_findings
from gradstudio.session.record.run import Run, Status
from gradstudio.session.record.run_figures import Figures, figures
from gradstudio.session.words.outcome_words import OUTCOMES

FEWEST, MOST = 2, 8  # number of runs that can be compared
CURVES = ("loss", "grad_norm")  # columns of the history that are written side by side

# The figures that are compared, and their names.
LABELS = {
    "outcome": "outcome", "steps": "steps", "first_nonfinite_step": "diverged at step",
    "initial_loss": "loss at the start",
    "final_loss": "loss at the end", "best_loss": "best loss", "accuracy": "accuracy",
    "peak_grad_norm": "largest gradient norm",
    "clipped_share": "steps clipped", "skipped_steps": "updates skipped", "final_scale": "loss scale at the end",
    "seconds": "seconds in steps",
}  # fmt: skip
_SHARES = ("accuracy", "clipped_share")

_Kind = TypeVar("_Kind")


class ComparisonError(ValueError):
    """Runs that cannot be compared. One line for the user."""


@dataclass(frozen=True)
class KnobDifference:
    """A knob that differs between the runs: its first value, its changes, and whether it had an effect, for each run in
    order."""

    knob: str
    values: tuple[Value, ...]
    changes: tuple[tuple[Change, ...], ...]
    applies: tuple[bool, ...]

    def texts(self) -> list[str]:
        """Return '0.1', or '0.1; 0.05 from step 100', for each run."""
        told = []
        for value, changes, applies in zip(self.values, self.changes, self.applies, strict=True):
            later = [f"; {format_value(change.value)} from step {change.step:,}" for change in changes]
            told.append(format_value(value) + "".join(later) + ("" if applies else " (no effect)"))
        return told


@dataclass(frozen=True)
class Member:
    """One of the runs: its name and its results."""

    run: str
    title: str
    started: float  # seconds since 1970
    status: Status
    figures: Figures
    findings: tuple[str, ...]  # names of the rules, most severe first
    headlines: tuple[str, ...]  # titles of the findings
    differs_at: (
        int | None
    )  # the first step at which its loss has other bits than that of the first run; None if there is none
    shared_steps: int  # steps that both it and the first run made


@dataclass(frozen=True)
class Comparison:
    """The result of `compare`. Each run is compared with the first."""

    members: tuple[Member, ...]
    settings: tuple[KnobDifference, ...]
    surroundings: dict[str, tuple[str, ...]]  # facts of the environment that differ, such as torch, of every run

    def figure_texts(self) -> list[tuple[str, list[str]]]:
        """Return a label and the text for each run, for every figure that any of them has."""
        rows = []
        for name, label in LABELS.items():
            values = [getattr(member.figures, name) for member in self.members]
            if any(value is not None for value in values):
                rows.append((label, [_text(name, value) for value in values]))
        return [*rows, ("findings", ["; ".join(member.headlines) or "none" for member in self.members])]


def compare(runs: Sequence[Run]) -> Comparison:
    """Compare runs; ComparisonError if there are too few or too many, or one of them appears twice."""
    check([run.id for run in runs])
    members = []
    for run in runs:
        step, shared = first_difference(runs[0].history.column("loss"), run.history.column("loss"))
        findings = ranked_findings(run)
        rules, titles = (tuple(getattr(each, part) for each in findings) for part in ("rule", "title"))
        members.append(Member(run.id, run.title, run.started, run.status, figures(run), rules, titles, step, shared))
    return Comparison(tuple(members), tuple(_settings(runs)), _surroundings(runs))


def check(ids: Sequence[str]) -> None:
    """Raise ComparisonError if there are too few or too many runs, or one of them appears twice."""
    if not FEWEST <= len(ids) <= MOST:
        raise ComparisonError(f"{plural(len(ids), 'run', 'runs')} cannot be compared; allowed: {FEWEST} to {MOST}")
    if len(set(ids)) < len(ids):
        raise ComparisonError("a run cannot be compared with itself; name each run once")


def first_difference(first: np.ndarray, second: np.ndarray) -> tuple[int | None, int]:
    """Return the first row at which two float64 columns have different bits (NaN equals NaN, 0.0 differs from -0.0), or
    None; and the number of rows that both have."""
    shared = min(len(first), len(second))
    bits = [np.ascontiguousarray(column[:shared]).view(np.uint64) for column in (first, second)]
    differ = np.flatnonzero(bits[0] != bits[1])
    return (int(differ[0]) if len(differ) else None), shared


def as_json(comparison: Comparison) -> dict[str, Any]:
    """Return the comparison as lists and dicts; the values of `knobs` and `environment` are in the order of `runs`."""
    return {
        "runs": [
            {
                "run": member.run,
                "title": member.title,
                **vars(member.figures),
                "findings": list(member.findings),
                "first_different_step": member.differs_at,
                "shared_steps": member.shared_steps,
            }
            for member in comparison.members
        ],
        "knobs": [
            {
                "knob": setting.knob,
                "values": list(setting.values),
                "changes": [
                    [{"step": change.step, "value": change.value} for change in changes] for changes in setting.changes
                ],
            }
            for setting in comparison.settings
        ],
        "environment": {name: list(values) for name, values in comparison.surroundings.items()},
    }


def curves_csv(runs: Sequence[Run], file: BinaryIO) -> None:
    """Write a row for each step and a column for each curve of each run; a cell is empty if a run has no such step."""
    lengths = [len(run.history) for run in runs]
    head = ["step", *(f"{name} {run.id}" for run in runs for name in CURVES)]

    def read(start: int, stop: int) -> list[list[str]]:
        columns = [
            csv_table.floats(run.history.column(name, min(start, length), min(stop, length)))
            for run, length in zip(runs, lengths, strict=True)
            for name in CURVES
        ]
        padded = [column + [""] * (stop - start - len(column)) for column in columns]
        return [[str(step) for step in range(start, stop)], *padded]

    csv_table.write_columns(file, head, 0, max(lengths), read)


def _settings(runs: Sequence[Run]) -> list[KnobDifference]:
    settings = []
    files = tuple(_file(run) for run in runs)
    if len(set(files)) > 1:
        settings.append(KnobDifference("studio_file", files, ((),) * len(runs), (True,) * len(runs)))
    scripts = [dict(run.watched.all_facts) if run.watched else {} for run in runs]
    for name in dict.fromkeys(name for told in scripts for name in told):
        if len(set(values := tuple(told.get(name, "–") for told in scripts))) > 1:
            settings.append(KnobDifference(name, values, ((),) * len(runs), (True,) * len(runs)))
    courses = [run.course for run in runs]
    values_of = [
        {} if run.watched else {knob.name: value for knob, value in run.experiment.items()} for run in runs
    ]  # the knobs of a script are its facts
    telling = {name for known in values_of for name in known}
    if not all(values_of):  # next to a script, a default that it lacks means nothing
        telling = {name for run in runs if not run.watched for name in run.experiment.changed_knobs()}
        telling |= {change.knob for course in courses for change in course}
    for name in dict.fromkeys(name for known in values_of for name in known):
        if name not in telling:
            continue
        values = tuple(known.get(name, "–") for known in values_of)
        changes = tuple(tuple(change for change in course if change.knob == name) for course in courses)
        if len(set(zip(values, changes, strict=True))) > 1:
            applies = tuple(
                name not in known or (run.experiment.applies(name) or run.in_force.applies(name))
                for run, known in zip(runs, values_of, strict=True)
            )
            settings.append(KnobDifference(name, values, changes, applies))
    return settings


def _file(run: Run) -> str:
    """Return the studio file of a run: its name, and the beginning of its hash."""
    file = run.experiment.studio_file
    return f"{file.name} {file.sha256[:8]}" if file else "–"


def _surroundings(runs: Sequence[Run]) -> dict[str, tuple[str, ...]]:
    names = dict.fromkeys(name for run in runs for name in run.environment)
    facts = {name: tuple(run.environment.get(name, "–") for run in runs) for name in names}
    return {name: values for name, values in facts.items() if len(set(values)) > 1}


def _text(name: str, value: Any) -> str:
    if name == "outcome":
        return OUTCOMES[value][0]
    if isinstance(value, str):
        return value
    if name == "final_scale" and value == 1:
        return "–"  # no loss scale was in use
    if name in _SHARES:
        return percent(value)
    return f"{value:,}" if isinstance(value, int) else number(value)
