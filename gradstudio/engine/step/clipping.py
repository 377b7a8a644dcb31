"""Clipping rules, by their name in clipping.kind. Each changes the gradients in place, and returns whether it may have
changed any of them. A rule that compares with earlier steps keeps its numbers in `memory`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from gradstudio.core.sections.loop_knobs import Clipping
from gradstudio.engine.models import in_head
from gradstudio.engine.passes.flat import Flat
from gradstudio.engine.torch_internals import tensor_lists

Memory = dict[str, Tensor]  # by the name of the rule; on the device, so that the host never waits for it
WARMUP = {"zclip": 25, "adagc": 100}  # steps, as both papers have it
DECAY = {"zclip": 0.97, "adagc": 0.98}  # of their running means


def norm(flat: Flat, knobs: Clipping, memory: Memory) -> bool:
    """Multiply all gradients by max_norm / (their common norm + 1e-6), if that is below 1 (Pascanu 2013). The bits
    are those of torch.nn.utils.clip_grad_norm_: the norm of the tensors' norms, each summed in float32."""
    coefficient = _coefficient(_common_norm(flat), knobs.max_norm)
    if coefficient.item() == 1:
        return False
    flat.gradients.mul_(coefficient)
    return True


def norm_on_device(flat: Flat, knobs: Clipping, memory: Memory) -> bool:
    """Clip by norm, with the same bits, without waiting to see the norm: a coefficient of exactly 1 is multiplied too,
    which changes nothing."""
    flat.gradients.mul_(_coefficient(_common_norm(flat), knobs.max_norm))
    return True


def one_example(flat: Flat, knobs: Clipping, examples: int) -> None:
    """Clip by norm the gradient of one of so many examples, whose loss was divided by their number, so that the mean
    has clip(g) = g min(1, max_norm / |g|) of each (Abadi 2016, algorithm 1)."""
    flat.gradients.mul_(_coefficient(_common_norm(flat), knobs.max_norm / examples))


def _common_norm(flat: Flat) -> Tensor:
    return torch.linalg.vector_norm(tensor_lists.norms(flat.grads))


def _coefficient(norms: Tensor, max_norm: float) -> Tensor:
    return torch.clamp((norms + 1e-6).reciprocal() * max_norm, max=1.0)  # as torch divides a number by a tensor


def value(flat: Flat, knobs: Clipping, memory: Memory) -> bool:
    """Clamp every entry to -clip_value .. clip_value. An infinite entry is clamped, a NaN stays."""
    flat.gradients.clamp_(-knobs.clip_value, knobs.clip_value)
    return True


def per_tensor(flat: Flat, knobs: Clipping, memory: Memory) -> bool:
    """Multiply each tensor by max_norm / (its norm + 1e-6), if that is below 1: torch's coefficient, tensor by
    tensor."""
    tensor_lists.multiply_(flat.grads, _coefficient(tensor_lists.norms(flat.grads), knobs.max_norm).unbind())
    return True


def per_module(flat: Flat, knobs: Clipping, memory: Memory) -> bool:
    """Clip by norm, separately for the tensors of each module: weight and bias together."""
    return _per_group(flat, knobs, [module_of(name) for name, _ in flat.named])


def per_network(flat: Flat, knobs: Clipping, memory: Memory) -> bool:
    """Clip by norm, separately for each player of a GAN; any other model as a whole."""
    players = ("generator", "discriminator")
    return _per_group(flat, knobs, [name.partition(".")[0] * name.startswith(players) for name, _ in flat.named])


def module_of(name: str) -> str:
    """Return the module of a parameter; an attention counts as one module."""
    parts = name.split(".")
    ends = (at for at, part in enumerate(parts, 1) if part.endswith(("attention", "attn")))
    return ".".join(parts[: next(ends, -1)])


def _per_group(flat: Flat, knobs: Clipping, groups: list[str]) -> bool:
    norms = tensor_lists.norms(flat.grads)
    coefficients = list(norms.unbind())
    for group in dict.fromkeys(groups):
        places = [at for at, other in enumerate(groups) if other == group]
        common = torch.linalg.vector_norm(torch.stack([norms[at] for at in places]))
        for at in places:
            coefficients[at] = _coefficient(common, knobs.max_norm)
    tensor_lists.multiply_(flat.grads, coefficients)
    return True


