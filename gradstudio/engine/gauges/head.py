"""How similar the examples look to the last layer. A signal that no longer depends on its input gives every example the
same direction there: a mean cosine near 1, from which no class can be told. It is not centred, because the mean is what
they then share."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from gradstudio.core.unknown import UNKNOWN


@contextmanager
def collect_head_inputs(model: nn.Module) -> Iterator[list[Tensor]]:
    """Collect the inputs of a model's output layer in this context. A model without one yields nothing."""
    tensors: list[Tensor] = []
    head = getattr(model, "head", None)
    hook = head.register_forward_pre_hook(lambda _, inputs: tensors.append(inputs[0])) if head is not None else None
    try:
        yield tensors
    finally:
        if hook is not None:
            hook.remove()


def mean_cosine(rows: Tensor) -> float:
    """Return the mean cosine between every two rows of (..., features). Rows that are all 0 have no direction and are
    left out: UNKNOWN if fewer than two are left. NaN if an entry is non-finite."""
    rows = rows.double().flatten(0, -2)
    norms = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
    if not torch.isfinite(norms).all():
        return math.nan
    there = norms[:, 0] > 0
    count = int(there.sum())
    if count < 2:
        return UNKNOWN
    # its square is the sum of all cosines, including that of each row with itself
    whole = (rows[there] / norms[there]).sum(0)
    return float((whole @ whole - count) / (count * (count - 1)))
