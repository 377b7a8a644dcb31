"""A knob: one value of an experiment that the user can set, with its default, range, help and conditions.

A knob is declared once, in its section in `sections/`, by `knob(...)`. Form, tooltip, command line, preset file,
live change, report and script all iterate over the result of `read_knobs`."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, Literal, cast, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field
from pydantic.fields import FieldInfo

from gradstudio.core.text import number, one_line

Value = bool | int | float | str

LARGEST_DIVISOR = 1000  # for a number that is written as a quotient
_COMPUTED = re.compile(r"(?!-)([^*^/]+)(\*\*|[*^/])([^*^/]+)")  # two numbers and an operator
_OPERATIONS = {"^": math.pow, "**": math.pow, "*": operator.mul, "/": operator.truediv}

# Values that had another name in older versions, with the same meaning.
RENAMED: Mapping[tuple[str, Value], Value] = {("clipping.kind", "per_layer"): "per_tensor"}

Condition = Mapping[str, tuple[Value, ...]]  # the names of other knobs, and their required values


class KnobError(ValueError):
    """A value that a knob does not allow, or an unknown name. The text is one line for the user."""

    def __init__(self, text: str) -> None:
        super().__init__(one_line(text))


class Section(BaseModel):
    """A group of knobs. Immutable: a change creates a new one (`experiment.with_value`)."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, frozen=True)


@dataclass(frozen=True)
class Knob:
    """One knob: its section and name, its default and range, and when it has an effect. `name` is dotted:
    section.field."""

    name: str
    kind: Literal["choice", "float", "int", "bool", "text"]
    default: Value
    label: str
    help: str
    group: str
    live: bool
    unit: str = ""
    choices: tuple[str, ...] = ()
    minimum: float = -math.inf
    maximum: float = math.inf
    above_minimum: bool = False  # the minimum itself is not allowed
    slider: tuple[float, float] | None = None
    logarithmic: bool = False
    when: tuple[Condition, ...] = ()  # it has an effect if one of these holds; empty: always

    @cached_property
    def section(self) -> str:
        return self.name.partition(".")[0]

    @cached_property
    def field(self) -> str:
        return self.name.partition(".")[2]

    @property
    def accepted(self) -> str:
        """Return what the knob accepts, in words: 'one of: none, norm' or 'a number above 0, at most 1e+06'."""
        if self.kind == "choice":
            return "one of: " + ", ".join(self.choices)
        if self.kind == "bool":
            return "true or false"
        if self.kind == "text":
            return f"a text such as {self.default}"
        noun = "a whole number" if self.kind == "int" else "a number"
        low, high = self.minimum, self.maximum
        bounds = []
        if low > -math.inf:
            bounds.append(f"{'above' if self.above_minimum else 'at least'} {low:.12g}")
        if high < math.inf:
            bounds.append(f"at most {high:.12g}")
        return " ".join([noun, ", ".join(bounds)]).strip()

    def parse(self, text: str) -> Value:
        """Return the value that the user wrote as `text`; a number may be written as `2^16` or `1/3`. KnobError if it
        is not of the knob's type."""
        text = text.strip()
        try:
            if self.kind == "bool":
                return {"true": True, "on": True, "false": False, "off": False}[text.lower()]
            if self.kind == "int":
                return _whole(text)
            if self.kind == "float":
                return _number(text)
        except (KeyError, ValueError, ArithmeticError):
            raise self.error(text) from None
        return text

    def error(self, value: object) -> KnobError:
        """Return the error for a rejected value, which says what is allowed."""
        return KnobError(
            f"{self.name} = {quote(value)} is not allowed; allowed: {self.accepted} (default "
            f"{format_value(self.default)})"
        )


def of_today(name: str, value: Value) -> Value:
    """Return the value of a knob under its current name."""
    return RENAMED.get((name, value), value)


def _number(text: str) -> float:
    """Return the number written plainly or as a power, a product or a quotient of two numbers."""
    match = _COMPUTED.fullmatch(text)
    if match is None:
        return float(text)
    one, sign, other = match.groups()
    return _OPERATIONS[sign](float(one), float(other))


def _whole(text: str) -> int:
    """Return the whole number in a text that `_number` can parse, such as 1e3."""
    try:
        return int(text)
    except ValueError:
        number = _number(text)
        if not number.is_integer() or abs(number) > 2**53:  # beyond this, a float is not exactly the number written
            raise
        return int(number)


