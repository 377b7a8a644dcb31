"""A 2-D slice of the loss around the weights before a step. The first axis is minus the gradient; all lengths are in
units of the update's length."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

ACROSS, UP = 21, 11  # cells
LEFT, DOWN = 4, 5  # cells before the one of the weights
Second = Literal["update", "previous update", "random"]


@dataclass(frozen=True, slots=True)
class Landing:
    """The point where the step ends if its gradient norm is clipped to max_norm: its position in the slice, the length
    of the whole update, and the loss there. The point may lie outside the slice."""

    max_norm: float
    x: float
    y: float
    length: float
    loss: float


@dataclass(frozen=True, slots=True, eq=False)
class Cliff:
    """The slice. `losses`, (UP, ACROSS), are those of the step's own batch; `known` marks the cells that are measured.
    Cell (DOWN, LEFT) is the weights before the step. The second axis is the component of the direction `second` that is
    orthogonal to the gradient."""

    step: int
    unit: float  # L2 norm of the update
    cell: float  # width of a cell, in units
    losses: np.ndarray
    known: np.ndarray
    loss: float  # before the step
    update: tuple[float, float]
    end: float  # the loss after the update
    grad_norm: float  # before clipping
    second: Second
    landings: tuple[Landing, ...] = ()  # by max_norm, the smallest first; none where clipping is not possible

    @property
    def whole(self) -> bool:
        return bool(self.known.all())

    @property
    def columns(self) -> np.ndarray:
        """The columns of the grid that contain measured cells."""
        return np.flatnonzero(self.known.any(0))

    @property
    def rows(self) -> np.ndarray:
        """The rows of the grid that contain measured cells."""
        return np.flatnonzero(self.known.any(1))


def landing_at(cliff: Cliff, max_norm: float) -> Landing | None:
    """Return where the step ends under a max_norm, interpolated between the measured landings; None if there are
    none."""
    landings = cliff.landings
    if not landings:
        return None
    wanted = min(max(max_norm, landings[0].max_norm), landings[-1].max_norm)
    after = next(place for place, each in enumerate(landings) if each.max_norm >= wanted)
    if after == 0 or landings[after].max_norm == wanted:
        return landings[after]
    one, other = landings[after - 1], landings[after]
    part = (wanted - one.max_norm) / (other.max_norm - one.max_norm)
    x, y, length, loss = (
        float((1 - part) * getattr(one, name) + part * getattr(other, name)) for name in ("x", "y", "length", "loss")
    )
    return Landing(wanted, x, y, length, loss)


def shortens(cliff: Cliff) -> bool:
    """Return whether a small max_norm makes the step much shorter. With Adam the step length hardly depends on
    max_norm."""
    landings = cliff.landings
    return len(landings) > 1 and landings[0].length < 0.5 * landings[-1].length


def length_of(cliff: Cliff, max_norm: float) -> float | None:
    """Return the length of the step, in units, if its gradient were clipped to max_norm; None if clipping does not make
    it much shorter."""
    landing = landing_at(cliff, max_norm)
    if landing is None or not shortens(cliff):
        return None
    return landing.length * max_norm / landing.max_norm  # in proportion, beyond the measured range


def max_norm_of(cliff: Cliff, length: float) -> float | None:
    """Return the max_norm for which `length_of` returns this length."""
    landings = cliff.landings
    if not shortens(cliff):
        return None
    lengths = np.maximum.accumulate([each.length for each in landings])
    nearest = landings[0] if length < lengths[0] else landings[-1]
    if not lengths[0] <= length <= lengths[-1]:
        return nearest.max_norm * max(length / nearest.length, 1e-3)
    return float(np.interp(length, lengths, [each.max_norm for each in landings]))
