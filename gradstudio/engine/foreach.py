"""torch's operations on whole lists of tensors: one call for many, each with the bits of the operation on one tensor."""

# pyright: reportPrivateImportUsage=false

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def norms(tensors: Sequence[Tensor]) -> Tensor:
    """L2 norm of each: (tensors,), on their device."""
    return torch.stack(torch._foreach_norm(list(tensors), 2))


def multiply_(tensors: Sequence[Tensor], factors: Sequence[Tensor]) -> None:
    torch._foreach_mul_(list(tensors), list(factors))


def copy_(targets: Sequence[Tensor], sources: Sequence[Tensor]) -> None:
    if targets:
        torch._foreach_copy_(list(targets), list(sources))
