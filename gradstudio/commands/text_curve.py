"""A curve as lines of text: two by four dots per letter, on a log axis, with a mark for values that are NaN or Inf."""

from __future__ import annotations

import math

import numpy as np

from gradstudio.core.text import number
from gradstudio.core.unknown import known_mask

DOTS = (
    (0x01, 0x02, 0x04, 0x40),
    (0x08, 0x10, 0x20, 0x80),
)  # bits of a braille letter: left and right column, from above
MARK = "✗"  # mark for a non-finite value


def curve(values: np.ndarray, width: int, height: int, axis: int = 9) -> list[str]:
    """Return the latest values as `height` lines of `width` characters; the first `axis` characters of each line hold
    the numbers of the axis. Each column of dots spans the range of its steps, from the smallest to the largest
    value."""
    room = max(width - axis - 1, 1)
    columns = np.array_split(values, min(2 * room, max(len(values), 1)))
    finite = values[np.isfinite(values)]
    logarithmic = len(finite) > 0 and finite.min() > 0 and finite.max() > 10 * finite.min()
    low, high = (float(finite.min()), float(finite.max())) if len(finite) else (math.nan, math.nan)
    bits = np.zeros((height, room), np.int32)
    broken = np.zeros(room, bool)
    for place, column in enumerate(columns):
        there = column[np.isfinite(column)]
        broken[place // 2] |= bool((~np.isfinite(column) & known_mask(column)).any())
        if not len(there):
            continue
        ends = sorted(_dot(float(end), low, high, 4 * height, logarithmic) for end in (there.min(), there.max()))
        for dot in range(ends[0], ends[1] + 1):
            row = 4 * height - 1 - dot
            bits[row // 4, place // 2] |= DOTS[place % 2][row % 4]
    lines = ["".join(chr(0x2800 + cell) if cell else " " for cell in row.tolist()) for row in bits]
    lines[0] = "".join(MARK if broken[place] else letter for place, letter in enumerate(lines[0]))
    labels = [number(high), *[""] * (height - 2), number(low)] if height > 1 else [number(high)]
    return [f"{label:>{axis}} {line}" for label, line in zip(labels, lines, strict=True)]


def _dot(value: float, low: float, high: float, dots: int, logarithmic: bool) -> int:
    if high <= low:
        return dots // 2
    ends = (low, value, high)
    first, here, last = map(math.log, ends) if logarithmic else ends
    return round((here - first) / (last - first) * (dots - 1))
