"""The number format of the stored weights between two steps, by its name in precision.weights. They stay float32
tensors, whose values are those of the format. Sums, gradients and the optimizer's state are float32."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from gradstudio.engine.devices import to_device
from gradstudio.engine.generators import OFFSETS

PER_STEP = 1009  # between the seeds of two steps, so that runs of neighbouring seeds draw different numbers


def draw(weights: Iterable[Tensor], kind: str) -> None:
    """Round freshly drawn weights, in place, to the nearest number of the format."""
    if kind == "fp32":
        return
    with torch.no_grad():
        for each in weights:
            each.copy_(each.bfloat16())


def keep(weights: Iterable[Tensor], kind: str, seed: int, step: int) -> None:
    """Round the weights after the update of a step, in place. Weights that were not updated stay, as they are already
    rounded. The randomness of a step depends on seed and step alone, so a rewound run draws the same."""
    if kind != "bf16_stochastic":
        draw(weights, kind)
        return
    source = torch.Generator().manual_seed(seed + OFFSETS["rounding"] + PER_STEP * step)
    with torch.no_grad():
        for each in weights:
            each.copy_(stochastic(each, source))


def stochastic(weights: Tensor, source: torch.Generator) -> Tensor:
    """Return float32 weights rounded to bfloat16, up with a probability equal to the share of the way there, so that
    their mean is right (Gupta 2015, equation 1). A bfloat16 is the upper half of a float32: 16 random bits are added to
    the lower half, which is then cut off. NaN and Inf stay. `source` is on the CPU."""
    chance = torch.randint(0, 1 << 16, weights.shape, generator=source, dtype=torch.int32)
    bits = weights.view(torch.int32) + to_device(chance, str(weights.device))
    return torch.where(weights.isfinite(), (bits & -(1 << 16)).view(torch.float32), weights)
