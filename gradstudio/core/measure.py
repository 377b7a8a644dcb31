"""Measures: the quantity that a lesson's question asks about, written as text, such as `grad_norm.max /
grad_norm.first`.

Here they are parsed and checked; session/course/questions.py evaluates them. Source of the names: COLUMNS and
LAYER_METRICS of core/columns.py, and the knobs."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from gradstudio.core.columns import COLUMNS, LAYER_METRICS
from gradstudio.core.experiment import KNOBS
from gradstudio.core.knobs import KnobError, quote

LONGEST = 200  # characters
MOST_PARTS = 8

# Over the steps at which the quantity was measured and is finite.
REDUCTIONS: dict[str, str] = {
    "first": "first", "last": "last", "max": "largest", "min": "smallest", "mean": "mean", "median": "median",
    "sum": "sum of",
}  # fmt: skip
WHOLE: dict[str, str] = {
    "accuracy": "share of the test set that is right at the end",
    "steps": "number of steps",
    "nonfinite_step": "step at which the run diverged",
    "clipped_share": "share of the steps that were clipped",
    "warnings": "number of rules that warn",
}
ENDS: dict[str, str] = {"first_layer": "first layer", "last_layer": "last layer"}  # among those with a weight matrix

_PARTS = re.compile(r"\s*([*/])\s*")
_COMPARISON = re.compile(r"(<=|>=|<|>|=)")
Sign = Literal["<=", ">=", "<", ">", "="]


class Part(NamedTuple):
    """One factor of a measure: a number, a knob, a figure of the whole run, or a column over steps."""

    kind: Literal["number", "knob", "whole", "column", "layer"]
    name: str  # of the knob, the figure, the column or the metric of layers
    number: float = 0.0
    reduction: str = ""  # of REDUCTIONS; "at" for one step
    step: int = 0
    layer: str = ""  # of ENDS


class Measure(NamedTuple):
    """Factors that are multiplied or divided from left to right."""

    parts: tuple[Part, ...]
    divides: tuple[bool, ...]  # for each part; the first never does

    @property
    def words(self) -> str:
        """The measure in words: `largest grad_norm / first grad_norm`."""
        texts = [_words(part) for part in self.parts]
        signs = [" / " if divides else " × " for divides in self.divides]
        return texts[0] + "".join(sign + each for sign, each in zip(signs[1:], texts[1:], strict=True))


class Comparison(NamedTuple):
    """A condition on two measures, such as `loss.max > 10`."""

    left: Measure
    sign: Sign
    right: Measure


def measure(text: str) -> Measure:
    """Parse a measure; KnobError names the part that cannot be read and what is allowed."""
    if len(text) > LONGEST:
        raise KnobError(f"a measure of {len(text):,} characters is not allowed; allowed: at most {LONGEST}")
    pieces = _PARTS.split(text.strip())
    if len(pieces) > 2 * MOST_PARTS:
        raise KnobError(f"measure {quote(text)} is not allowed; allowed: at most {MOST_PARTS} factors")
    return Measure(tuple(map(_part, pieces[::2])), (False, *(sign == "/" for sign in pieces[1::2])))


def comparison(text: str) -> Comparison:
    """Parse a condition; KnobError otherwise."""
    pieces = _COMPARISON.split(text)
    if len(pieces) != 3:
        raise KnobError(f"{quote(text)} is no comparison; allowed: two measures with <, <=, =, >= or > between them")
    sign: dict[str, Sign] = {"<=": "<=", ">=": ">=", "<": "<", ">": ">", "=": "="}
    return Comparison(measure(pieces[0]), sign[pieces[1]], measure(pieces[2]))


def _part(text: str) -> Part:
    if re.fullmatch(r"\d+(\.\d*)?(e[+-]?\d{1,2})?", text):
        return Part("number", text, float(text))
    if text in KNOBS:
        if KNOBS[text].kind not in ("int", "float"):
            raise KnobError(f"{text} is no number, so it cannot be measured")
        return Part("knob", text)
    if text in WHOLE:
        return Part("whole", text)
    words = text.split(".")
    layer = words.pop(0) if words[0] in ENDS else ""
    names, kind = (LAYER_METRICS, "layer") if layer else (COLUMNS, "column")
    if words[0] in names and len(words) == 2 and words[1] in REDUCTIONS:
        return Part(kind, words[0], reduction=words[1], layer=layer)
    if words[0] in names and len(words) == 3 and words[1] == "at" and re.fullmatch(r"\d{1,8}", words[2]):
        return Part(kind, words[0], reduction="at", step=int(words[2]), layer=layer)
    raise KnobError(
        f"{quote(text)} is no measure; allowed: a column with {', '.join(REDUCTIONS)} or at.STEP behind it, such as "
        f"grad_norm.max, a knob, a number, or one of: {', '.join(WHOLE)}"
    )


def _words(part: Part) -> str:
    if part.kind in ("number", "knob"):
        return part.name
    if part.kind == "whole":
        return WHOLE[part.name]
    where = f" of the {ENDS[part.layer]}" if part.layer else ""
    if part.reduction == "at":
        return f"{part.name}{where} at step {part.step:,}"
    return f"{REDUCTIONS[part.reduction]} {part.name}{where}"
