"""The questions of a lesson, graded by the run: which choice came true, and which number is right."""

from __future__ import annotations

import math
import operator
import re

import numpy as np

from gradstudio.core import measure
from gradstudio.core.experiment import differing_values, parse_assignment
from gradstudio.core.history import History
from gradstudio.core.lesson import Choice, Explain, LessonStep
from gradstudio.core.measure import Comparison, Measure, Part
from gradstudio.core.presets import Preset
from gradstudio.core.unknown import is_known, known_mask
from gradstudio.session.record.run import Run
from gradstudio.session.record.run_outcome import fires, warnings

ENDED = ("finished", "nonfinite", "failed")  # the data for judging a run is there

_SIGNS = {"<": operator.lt, "<=": operator.le, "=": operator.eq, ">=": operator.ge, ">": operator.gt}
_REDUCTIONS = {"max": np.max, "min": np.min, "mean": np.mean, "median": np.median, "sum": np.sum}
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.IGNORECASE)


def is_about(step: LessonStep, run: Run, preset: Preset) -> bool:
    """Return whether a question is about this run: it has the question's knobs in force, or, if the question names
    none, those of the lesson's preset."""
    if step.knobs:
        return all(run.in_force[name] == value for name, value in map(parse_assignment, step.knobs))
    planned = {(change.knob, change.value) for change in preset.timeline}
    asked = differing_values(preset.experiment, run.experiment)
    turned = {change.knob for change in list(run.timeline) if (change.knob, change.value) not in planned}
    return not any(name.partition(".")[0] != "run" for name in {*asked, *turned})


def right_choices(step: LessonStep, run: Run) -> list[int]:
    """Return the indices of the choices that came true in a finished run: one, if the question is a good one."""
    return [place for place, choice in enumerate(step.predict) if holds(choice, run)] if run.status in ENDED else []


def holds(choice: Choice, run: Run) -> bool:
    """Return whether all conditions of a choice hold for a run."""
    return (
        (choice.outcome is None or run.status == choice.outcome)
        and (choice.rule is None or fires(run, choice.rule))
        and all(_compares(measure.comparison(text), run) for text in choice.where)
    )


def measured_value(explain: Explain, run: Run) -> float | None:
    """Return the number that a question asks for; None if the run does not have it, or it is non-finite."""
    return value(measure.measure(explain.measure), run)


def is_right(explain: Explain, answer: float, run: Run) -> bool:
    """Return whether an answer is close enough to the run's own number."""
    right = measured_value(explain, run)
    return right is not None and abs(answer - right) <= explain.tolerance * abs(right) * (1 + 1e-9)


def as_number(text: str) -> float | None:
    """Return a number as users type it: 1,500 or 1.5e3 or 10 %; None for anything else."""
    text = text.replace(",", "").replace("\N{MINUS SIGN}", "-").strip()
    share = text.endswith("%")
    text = text.removesuffix("%").strip()
    if not _NUMBER.fullmatch(text):
        return None
    number = float(text) / (100 if share else 1)
    return number if math.isfinite(number) else None


def value(asked: Measure, run: Run) -> float | None:
    """Return the value of a measure for a run; None if a part of it is unknown, or it is non-finite."""
    result = 1.0
    for part, divides in zip(asked.parts, asked.divides, strict=True):
        factor = _part(part, run)
        if factor is None or (divides and factor == 0):
            return None
        result = result / factor if divides else result * factor
    return result if math.isfinite(result) else None


def _compares(comparison: Comparison, run: Run) -> bool:
    left, right = value(comparison.left, run), value(comparison.right, run)
    return left is not None and right is not None and bool(_SIGNS[comparison.sign](left, right))


def _part(part: Part, run: Run) -> float | None:
    if part.kind == "number":
        return part.number
    if part.kind == "knob":
        return float(run.in_force[part.name])
    if part.kind == "whole":
        return _whole(part.name, run)
    history = run.history
    if part.kind == "column":
        return _reduce(part, history.column(part.name), len(history))
    place = _weight_layer(history, last=part.layer == "last_layer")
    return None if place is None else _reduce(part, history.layer_metric(part.name)[:, place], len(history))


def _reduce(part: Part, values: np.ndarray, rows: int) -> float | None:
    if part.reduction == "at":
        result = float(values[part.step]) if part.step < rows else math.nan
        return result if math.isfinite(result) and is_known(result) else None
    finite = values[known_mask(values) & np.isfinite(values)].astype(float)
    if not len(finite):
        return None
    if part.reduction in ("first", "last"):
        return float(finite[0 if part.reduction == "first" else -1])
    return float(_REDUCTIONS[part.reduction](finite))


def _weight_layer(history: History, *, last: bool) -> int | None:
    places = [place for place, layer in enumerate(history.layers) if layer.is_weight]
    return places[-1 if last else 0] if places else None


def _whole(name: str, run: Run) -> float | None:
    if name == "accuracy":
        return run.accuracy
    if name == "steps":
        return float(len(run.history))
    if name == "nonfinite_step":
        return None if run.first_nonfinite_step is None else float(run.first_nonfinite_step)
    if name == "warnings":
        return float(len(warnings(run)))
    share = run.history.column("clip_coef")
    return float(np.mean(share < 1)) if len(share) else None