def knob(
    default: Value,
    help: str,
    *,
    live: bool = True,
    label: str = "",
    unit: str = "",
    group: str = "",
    slider: tuple[float, float] | None = None,
    logarithmic: bool = False,
    when: Condition | tuple[Condition, ...] = (),
    **bounds: Any,
) -> Any:
    """Declare a knob as a pydantic field. `bounds` are pydantic's ge, gt and le. `when` maps the names of other knobs
    to the values with which this one has an effect; if it is a list of such maps, one must hold. `slider` is the range
    of the slider."""
    when = when if isinstance(when, tuple) else (when,)
    extra = {
        "label": label,
        "unit": unit,
        "live": live,
        "group": group,
        "slider": slider,
        "logarithmic": logarithmic,
        "when": when,
    }
    return Field(default, description=help, json_schema_extra=extra, **bounds)


def read_knobs(experiment: type[BaseModel], titles: Mapping[str, str]) -> dict[str, Knob]:
    """Return every knob in the sections of `experiment`, by dotted name, in the order of declaration."""
    knobs = {}
    for section, holder in experiment.model_fields.items():
        of_section: type[BaseModel] = cast(Any, holder.annotation)
        if not (isinstance(of_section, type) and issubclass(of_section, Section)):
            continue  # it declares no knobs here
        for name, info in of_section.model_fields.items():
            knobs[f"{section}.{name}"] = _read(f"{section}.{name}", info, titles[section])
    return knobs


def _read(name: str, info: FieldInfo, title: str) -> Knob:
    extra: dict[str, Any] = cast(Any, info.json_schema_extra)
    limits = {type(m).__name__.lower(): m for m in info.metadata}
    lower = limits.get("ge") or limits.get("gt")
    choices = get_args(info.annotation) if get_origin(info.annotation) is Literal else ()
    kinds: dict[Any, Any] = {bool: "bool", int: "int", float: "float", str: "text"}
    return Knob(
        name=name,
        kind="choice" if choices else kinds[info.annotation],
        default=info.default,
        label=extra["label"] or name.partition(".")[2],
        help=info.description or "",
        group=extra["group"] or title,
        live=extra["live"],
        unit=extra["unit"],
        choices=choices,
        minimum=getattr(lower, "ge", getattr(lower, "gt", -math.inf)),
        maximum=limits["le"].le if "le" in limits else math.inf,
        above_minimum="gt" in limits,
        slider=extra["slider"],
        logarithmic=extra["logarithmic"],
        when=extra["when"],
    )


def format_value(value: object) -> str:
    """Return a value as written in a preset or on the command line: true, 0.2, norm."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value) if isinstance(value, float) else str(value)


def value_text(value: object) -> str:
    """Return a value for display, in its shortest exact form: 30, 1e5, 1/3."""
    if not isinstance(value, float):
        return format_value(value)
    for ways in ((number(value, 6), f"{value:.0f}"), (f"{value:.12g}",)):
        if exact := [text for text in ways if float(text) == value]:
            return min(exact, key=lambda text: (len(text), "e" in text))
    return _quotient(value) or repr(value)


def values_text(values: Mapping[str, Value], between: str = ", ") -> str:
    """Return knobs with their values for display: clipping.kind = norm, optimizer.lr = 0.1."""
    return between.join(f"{name} = {value_text(value)}" for name, value in values.items())


def _quotient(value: float) -> str:
    """Return a number as the quotient of two small ones, such as 1/3, whose digits would not fit; "" if it is not
    one."""
    if not math.isfinite(value):
        return ""
    near = Fraction(value).limit_denominator(LARGEST_DIVISOR)
    return f"{near.numerator}/{near.denominator}" if near.numerator / near.denominator == value else ""


def quote(value: object) -> str:
    """Return a rejected value as an error shows it: at most 60 characters, whatever it is."""
    if isinstance(value, dict | list):
        return "a table" if isinstance(value, dict) else "a list"
    try:
        text = format_value(value)
    except ValueError:  # Python refuses to format an integer of more than 4300 digits
        text = "an integer of thousands of digits"
    return text if len(text) <= 60 else text[:57] + "..."
