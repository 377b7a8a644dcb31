"""An axis of a map: one numeric knob, and its values there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from gradstudio.core.experiment import Experiment
from gradstudio.core.knobs import Knob, KnobError, Value, format_value
from gradstudio.core.presets import MOST_CELLS
from gradstudio.core.text import number

FEWEST = 2  # cells of an axis
DIGITS = 6  # significant digits of a value between the ends, so that it can be typed
MORE_DIGITS = (9, 12, 15)  # if the ends are so close together that those are too few
SEED = "run.seed"
EXACT = 1e4  # whole numbers below are written out
_WORDS = {"optimizer.lr": "learning rate"}


@dataclass(frozen=True)
class Axis:
    """The values of a knob, in rising order; `log` is whether they are evenly spaced on a log scale."""

    knob: str
    values: tuple[Value, ...]
    log: bool = False

    @property
    def label(self) -> str:
        """Return the axis as typed: optimizer.lr=0.01:10:log."""
        return f"{self.knob}={self.values[0]!r}:{self.values[-1]!r}{':log' if self.log else ''}"

    @property
    def words(self) -> str:
        """Return the axis in words: "learning rate from 0.01 to 10"."""
        low, high = (short_value(value, self.values) for value in (self.values[0], self.values[-1]))
        return f"{name_in_words(self.knob)} from {low} to {high}"


def name_in_words(knob: str) -> str:
    """Return the name of a knob in words, such as "learning rate", "max norm" or "accumulation steps"."""
    section, _, name = knob.partition(".")
    words = _WORDS.get(knob, name.replace("_", " "))
    return f"{section} {words}" if name in ("steps", "kind") else words


def short_value(value: Value, among: Sequence[Value] = ()) -> str:
    """Return a value of a knob in short form: 4.3, and not 4.32876; with as many digits, at least two, as distinguish
    it from the others."""
    if not isinstance(value, float):
        return format_value(value)
    if value.is_integer() and abs(value) < EXACT:
        return f"{value:.0f}"
    others = {each for each in among if isinstance(each, float)} | {value}
    for digits in range(2, DIGITS):
        if len({number(each, digits) for each in others}) == len(others):
            return number(value, digits)
    return number(value, DIGITS)


def read_axis(option: str, text: str, cells: int, experiment: Experiment) -> Axis:
    """Return the axis written as KNOB=FROM:TO or KNOB=FROM:TO:log; KnobError if it is invalid. Whole numbers are
    rounded, and equal ones become one cell."""
    name, equals, rest = text.partition("=")
    parts = rest.split(":")
    if not equals or len(parts) not in (2, 3) or (len(parts) == 3 and parts[2] not in ("log", "linear")):
        raise KnobError(
            f"{option} {text[:80]} is not allowed; allowed: KNOB=FROM:TO or KNOB=FROM:TO:log, such as "
            "optimizer.lr=0.001:10:log"
        )
    if not FEWEST <= cells <= MOST_CELLS:
        raise KnobError(f"--cells {cells} is not allowed; allowed: a whole number from {FEWEST} to {MOST_CELLS}")
    knob = experiment.find_knob(name.strip())
    if knob.kind not in ("float", "int"):
        raise KnobError(f"{option} {knob.name} is not allowed; allowed: a knob whose value is a number")
    if knob.name == SEED:
        raise KnobError(f"{option} {SEED} is not allowed; --seeds trains each cell with several seeds")
    return axis_between(option, knob, (parts[0], parts[1]), cells, log=parts[2:] == ["log"], experiment=experiment)


def axis_between(
    option: str, knob: Knob, ends: tuple[str, str], cells: int, *, log: bool, experiment: Experiment
) -> Axis:
    """Return the axis of a knob from one value to another; KnobError if the knob does not allow one of them."""
    start, stop = (knob.parse(text) for text in ends)
    for value in (start, stop):
        experiment.with_value(knob.name, value)
    assert isinstance(start, int | float) and isinstance(stop, int | float), "a numeric knob has numbers"
    if not start < stop:
        raise KnobError(f"{option} {knob.name}: FROM must be below TO, and {start!r} is not below {stop!r}")
    if log and start <= 0:
        raise KnobError(f"{option} {knob.name}: a logarithmic axis begins above 0, not at {start!r}")
    shares = [index / (cells - 1) for index in range(1, cells - 1)]
    exact = [start * (stop / start) ** share if log else start + (stop - start) * share for share in shares]
    if knob.kind == "int":
        inner = [round(value) for value in exact]
    else:
        rounded = ([float(f"{value:.{digits}g}") for value in exact] for digits in (DIGITS, *MORE_DIGITS))
        inner = next((candidate for candidate in rounded if _rise([start, *candidate, stop])), exact)
    return Axis(knob.name, tuple(sorted({start, stop, *(value for value in inner if start < value < stop)})), log)


def _rise(values: list[float]) -> bool:
    return all(one < other for one, other in pairwise(values))
