"""The values of the on-demand gauges: measured between two steps, only while the gauge is visible."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

NAMES = ("exponents", "sharpness", "noise_scale", "overshoot", "clipping", "logits")

LOWEST, HIGHEST = -149, 127  # smallest and largest exponent of two of a float32 number
FP16_SUBNORMAL, FP16_NORMAL, FP16_LARGEST = (
    -24,
    -14,
    65504.0,
)  # smallest powers of two, and the largest number (IEEE 754 binary16)
KEPT = 256  # samples of a gauge, at most; beyond that, every other one of the older half is dropped


class Unmeasurable(ValueError):
    """The reason why a gauge has nothing to show here, as a sentence for the user."""


@dataclass(frozen=True, slots=True)
class Shares:
    """Shares of the nonzero entries: those that fp16 rounds to 0, represents with less precision, or turns into Inf."""

    lost: float  # below 2^-24
    subnormal: float  # from there to below 2^-14
    over: float  # above 65504


@dataclass(frozen=True, slots=True, eq=False)
class Exponents:
    """Histogram of the exponents of a gradient: `counts` gives for each number from LOWEST to HIGHEST how many entries
    have it as floor(log2 |g|), before any loss scale."""

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
    """The largest eigenvalue of the Hessian, as the optimizer sees it, and the limit above which steps along it
    diverge."""

    value: float
    limit: float
    lr: float
    preconditioned: bool  # divided by Adam's or RMSprop's denominator for each entry of the gradient
    converged: bool  # otherwise the value is a lower bound
    products: int  # number of Hessian products that it took

    @property
    def rule(self) -> float:
        """The limit times the learning rate: 2 for plain gradient descent, 38 for Adam with beta1 = 0.9."""
        return self.limit * self.lr


@dataclass(frozen=True, slots=True)
class NoiseScale:
    """The batch size above which a larger batch helps little. Inf if the gradient is too small against its noise."""

    value: float
    batch: int  # examples in a step
    gradient: float  # averaged |G|^2
    noise: float  # averaged tr(Sigma) of one example
    samples: int


@dataclass(frozen=True, slots=True)
class Overshoot:
    """Losses along the last update: `losses` at AT times the update. `ratio` is the length of the step over the length
    that reaches the minimum of the fitted parabola: 1 reaches it, 2 ends as high as it began. 0 if there is no minimum
    ahead, Inf if the update led uphill."""

    losses: tuple[float, ...]
    ratio: float


AT = (0.0, 0.5, 1.0, 2.0)

CLIPPED_BY = ("norm", "value", "agc")


@dataclass(frozen=True, slots=True)
class ClippingEffect:
    """The effect of one kind of clipping on a gradient."""

    norm: float  # L2 norm of all of it
    angle: float  # degrees between the whole gradient before and after; NaN if one of them is 0
    entries: tuple[float, ...]  # those listed in `ClippedGradient.names`


@dataclass(frozen=True, slots=True)
class ClippedGradient:
    """A gradient before and after each kind of clipping, with the limits set by the knobs. Its largest entries are
    listed one by one."""

    size: int  # number of entries
    norm: float
    names: tuple[str, ...]  # parameter and position of each listed entry
    ranks: tuple[int, ...]  # 1 is the largest
    entries: tuple[float, ...]
    cuts: dict[str, ClippingEffect]  # for each of CLIPPED_BY
    max_norm: float
    clip_value: float
    agc_factor: float
    seconds: float  # that torch's clip_grad_norm_ takes for it
    passes: float  # seconds of the passes that give it, in fp32


@dataclass(frozen=True, slots=True)
class Logits:
    """How sharply each attention chooses, and how far the outputs have drifted, on a fixed batch."""

    names: tuple[str, ...]  # of the attentions, in forward order; () for a model without attention
    largest: tuple[float, ...]  # largest absolute logit of each, query . key / sqrt(width of a head)
    entropy: tuple[float, ...]  # mean entropy of each, as a share of its maximum; NaN with one time step
    log_z: float | None  # mean of log(sum of exp(outputs)); None if the outputs are not class scores


Value = Exponents | Sharpness | NoiseScale | Overshoot | ClippedGradient | Logits
Sample = tuple[int, Value]  # the step that the run was about to make


def add_sample(samples: list[Sample], new: Sample) -> list[Sample]:
    """Return the samples with a new one, which replaces one of the same step. If there are more than KEPT, every other
    one of the older half is dropped."""
    if samples and samples[-1][0] == new[0]:
        samples = samples[:-1]
    if len(samples) < KEPT:
        return [*samples, new]
    half = len(samples) // 2
    return [*samples[:half:2], *samples[half:], new]


def fits(losses: tuple[float, ...]) -> float:
    """Return the ratio of an Overshoot: a least-squares fit through the points of AT with a finite loss."""
    finite = [(at, loss) for at, loss in zip(AT, losses, strict=True) if math.isfinite(loss)]
    if len(finite) < 3 or not math.isfinite(losses[2]):
        return math.inf
    steps, values = np.array(finite).T
    curvature, slope, _ = np.polyfit(steps, values - values[0], 2)
    if slope >= 0:
        return math.inf
    return max(0.0, float(-2 * curvature / slope))
