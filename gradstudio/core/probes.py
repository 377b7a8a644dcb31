"""What is measured on demand beside the rows, only while somebody looks: plain values of one moment between two steps."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

NAMES = ("exponents", "sharpness", "noise_scale", "overshoot")

LOWEST, HIGHEST = -149, 127  # powers of two that float32 has entries in
FP16_SUBNORMAL, FP16_NORMAL, FP16_LARGEST = -24, -14, 65504.0  # smallest powers of two, and the largest number (IEEE 754 binary16)
KEPT = 256  # samples of a gauge; where there are more, every other one of the older half goes


class Unmeasurable(ValueError):
    """Why a gauge has nothing to show here, as a sentence for a person."""


@dataclass(frozen=True, slots=True)
class Shares:
    """Of the entries that are not 0: what fp16 cannot hold, holds with less than its precision, and takes for infinite."""

    lost: float  # below 2^-24
    subnormal: float  # from there to below 2^-14
    over: float  # above 65504


@dataclass(frozen=True, slots=True, eq=False)
class Exponents:
    """Of how many entries of a gradient floor(log2 |g|) is each number from LOWEST to HIGHEST, before any loss scale."""

    counts: np.ndarray  # int64, (HIGHEST - LOWEST + 1,)
    zeros: int
    nonfinite: int
    plain: Shares
    scale: float  # the loss scale in force; 1 without any
    scaled: Shares  # times that scale
    best_scale: float  # the power of two that loses least
    best: Shares  # times that one

    @property
    def entries(self) -> int:
        return int(self.counts.sum())


@dataclass(frozen=True, slots=True)
class Sharpness:
    """The largest eigenvalue of the Hessian, as the optimizer sees it, against where its steps begin to swing ever further."""

    value: float
    limit: float
    lr: float
    preconditioned: bool  # divided by what Adam or RMSprop divides each entry of the gradient by
    converged: bool  # else it is at least so much
    products: int  # with the Hessian, that it took

    @property
    def rule(self) -> float:
        """The limit times the learning rate: 2 for plain gradient descent, 38 for Adam with beta1 = 0.9."""
        return self.limit * self.lr


@dataclass(frozen=True, slots=True)
class NoiseScale:
    """The batch size from which on a larger batch helps little. Inf where the gradient is lost in its noise."""

    value: float
    batch: int  # examples in a step
    gradient: float  # averaged |G|^2
    noise: float  # averaged tr(Sigma), of one example
    samples: int


@dataclass(frozen=True, slots=True)
class Overshoot:
    """Losses along the last update: `losses` at AT times it. `ratio` is the step over the one that would have reached the minimum of the
    fitted parabola: 1 reaches it, 2 comes out as high as it began. 0 where there is no minimum ahead, Inf where the way went uphill."""

    losses: tuple[float, ...]
    ratio: float


AT = (0.0, 0.5, 1.0, 2.0)

Value = Exponents | Sharpness | NoiseScale | Overshoot
Sample = tuple[int, Value]  # the step that the run stood before


def kept(samples: list[Sample], new: Sample) -> list[Sample]:
    """With one more, in place of one of the same step, and not more than KEPT: the newer half as they are, of those before it every other
    one."""
    if samples and samples[-1][0] == new[0]:
        samples = samples[:-1]
    if len(samples) < KEPT:
        return [*samples, new]
    half = len(samples) // 2
    return [*samples[:half:2], *samples[half:], new]


def fits(losses: tuple[float, ...]) -> float:
    """The ratio of an Overshoot: least squares through those points of AT where the loss is finite."""
    finite = [(at, loss) for at, loss in zip(AT, losses, strict=True) if math.isfinite(loss)]
    if len(finite) < 3 or not math.isfinite(losses[2]):
        return math.inf
    steps, values = np.array(finite).T
    curvature, slope, _ = np.polyfit(steps, values - values[0], 2)
    if slope >= 0:
        return math.inf
    return max(0.0, float(-2 * curvature / slope))
