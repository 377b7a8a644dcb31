"""Clipping rules, by the name that clipping.kind gives them. Each changes .grad in place; parameters come with their names."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import Parameter

from gradstudio.core.experiment import Clipping
from gradstudio.engine import foreach
from gradstudio.engine.models import in_head

Named = Sequence[tuple[str, Parameter]]


def norm(parameters: Named, knobs: Clipping) -> None:
    """All gradients times max_norm / (their common norm + 1e-6), where that is below 1 (Pascanu 2013, as torch has it)."""
    torch.nn.utils.clip_grad_norm_([parameter for _, parameter in parameters], knobs.max_norm)


def value(parameters: Named, knobs: Clipping) -> None:
    """Every entry cut to -clip_value .. clip_value. An infinite one is cut, a NaN stays."""
    torch.nn.utils.clip_grad_value_([parameter for _, parameter in parameters], knobs.clip_value)


@torch.no_grad()
def per_layer(parameters: Named, knobs: Clipping) -> None:
    """Each tensor by itself, with torch's coefficient: times max_norm / (its norm + 1e-6), where that is below 1."""
    grads = [parameter.grad for _, parameter in parameters if parameter.grad is not None]
    coefficients = (knobs.max_norm / (foreach.norms(grads) + 1e-6)).clamp(max=1.0)
    foreach.multiply_(grads, coefficients.unbind())


@torch.no_grad()
def agc(parameters: Named, knobs: Clipping, eps: float = 1e-3) -> None:
    """Adaptive gradient clipping (Brock 2021, arXiv 2102.06171, and timm.utils.agc): the gradient of a unit is brought to agc_factor
    times the norm of the unit's weights, taken as at least eps, where it is larger. Every head is left out, as the paper says; timm
    leaves out the last two parameters instead."""
    for name, parameter in parameters:
        if parameter.grad is None or in_head(name):
            continue
        largest = unit_norm(parameter.detach()).clamp(min=eps) * knobs.agc_factor
        size = unit_norm(parameter.grad)
        clipped = parameter.grad * (largest / size.clamp(min=1e-6))
        parameter.grad.copy_(torch.where(size < largest, parameter.grad, clipped))


def unit_norm(tensor: Tensor) -> Tensor:
    """Norm of each row of a weight (outputs, inputs...), in a shape that broadcasts against it; of a vector, one norm."""
    if tensor.ndim < 2:
        return torch.linalg.vector_norm(tensor)
    return torch.linalg.vector_norm(tensor, dim=tuple(range(1, tensor.ndim)), keepdim=True)


CLIPPING: dict[str, Callable[[Named, Clipping], None]] = {
    "none": lambda parameters, knobs: None,
    "norm": norm,
    "value": value,
    "agc": agc,
    "per_layer": per_layer,
}
