"""Operations on whole lists of tensors: one call for many, with the bits of the operation on each."""

# pyright: reportPrivateImportUsage=false

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from gradstudio.engine.torch_internals.internal import SLOWER, Internal, check


def _find_foreach_norm() -> Callable[[list[Tensor], float], Sequence[Tensor]]:
    check([norm.item() for norm in torch._foreach_norm([torch.full((4,), 3.0), torch.ones(1)], 2)] == [6, 1])
    return torch._foreach_norm


def _find_foreach_mul() -> Callable[[list[Tensor], list[Tensor]], object]:
    places = [torch.ones(2), torch.ones(1)]
    torch._foreach_mul_(places, [torch.tensor(3.0), torch.tensor(5.0)])
    check([place.tolist() for place in places] == [[3, 3], [5]])
    return torch._foreach_mul_


def _find_foreach_copy() -> Callable[[list[Tensor], list[Tensor]], object]:
    places = [torch.zeros(2), torch.zeros(1)]
    torch._foreach_copy_(places, [torch.ones(2), torch.full((1,), 2.0)])
    check([place.tolist() for place in places] == [[1, 1], [2]])
    return torch._foreach_copy_


FOREACH_NORM = Internal("torch._foreach_norm", "Clipping takes tensor by tensor", SLOWER, _find_foreach_norm)
FOREACH_MUL = Internal("torch._foreach_mul_", "Clipping takes tensor by tensor", SLOWER, _find_foreach_mul)

FOREACH_COPY = Internal("torch._foreach_copy_", "Gradients are copied tensor by tensor", SLOWER, _find_foreach_copy)


def norms(tensors: Sequence[Tensor]) -> Tensor:
    """Return the L2 norm of each tensor: (tensors,), on their device."""
    norm = FOREACH_NORM.get()
    each = norm(list(tensors), 2) if norm else [torch.linalg.vector_norm(tensor) for tensor in tensors]
    return torch.stack(list(each))


def multiply_(tensors: Sequence[Tensor], factors: Sequence[Tensor]) -> None:
    """Multiply each tensor by its factor, in place."""
    if multiply := FOREACH_MUL.get():
        multiply(list(tensors), list(factors))
        return
    for tensor, factor in zip(tensors, factors, strict=True):
        tensor.mul_(factor)


def copy_(targets: Sequence[Tensor], sources: Sequence[Tensor]) -> None:
    """Copy each source to its target."""
    if targets and (copy := FOREACH_COPY.get()):
        copy(list(targets), list(sources))
        return
    for target, source in zip(targets, sources, strict=True):
        target.copy_(source)
