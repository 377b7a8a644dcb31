"""What is measured at a step. Squares are summed in float64, so that norms are right from 1e-38 to 1e38; nothing hides a NaN.

All tensors are measured at once, where they lie in a flat one (flat.py).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from gradstudio.core.history import LAYER_METRICS
from gradstudio.engine.flat import Layout


@dataclass(frozen=True, slots=True)
class Gradient:
    """The true gradient of a step. Arrays are float64, one entry a parameter tensor."""

    norm: float
    nonfinite: int
    norms: np.ndarray
    largest: np.ndarray  # float32, or float64
    zero_shares: np.ndarray
    nonfinite_shares: np.ndarray


@dataclass(frozen=True, slots=True)
class Change:
    """What an update did to the weights. Arrays are float64, one entry a parameter tensor."""

    weight_norm: float
    update_ratio: float
    weight_norms: np.ndarray
    update_ratios: np.ndarray


class Gauges:
    """Measures flat tensors of one layout."""

    def __init__(self, layout: Layout) -> None:
        self._sizes = layout.sizes
        self._starts = layout.starts
        self._bounds = np.stack([layout.starts, layout.stops], 1).ravel()
        self._words = layout.starts // 8
        self._none = np.zeros(len(layout.sizes))
        inside = np.zeros(layout.length, bool)
        for start, stop in zip(layout.starts, layout.stops, strict=True):
            inside[start:stop] = True
        self._between = np.flatnonzero(~inside)
        # Made once: fresh memory would cost more than what is computed in it.
        self._squares = np.empty((2, layout.length))
        self._sizes_of_entries = np.empty(layout.length, np.float32)
        self._flags = np.empty(layout.length, bool)

    def norms(self, flat: Tensor | np.ndarray) -> np.ndarray:
        """L2 norm of each tensor, of one flat tensor or of two, (2, length): float64, (tensors,) or (2, tensors)."""
        entries = _host(flat)
        squares = self._squares if entries.ndim == 2 else self._squares[0]
        np.copyto(squares, entries)
        np.multiply(squares, squares, out=squares)
        return np.sqrt(np.add.reduceat(squares, self._bounds, axis=-1)[..., ::2])

    def norm(self, flat: Tensor) -> float:
        """L2 norm of all tensors together."""
        return total(self.norms(flat))

    def measure_gradient(self, flat: Tensor, scale: float = 1.0) -> Gradient:
        """Measure gradients that still carry the factor `scale` as if they did not."""
        entries = _host(flat)
        norms = self.norms(entries)
        norm = total(norms)
        nonfinite = self._none
        if not math.isfinite(norm):  # a sum in float64 is finite where every entry is
            nonfinite = self._count(np.logical_not(np.isfinite(entries, out=self._flags), out=self._flags))
        zeros = self._count(np.equal(entries, 0, out=self._flags))
        largest = np.maximum.reduceat(np.abs(entries, out=self._sizes_of_entries), self._bounds)[::2]
        if scale != 1:
            with np.errstate(divide="ignore", invalid="ignore", over="ignore"):  # a loss scale can fall to 0
                norm, norms, largest = float(np.divide(norm, scale)), norms / scale, largest / scale
        return Gradient(norm, int(nonfinite.sum()), norms, largest, zeros / self._sizes, nonfinite / self._sizes)

    def measure_change(self, update: Tensor) -> Change:
        """Measure weights before an update, and what it added to them: (2, length)."""
        weights, moves = self.norms(update)
        weight_norm = total(weights)
        return Change(weight_norm, float(ratio(total(moves), weight_norm)), weights, ratio(moves, weights))

    def _count(self, flags: np.ndarray) -> np.ndarray:
        """How many entries of each tensor are flagged: int64, (tensors,)."""
        flags[self._between] = False
        return np.add.reduceat(np.bitwise_count(flags.view(np.uint64)), self._words, dtype=np.int64)


def _host(flat: Tensor | np.ndarray) -> np.ndarray:
    """The entries where numpy can read them; on the CPU, where they are."""
    return flat if isinstance(flat, np.ndarray) else flat.detach().cpu().numpy()


def total(each: np.ndarray) -> float:
    """The norm of a whole from the norms of its parts."""
    return math.sqrt(each.dot(each))


def ratio(move: np.ndarray | float, weight: np.ndarray | float) -> np.ndarray:
    """Norm of a change / norm of what changed. Weights that are all 0 have moved by inf times themselves, or by 0 times
    where they stayed."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        divided = np.divide(move, weight)
    return divided if np.all(weight) else np.where(np.equal(weight, 0) & np.equal(move, 0), 0.0, divided)


def coefficient(before: float, after: float) -> float:
    """Norm after clipping / norm before; 1 where it did nothing."""
    return 1.0 if before == after else after / before if before else math.inf


def by_layer(gradient: Gradient, change: Change) -> np.ndarray:
    """(metrics, layers) in the order of history.LAYER_METRICS."""
    metrics = {
        "grad_norm": gradient.norms,
        "weight_norm": change.weight_norms,
        "update_ratio": change.update_ratios,
        "largest_grad": gradient.largest,
        "zero_share": gradient.zero_shares,
        "nonfinite_share": gradient.nonfinite_shares,
    }
    return np.array([metrics[name] for name in LAYER_METRICS])
