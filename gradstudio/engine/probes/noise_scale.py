"""The gradient noise scale: the batch size beyond which a larger batch helps little.

McCandlish 2018, "An empirical model of large-batch training" (arXiv 1812.06162), appendix A.1. For gradients G of
batches of Bs and of Bb examples:

    |G|^2 = (Bb |G_b|^2 - Bs |G_s|^2) / (Bb - Bs)        S = tr(Sigma) = (|G_s|^2 - |G_b|^2) / (1/Bs - 1/Bb)
    B_simple = S / |G|^2

B_simple is in examples. Both are averaged exponentially before they are divided: the mean of the ratios would be too
large."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from gradstudio.core.gauge_samples import NoiseScale, Unmeasurable
from gradstudio.engine.tasks.task import Batch

DECAY = 0.99  # weight that older samples retain from one step to the next
LEAST = 0.98  # weight that they retain at least from sample to sample: the average always covers about 50 samples


class Average:
    """The running averages of one run."""

    def __init__(self) -> None:
        self.gradient = self.noise = self._weight = 0.0
        self.samples, self._step = 0, 0

    def add(self, squares: list[float], joined: float, examples: int, step: int) -> NoiseScale:
        """Add |G_s|^2 of batches of `examples` each, and `joined`, that of their mean. A second sample at the same step
        has the same batches and does not count."""
        small, large = float(examples), float(examples * len(squares))
        mean = sum(squares) / len(squares)
        if not (math.isfinite(mean) and math.isfinite(joined)):
            raise Unmeasurable("The gradient is not finite here.")
        if self.samples == 0 or step != self._step:
            keep = max(DECAY ** max(step - self._step, 1), LEAST) if self.samples else 0.0
            self._weight = keep * self._weight + 1 - keep
            self.gradient = keep * self.gradient + (1 - keep) * (large * joined - small * mean) / (large - small)
            self.noise = keep * self.noise + (1 - keep) * (mean - joined) / (1 / small - 1 / large)
            self.samples, self._step = self.samples + 1, step
        gradient, noise = self.gradient / self._weight, self.noise / self._weight
        value = max(noise, 0.0) / gradient if gradient > 0 else math.inf
        return NoiseScale(value, int(large), gradient, noise, self.samples)


def parts(batches: list[Any]) -> list[Any]:
    """Return the batches whose gradients are compared with their mean: the micro-batches of a step, or the halves of
    its single batch."""
    if len(batches) > 1:
        return batches
    if not isinstance(batches[0], Batch):
        raise Unmeasurable(
            "Nobody knows how to halve a batch of a studio file: the noise needs accumulation.steps above 1."
        )
    (inputs, targets), half = batches[0], len(batches[0].inputs) // 2
    if half == 0:
        raise Unmeasurable(
            "A batch of one example has no halves to compare: the noise needs problem.batch_size or "
            "accumulation.steps above 1."
        )
    return [Batch(inputs[:half], targets[:half]), Batch(inputs[half : 2 * half], targets[half : 2 * half])]


def squares(gradients: list[Tensor]) -> tuple[list[float], float]:
    """Return |G_s|^2 of each gradient, and that of their mean, in float64."""
    whole = torch.stack(gradients).double()
    return whole.square().sum(1).tolist(), whole.mean(0).square().sum().item()
