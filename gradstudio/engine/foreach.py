"""torch's operations on whole lists of tensors: one call for many, each with the bits of the operation on one tensor."""

# pyright: reportPrivateImportUsage=false

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def norms(tensors: Sequence[Tensor], dtype: torch.dtype | None = None) -> Tensor:
    """L2 norm of each, summed in `dtype`: (tensors,), on their device."""
    return torch.stack(torch._foreach_norm(list(tensors), 2, dtype))


def largest(tensors: Sequence[Tensor]) -> Tensor:
    """Largest absolute entry of each, NaN where there is one: (tensors,), on their device."""
    return torch.stack(torch._foreach_max(torch._foreach_abs(list(tensors))))


def add_(tensors: Sequence[Tensor], others: Sequence[Tensor]) -> None:
    torch._foreach_add_(list(tensors), list(others))


def multiply_(tensors: Sequence[Tensor], factors: float | Sequence[Tensor]) -> None:
    torch._foreach_mul_(list(tensors), list(factors) if isinstance(factors, Sequence) else factors)


def copy_(tensors: Sequence[Tensor], sources: Sequence[Tensor]) -> None:
    torch._foreach_copy_(list(tensors), list(sources))


def subtract(tensors: Sequence[Tensor], others: Sequence[Tensor]) -> Sequence[Tensor]:
    return torch._foreach_sub(list(tensors), list(others))