def agc(flat: Flat, knobs: Clipping, memory: Memory, eps: float = 1e-3) -> bool:
    """Scale the gradient of a unit down to agc_factor times the norm of the unit's weights, at least eps, if it is
    larger: adaptive gradient clipping (Brock 2021, arXiv 2102.06171, and timm.utils.agc). Every head is left out, as
    the paper says; timm leaves out the last two parameters instead."""
    for (name, parameter), grad in zip(flat.named, flat.grads, strict=True):
        if in_head(name):
            continue
        largest = unit_norm(parameter.detach()).clamp(min=eps) * knobs.agc_factor
        size = unit_norm(grad)
        clipped = grad * (largest / size.clamp(min=1e-6))
        grad.copy_(torch.where(size < largest, grad, clipped))
    return True


def zclip(flat: Flat, knobs: Clipping, memory: Memory) -> bool:
    """Reduce a norm that is z > zclip_deviations deviations above its running mean to mean + deviation times
    zclip_deviations^2 / z (Kumar 2025, arXiv 2504.02507). A non-finite norm is neither clipped nor remembered."""
    norm = _common_norm(flat)
    known = memory.setdefault("zclip", torch.zeros(3, device=norm.device))
    seen, mean, variance = known.unbind()
    excess, bound = norm - mean, knobs.zclip_deviations * variance.sqrt()
    left = torch.where((seen >= WARMUP["zclip"]) & (excess > bound), mean + bound * bound / excess, norm)
    warm, kept = seen < WARMUP["zclip"], norm.isfinite()
    share = torch.where(warm, 1 / (seen + 1), 1 - DECAY["zclip"])
    middle = mean + share * (left - mean)
    spread = variance + share * ((left - middle) * torch.where(warm, excess, left - middle) - variance)
    memory["zclip"] = torch.where(kept, torch.stack([seen + 1, middle, spread]), known)
    flat.gradients.mul_(torch.where(kept & (left < norm), left / norm, 1.0))
    return True


def adagc(flat: Flat, knobs: Clipping, memory: Memory) -> bool:
    """Reduce the gradient of each tensor to adagc_factor times the running mean of its clipped norms if it is larger;
    in the first steps, clip all by norm and remember the smallest norm (Wang 2025, arXiv 2502.11034). Non-finite norms
    are neither clipped nor remembered, and a norm of 0 does not count as the smallest."""
    norms = tensor_lists.norms(flat.grads)
    known = memory.setdefault("adagc", torch.cat([norms.new_zeros(1), torch.full_like(norms, torch.inf)]))
    warm, usual = known[0] < WARMUP["adagc"], known[1:]
    limits = knobs.adagc_factor * usual
    coefficients = torch.where(norms > limits, limits / norms, 1.0)
    coefficients = torch.where(warm, _coefficient(torch.linalg.vector_norm(norms), knobs.max_norm), coefficients)
    left, kept = norms * coefficients, norms.isfinite().all()
    smallest = torch.where(left > 0, torch.minimum(usual, left), usual)
    usual = torch.where(warm, smallest, DECAY["adagc"] * usual + (1 - DECAY["adagc"]) * left)
    memory["adagc"] = torch.where(kept, torch.cat([known[:1] + 1, usual]), known)
    tensor_lists.multiply_(flat.grads, torch.where(kept, coefficients, 1.0).unbind())
    return True


def unit_norm(tensor: Tensor) -> Tensor:
    """Return the norm of each row of a weight (outputs, inputs...), in a shape that broadcasts against it; one norm for
    a vector."""
    if tensor.ndim < 2:
        return torch.linalg.vector_norm(tensor)
    return torch.linalg.vector_norm(tensor, dim=tuple(range(1, tensor.ndim)), keepdim=True)


Rules = Mapping[str, Callable[[Flat, Clipping, Memory], bool]]

CLIPPING: Rules = {
    "none": lambda flat, knobs, memory: False,
    "norm": norm,
    "value": value,
    "agc": agc,
    "per_tensor": per_tensor,
    "per_module": per_module,
    "per_network": per_network,
    "zclip": zclip,
    "adagc": adagc,
}

# The same rules in a form for which the host never waits for the device.
CLIPPING_ON_DEVICE: Rules = {**CLIPPING, "norm": norm_on_device}
