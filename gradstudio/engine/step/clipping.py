"""Clipping rules, by their name in clipping.kind. Each changes the gradients in place, and returns whether it may have
changed any of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from gradstudio.core.experiment import Clipping
from gradstudio.engine.models import in_head
from gradstudio.engine.passes.flat import Flat
from gradstudio.engine.torch_internals import tensor_lists


def norm(flat: Flat, knobs: Clipping) -> bool:
    """Multiply all gradients by max_norm / (their common norm + 1e-6), if that is below 1 (Pascanu 2013). The bits are
    those of torch.nn.utils.clip_grad_norm_: the norm of the tensors' norms, each summed in float32."""
    coefficient = _coefficient(flat, knobs)
    if coefficient.item() == 1:
        return False
    flat.gradients.mul_(coefficient)
    return True


def norm_on_device(flat: Flat, knobs: Clipping) -> bool:
    """Clip by norm, with the same bits, without waiting to see the norm: a coefficient of exactly 1 is multiplied too,
    which changes nothing."""
    flat.gradients.mul_(_coefficient(flat, knobs))
    return True


def _coefficient(flat: Flat, knobs: Clipping) -> Tensor:
    common = torch.linalg.vector_norm(tensor_lists.norms(flat.grads))
    # the way torch divides a number by a tensor
    return torch.clamp((common + 1e-6).reciprocal() * knobs.max_norm, max=1.0)


def value(flat: Flat, knobs: Clipping) -> bool:
    """Clamp every entry to -clip_value .. clip_value. An infinite entry is clamped, a NaN stays."""
    flat.gradients.clamp_(-knobs.clip_value, knobs.clip_value)
    return True


def per_tensor(flat: Flat, knobs: Clipping) -> bool:
    """Multiply each tensor by max_norm / (its norm + 1e-6), if that is below 1: torch's coefficient, tensor by
    tensor."""
    coefficients = (knobs.max_norm / (tensor_lists.norms(flat.grads) + 1e-6)).clamp(max=1.0)
    tensor_lists.multiply_(flat.grads, coefficients.unbind())
    return True


def agc(flat: Flat, knobs: Clipping, eps: float = 1e-3) -> bool:
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


def unit_norm(tensor: Tensor) -> Tensor:
    """Return the norm of each row of a weight (outputs, inputs...), in a shape that broadcasts against it; one norm for
    a vector."""
    if tensor.ndim < 2:
        return torch.linalg.vector_norm(tensor)
    return torch.linalg.vector_norm(tensor, dim=tuple(range(1, tensor.ndim)), keepdim=True)


Rules = Mapping[str, Callable[[Flat, Clipping], bool]]

CLIPPING: Rules = {
    "none": lambda flat, knobs: False,
    "norm": norm,
    "value": value,
    "agc": agc,
    "per_tensor": per_tensor,
}

# The same rules in a form for which the host never waits for the device.
CLIPPING_ON_DEVICE: Rules = {**CLIPPING, "norm": norm_on_device}
