"""The rules of clipping: torch's own function where torch has one."""

import math
import statistics

import torch
from torch import nn

from gradstudio.program.reference.weights import *


def clip_per_tensor(max_norm):
    """Each tensor by itself."""
    for parameter in trainable():
        nn.utils.clip_grad_norm_(parameter, max_norm)


def unit_norm(tensor):
    """Norm of each row of a weight; of a vector, one norm."""
    rows = tuple(range(1, tensor.ndim)) if tensor.ndim > 1 else None
    return torch.linalg.vector_norm(tensor, dim=rows, keepdim=True)


@torch.no_grad()
def clip_adaptively(factor):
    """Adaptive gradient clipping (Brock 2021): a unit's gradient is at most `factor` times its weights."""
    for name, parameter in named_trained():
        if "head" not in name.split("."):
            largest = factor * unit_norm(parameter).clamp(min=1e-3)
            size = unit_norm(parameter.grad)
            parameter.grad.mul_(torch.where(size > largest, largest / size.clamp(min=1e-6), 1.0))


def is_spike(gradients):
    """Whether their norm stands that many deviations above the median of those before, as OLMo 2 leaves out."""
    norm = nn.utils.get_total_norm(gradients).item()
    if math.isfinite(norm) and len(norms) >= 20:
        middle = statistics.median(norms)
        deviation = max(1.4826 * statistics.median([abs(each - middle) for each in norms]), 0.05 * middle)
        if deviation > 0 and norm > middle + knobs.clipping_spike_deviations * deviation:
            return True
    if math.isfinite(norm):
        norms.append(norm)
    return False


@inline
def clip():
    if knobs.clipping_kind == "norm":
        nn.utils.clip_grad_norm_(trainable(), knobs.clipping_max_norm)
    elif knobs.clipping_kind == "value":
        nn.utils.clip_grad_value_(trainable(), knobs.clipping_clip_value)
    elif knobs.clipping_kind == "per_tensor":
        clip_per_tensor(knobs.clipping_max_norm)
    elif knobs.clipping_kind == "agc":
        clip_adaptively(knobs.clipping_agc_factor)
