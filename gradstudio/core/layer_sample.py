"""The distributions of a layer's weights, gradient and update at one step, as histograms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

BINS = 61
Part = Literal["weights", "gradient", "update"]
PARTS: tuple[Part, ...] = ("weights", "gradient", "update")


@dataclass(frozen=True, slots=True, eq=False)
class Histogram:
    """The entries of one tensor. `counts` are those of BINS bins of equal width from `least` to `greatest`, the ends of
    the finite entries; both are NaN if none is finite. `norm` is the L2 norm of all entries."""

    counts: np.ndarray  # int64, (BINS,)
    least: float
    greatest: float
    mean: float  # of the finite entries, as is `std`
    std: float
    norm: float
    zeros: int
    nonfinite: int
    size: int


@dataclass(frozen=True, slots=True, eq=False)
class LayerSample:
    """The histograms of every layer at a step: the weights before it, the gradient that the optimizer received, and the
    change that the optimizer made."""

    step: int
    layers: dict[str, dict[Part, Histogram]]  # by the name of the layer


def histogram(entries: np.ndarray) -> Histogram:
    """Return the histogram of a tensor's entries, float32 of any shape."""
    values = entries.ravel().astype(np.float64)
    finite = values[np.isfinite(values)]
    with np.errstate(over="ignore", invalid="ignore"):
        norm = float(np.sqrt(np.square(values).sum()))
    if not len(finite):
        nan = float("nan")
        return Histogram(np.zeros(BINS, np.int64), nan, nan, nan, nan, norm, 0, len(values), len(values))
    least, greatest = float(finite.min()), float(finite.max())
    if least == greatest:  # a single value has no width: it is in the middle
        counts = np.zeros(BINS, np.int64)
        counts[BINS // 2] = len(finite)
    else:
        places = ((finite - least) / (greatest - least) * BINS).astype(np.int64)
        counts = np.bincount(np.minimum(places, BINS - 1), minlength=BINS)
    return Histogram(
        counts, least, greatest, float(finite.mean()), float(finite.std()), norm,
        int((finite == 0).sum()), len(values) - len(finite), len(values),
    )  # fmt: skip
