"""Sums of segments without the host waiting for the device, and fresh memory that is not initialized."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from gradstudio.engine.torch_internals.internal import SLOWER, Internal, check


def _find_segment_reduce() -> Callable[..., Tensor]:
    def reduce(data: Tensor, how: str, offsets: Tensor) -> Tensor:
        return torch.segment_reduce(data, how, offsets=offsets, unsafe=True)

    data, offsets = torch.tensor([1.0, -4, 2, 8], dtype=torch.float64), torch.tensor([0, 3, 4])
    check(reduce(data, "sum", offsets).tolist() == [-1, 8] and reduce(data, "max", offsets).tolist() == [2, 8])
    return reduce


def _find_fill() -> Callable[[bool], None]:
    check(isinstance(torch.utils.deterministic.fill_uninitialized_memory, bool))  # pyright: ignore[reportAttributeAccessIssue]

    def fill(wanted: bool) -> None:
        torch.utils.deterministic.fill_uninitialized_memory = wanted  # pyright: ignore[reportAttributeAccessIssue]

    return fill


SEGMENT_REDUCE = Internal(
    "torch.segment_reduce", "A GPU waits for the CPU at every step", "training on a GPU is slower", _find_segment_reduce
)
FILL = Internal(
    "torch.utils.deterministic.fill_uninitialized_memory", "torch may fill fresh memory", SLOWER, _find_fill
)


def segment_sums_possible() -> bool:
    """Return whether segment_reduce can be called."""
    return SEGMENT_REDUCE.get() is not None


def segment_reduce(data: Tensor, how: str, offsets: Tensor) -> Tensor:
    """Sum (or take the largest of) the entries between each offset and the next, without the host waiting for the
    device. Only if segment_sums_possible."""
    return SEGMENT_REDUCE.get()(data, how, offsets)


def leave_fresh_memory_alone() -> None:
    """Keep torch from filling every fresh tensor with NaN, which costs time and only finds faults in torch itself."""
    if fill := FILL.get():
        fill(False)
