"""The axes of figures: limits and ticks, with numbers formatted as elsewhere in the program."""

from __future__ import annotations

import math

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from gradstudio.core.text import number, power


def step_axis(axes: Axes, count: int) -> None:
    """Set the axis to the steps from first to last, with half a step of margin."""
    axes.set_xlim(-0.5, max(count - 0.5, 0.5))
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))


def log_axis(axes: Axes, values: np.ndarray) -> None:
    """Set a log axis that covers every positive finite value."""
    low, high = _log_limits(values)
    axes.set_yscale("log", base=10, nonpositive="mask")
    axes.set_ylim(10.0**low, 10.0**high)
    axes.yaxis.set_major_locator(FixedLocator(log_ticks(low, high)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: power_of_ten(value)))


def log2_axis(axes: Axes, values: np.ndarray) -> None:
    """Set a log axis with ticks at powers of two."""
    positive = values[np.isfinite(values) & (values > 0)]
    low = math.floor(math.log2(positive.min())) if len(positive) else 0
    high = math.ceil(math.log2(positive.max())) if len(positive) else 1
    every = max(1, -(-(high - low) // 4))
    axes.set_yscale("log", base=2, nonpositive="mask")
    axes.set_ylim(2.0 ** (low - 0.8), 2.0 ** (high + 0.8))
    axes.yaxis.set_major_locator(FixedLocator([2.0**exponent for exponent in range(low, high + 1, every)]))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: power(2, round(math.log2(value)))))


def plain_axis(axes: Axes, values: np.ndarray) -> None:
    """Set a linear axis from 0."""
    finite = values[np.isfinite(values)]
    top = float(finite.max()) if len(finite) and finite.max() > 0 else 1.0
    axes.set_ylim(-0.02 * top, 1.15 * top)
    axes.yaxis.set_major_locator(MaxNLocator(3))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: number(value)))


def log_ticks(low: float, high: float) -> list[float]:
    """Return about five round values between two powers of ten."""
    first, last = math.ceil(low), math.floor(high)
    if last - first >= 2:
        every = -(-(last - first) // 5)
        return [10.0**exponent for exponent in range(first, last + 1, every)]
    for steps in ((1, 3), (1, 2, 5)):
        ticks = [digit * 10.0**exponent for exponent in range(first - 1, last + 1) for digit in steps]
        ticks = [tick for tick in ticks if low <= math.log10(tick) <= high]
        if 3 <= len(ticks) <= 6:
            return ticks
    return [tick for tick in MaxNLocator(4).tick_values(10.0**low, 10.0**high) if tick > 0]


def power_of_ten(value: float) -> str:
    """Return the text of a tick: 0.01 to 1000 as they are, powers of ten beyond as 10⁴."""
    if value <= 0 or 1e-2 <= value < 1e4:
        return number(value, 4)
    exponent = round(math.log10(value))
    return power(10, exponent) if math.isclose(value, 10.0**exponent, rel_tol=1e-9) else number(value, 2)


def _log_limits(values: np.ndarray) -> tuple[float, float]:
    """Return powers of ten around every positive finite value, with some margin."""
    positive = values[np.isfinite(values) & (values > 0)]
    if not len(positive):
        return -1.0, 1.0
    low, high = math.log10(positive.min()), math.log10(positive.max())
    air = max(0.1 * (high - low), 0.01)
    return max(low - air, -307.0), min(high + 1.4 * air, 307.0)
