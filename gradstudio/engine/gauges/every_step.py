"""Gauges of every step. Squares are summed in float64, so that norms are correct from 1e-38 to 1e38; nothing hides a
NaN. All tensors are measured at once, inside the flat one (passes/flat.py)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from gradstudio.core.unknown import UNKNOWN
from gradstudio.engine.gauges import kernels
from gradstudio.engine.passes.flat import Layout


@dataclass(frozen=True, slots=True)
class Gradient:
    """The true gradient of a step. Arrays are float64, with one entry per parameter tensor."""

    norm: float
    nonfinite: int
    norms: np.ndarray
    largest: np.ndarray  # float32, or float64
    zero_shares: np.ndarray
    nonfinite_shares: np.ndarray
    means: np.ndarray


@dataclass(frozen=True, slots=True)
class Change:
    """The weights before an update and its effect on them. Arrays are float64, with one entry per parameter tensor.
    `along_gradient` is the inner product of the change and the gradient that the optimizer received."""

    weight_norm: float
    norm: float
    along_gradient: float
    update_ratio: float
    weight_norms: np.ndarray
    update_ratios: np.ndarray


class Gauges:
    """Measures flat tensors of one layout."""

    def __init__(self, layout: Layout) -> None:
        self._starts, self._stops = layout.starts, layout.stops
        self._sizes = np.maximum(layout.sizes, 1)  # a tensor without entries has no share of them

    def norms(self, flat: Tensor | np.ndarray) -> tuple[float, np.ndarray]:
        """Return the L2 norm of all tensors together, and of each."""
        each = self._each()
        return kernels.norms(_host(flat), self._starts, self._stops, each), each

    def norm(self, flat: Tensor) -> float:
        """Return the L2 norm of all tensors together."""
        return self.norms(flat)[0]

    def measure_gradient(self, flat: Tensor, scale: float = 1.0) -> Gradient:
        """Measure gradients that still carry the factor `scale`, without that factor."""
        entries = _host(flat)
        norm, norms = self.norms(entries)
        largest, zeros, nonfinite, sums = self._each(np.float32), self._each(), self._each(), self._each()
        kernels.inspect(
            entries, entries.view(np.int32), self._starts, self._stops, largest.view(np.int32), zeros, nonfinite, sums
        )
        means = sums / self._sizes
        if scale != 1:
            with np.errstate(divide="ignore", invalid="ignore", over="ignore"):  # a loss scale can fall to 0
                norm, norms, largest = float(np.divide(norm, scale)), norms / scale, largest / scale
                means = means / scale
        shares = zeros / self._sizes, nonfinite / self._sizes
        return Gradient(norm, int(nonfinite.sum()), norms, largest, *shares, means)

    def changed_shares(self, before: Tensor, after: Tensor) -> np.ndarray:
        """Return the share of the entries of each tensor that clipping by value changed; a NaN counts as none."""
        counts = self._each()
        kernels.count_differing(_host(before), _host(after), self._starts, self._stops, counts)
        return counts / self._sizes

    def product(self, one: Tensor, other: Tensor) -> float:
        """Return the inner product of all tensors together."""
        return kernels.product(_host(one), _host(other), self._starts, self._stops)

    def measure_change(self, before: Tensor, after: Tensor, gradient: Tensor) -> Change:
        """Measure the weights before and after an update by this gradient."""
        norms, moves = self._each(), self._each()
        norm, move, along = kernels.norms_of_change(
            _host(before), _host(after), _host(gradient), self._starts, self._stops, norms, moves
        )
        return Change(norm, move, along, float(ratio(move, norm)), norms, ratio(moves, norms))

    def _each(self, kind: type = np.float64) -> np.ndarray:
        return np.empty(len(self._sizes), kind)


def _host(flat: Tensor | np.ndarray) -> np.ndarray:
    """Return the entries as numpy can read them; on the CPU nothing is copied."""
    if isinstance(flat, np.ndarray):
        return flat
    return flat.numpy() if flat.is_cpu else flat.cpu().numpy()


def total(each: np.ndarray) -> float:
    """Return the norm of a whole from the norms of its parts."""
    return math.sqrt(each.dot(each))


def ratio(move: np.ndarray | float, weight: np.ndarray | float) -> np.ndarray:
    """Return the norm of a change / the norm of the changed weights. For weights that are all 0 it is inf, or 0 if they
    did not change."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        divided = np.divide(move, weight)
    return divided if np.all(weight) else np.where(np.equal(weight, 0) & np.equal(move, 0), 0.0, divided)


def coefficient(before: float, after: float) -> float:
    """Return the norm after clipping / the norm before; 1 if clipping did nothing."""
    return 1.0 if before == after else after / before if before else math.inf


def cosine(product: float, one: float, other: float) -> float:
    """Return the cosine between two tensors from their inner product and their norms. UNKNOWN if one of them is all 0
    and so has no direction; NaN if an entry is non-finite."""
    if one == 0 or other == 0:
        return UNKNOWN
    ratio_of_norms = product / (one * other)
    return max(-1.0, min(1.0, ratio_of_norms)) if math.isfinite(ratio_of_norms) else math.nan


def by_layer(gradient: Gradient, change: Change, cut_shares: np.ndarray | float) -> np.ndarray:
    """Return (metrics, layers), in the order of history.LAYER_METRICS."""
    metrics = np.empty((8, len(gradient.norms)))  # filled by hand: numpy takes several times as long to inspect a list
    metrics[0], metrics[1], metrics[2] = gradient.norms, change.weight_norms, change.update_ratios
    metrics[3], metrics[4], metrics[5] = gradient.largest, gradient.zero_shares, gradient.nonfinite_shares
    metrics[6], metrics[7] = gradient.means, cut_shares
    return metrics
