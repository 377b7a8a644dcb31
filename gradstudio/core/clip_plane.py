"""Formulas for clipping a vector with two entries, for a picture of the plane in which the user drags the vector. Norm:
Pascanu 2013. Value: each entry by itself. AGC: Brock 2021, where the entries are the gradients of two units."""

from __future__ import annotations

import math
from typing import NamedTuple

Vector = tuple[float, float]


class Limits(NamedTuple):
    """The limits of each kind of clipping in the plane. `units` is for AGC: its factor times the norm of each unit's
    weights."""

    max_norm: float
    clip_value: float
    units: Vector


def clip(vector: Vector, kind: str, limits: Limits) -> Vector:
    """Return a vector after clipping by norm, value or agc."""
    x, y = vector
    if kind == "norm":
        long = math.hypot(x, y)
        factor = min(1.0, limits.max_norm / long) if long else 1.0
        return x * factor, y * factor
    high, wide = (limits.clip_value, limits.clip_value) if kind == "value" else limits.units
    return min(max(x, -high), high), min(max(y, -wide), wide)


def angle(before: Vector, after: Vector) -> float:
    """Return the angle between two vectors in degrees; NaN if one of them is 0."""
    if not (any(before) and any(after)):
        return math.nan
    cross = before[0] * after[1] - before[1] * after[0]
    return abs(math.degrees(math.atan2(cross, before[0] * after[0] + before[1] * after[1])))
