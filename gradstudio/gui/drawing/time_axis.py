"""The x axis of every plot: steps, or the time of the run in the unit that suits the view."""

from __future__ import annotations

import math

from gradstudio.gui.drawing.axes import StepAxis, round_numbers
from gradstudio.gui.drawing.places import Places
from gradstudio.gui.theme import theme

APART = 90  # px between two ticks, before texts are zoomed
UNITS = {"d": 86400.0, "h": 3600.0, "min": 60.0, "s": 1.0}
PARTS = (0.5, 1, 2, 5, 10, 15, 30, 60)  # of a minute or an hour, between two ticks


class PlaceAxis(StepAxis):
    """An axis of steps, or of the seconds since the first step began."""

    def __init__(self, orientation: str, places: Places) -> None:
        super().__init__(orientation)
        self._places = places

    def tickValues(self, minVal: float, maxVal: float, size: float) -> list[tuple[float, list[float]]]:
        if not self._places.timed:
            return super().tickValues(minVal, maxVal, size)
        return [(1.0, times(max(minVal, 0.0), maxVal, max(int(size / (APART * theme.zoom)), 2)))]

    def tickStrings(self, values: list[float], scale: float, spacing: float) -> list[str]:
        if not self._places.timed or not values:
            return [f"{self._places.number(value):,}" for value in values]
        span = values[-1] - values[0] or values[0]
        return [tick(value, span) for value in values]


def times(low: float, high: float, count: int) -> list[float]:
    """Return about `count` round times between two seconds, each in seconds."""
    _, unit = _unit(high - low)
    ends = (low / unit, high / unit)
    wanted = (ends[1] - ends[0]) / count
    apart = next((part for part in PARTS if part >= wanted * 0.999), None) if unit in (60.0, 3600.0) else None
    if apart is None:
        return [value * unit for value in round_numbers(*ends, count)]
    return [place * apart * unit for place in range(math.ceil(ends[0] / apart), math.floor(ends[1] / apart) + 1)]


def precise(seconds: float, span: float) -> str:
    """Return a time in the unit that suits a view of `span` seconds, with enough digits to resolve a pixel."""
    name, unit = _unit(span)
    digits = min(max(3 - math.floor(math.log10(span / unit)), 0), 6) if span > 0 else 0
    return f"{seconds / unit:,.{digits}f} {name}"


def tick(seconds: float, span: float) -> str:
    """Return a round time like `precise`, without trailing zeros."""
    text, name = precise(seconds, span).split()
    return f"{text.rstrip('0').rstrip('.') if '.' in text else text} {name}"


def _unit(span: float) -> tuple[str, float]:
    """Return name and seconds of the unit for a view of `span` seconds: the largest that is at most half of it, and no
    shorter than a second."""
    return next((named for named in UNITS.items() if span >= 2 * named[1]), ("s", 1.0))
