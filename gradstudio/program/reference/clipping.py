"""The rules of clipping: torch's own function where torch has one."""

import math
import statistics

import torch
from torch import nn

from gradstudio.program.reference.weights import *


def clip_per_tensor(max_norm):
    """Clip the norm of each tensor by itself."""
    for parameter in trainable():
        nn.utils.clip_grad_norm_(parameter, max_norm)


def clip_per_module(max_norm):
    """Clip the norm of each module by itself, weight and bias together; an attention counts as one module."""
    modules = {}
    for name, parameter in named_trained():
        parts = name.split(".")
        ends = (at for at, part in enumerate(parts, 1) if part.endswith(("attention", "attn")))
        modules.setdefault(tuple(parts[: next(ends, -1)]), []).append(parameter)
    for parameters in modules.values():
        nn.utils.clip_grad_norm_(parameters, max_norm)


def clip_by_deviations(deviations):
    """ZClip (Kumar 2025): reduce a norm that is z deviations above its running mean to deviations^2 / z of them."""
    norm = nn.utils.get_total_norm([parameter.grad for parameter in trainable()])
    known = usual.setdefault("zclip", torch.zeros(3, device=device))
    seen, mean, variance = known.unbind()
    excess, bound = norm - mean, deviations * variance.sqrt()
    left = torch.where((seen >= 25) & (excess > bound), mean + bound * bound / excess, norm)
    share = torch.where(seen < 25, 1 / (seen + 1), 1 - 0.97)
    middle = mean + share * (left - mean)
    spread = variance + share * ((left - middle) * torch.where(seen < 25, excess, left - middle) - variance)
    usual["zclip"] = torch.where(norm.isfinite(), torch.stack([seen + 1, middle, spread]), known)
    for parameter in trainable():
        parameter.grad.mul_(torch.where(norm.isfinite() & (left < norm), left / norm, 1.0))


def clip_to_usual(factor, max_norm):
    """AdaGC (Wang 2025): limit each tensor's norm to `factor` times its running mean; clip by norm in the first 100
    steps."""
    norms = torch.stack([torch.linalg.vector_norm(parameter.grad) for parameter in trainable()])
    known = usual.setdefault("adagc", torch.cat([norms.new_zeros(1), torch.full_like(norms, torch.inf)]))
    warm, means = known[0] < 100, known[1:]
    coefficients = torch.where(norms > factor * means, factor * means / norms, 1.0)
    common = torch.linalg.vector_norm(norms)
    coefficients = torch.where(warm, (max_norm / (common + 1e-6)).clamp(max=1.0), coefficients)
    left = norms * coefficients
    smallest = torch.where(left > 0, torch.minimum(means, left), means)
    means = torch.where(warm, smallest, 0.98 * means + (1 - 0.98) * left)
    usual["adagc"] = torch.where(norms.isfinite().all(), torch.cat([known[:1] + 1, means]), known)
    for parameter, coefficient in zip(trainable(), torch.where(norms.isfinite().all(), coefficients, 1.0)):
        parameter.grad.mul_(coefficient)


def clip_example(means, max_norm):
    """Clip the gradient of one example by itself (Abadi 2016), and add it to the sum of the others."""
    nn.utils.clip_grad_norm_(trainable(), max_norm)
    for parameter, mean in zip(trainable(), means):
        mean.add_(parameter.grad)
        parameter.grad.zero_()


def unit_norm(tensor):
    """Return the norm of each row of a weight; of a vector, its norm."""
    rows = tuple(range(1, tensor.ndim)) if tensor.ndim > 1 else None
    return torch.linalg.vector_norm(tensor, dim=rows, keepdim=True)


@torch.no_grad()
def clip_adaptively(factor):
    """Adaptive gradient clipping (Brock 2021): limit a unit's gradient norm to `factor` times its weight norm."""
    for name, parameter in named_trained():
        if "head" not in name.split("."):
            largest = factor * unit_norm(parameter).clamp(min=1e-3)
            size = unit_norm(parameter.grad)
            parameter.grad.mul_(torch.where(size > largest, largest / size.clamp(min=1e-6), 1.0))


def is_spike(gradients):
    """Return whether the gradient norm is far above the median of earlier ones; such an update is skipped (OLMo 2)."""
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
    elif knobs.clipping_kind == "per_module":
        clip_per_module(knobs.clipping_max_norm)
    elif knobs.clipping_kind == "per_network" and knobs.model_kind == "gan":
        for player in (model.generator, model.discriminator):
            nn.utils.clip_grad_norm_(player.parameters(), knobs.clipping_max_norm)
    elif knobs.clipping_kind == "per_network":
        nn.utils.clip_grad_norm_(trainable(), knobs.clipping_max_norm)
    elif knobs.clipping_kind == "zclip":
        clip_by_deviations(knobs.clipping_zclip_deviations)
    elif knobs.clipping_kind == "adagc":
        clip_to_usual(knobs.clipping_adagc_factor, knobs.clipping_max_norm)
    elif knobs.clipping_kind == "agc":
        clip_adaptively(knobs.clipping_agc_factor)
