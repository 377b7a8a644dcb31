"""Tensors without memory, multiplication counts of operations, and how oneDNN computes on this processor."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor

from gradstudio.engine.torch_internals.internal import Internal, check

_Count = Callable[[Any, tuple[Any, ...], dict[str, Any], Any], int]


def _find_without_memory() -> Callable[[], AbstractContextManager[Any]]:
    from torch._subclasses.fake_tensor import FakeTensorMode

    check("allow_non_fake_inputs" in inspect.signature(FakeTensorMode).parameters)
    return lambda: FakeTensorMode(allow_non_fake_inputs=True)


def _find_count() -> _Count:
    from torch.utils.flop_counter import flop_registry

    def count(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], results: Any) -> int:
        formula = flop_registry.get(function.overloadpacket)
        return 0 if formula is None else int(formula(*args, **kwargs, out_val=results)) // 2

    aten: Any = torch.ops.aten
    with torch.no_grad():
        product = torch.ones(2, 3), torch.ones(3, 5)
        check(count(aten.mm.default, product, {}, torch.ones(2, 5)) == 30)
    return count


def _find_onednn() -> Callable[[torch.dtype], bool]:
    asked = {
        torch.bfloat16: torch.ops.mkldnn._is_mkldnn_bf16_supported,
        torch.float16: torch.ops.mkldnn._is_mkldnn_fp16_supported,
    }
    answers = {dtype: bool(ask()) for dtype, ask in asked.items()}
    return lambda dtype: answers.get(dtype, True)


WITHOUT_MEMORY = Internal(
    "torch._subclasses.fake_tensor", "The memory of an experiment cannot be worked out before it is run",
    "training is as it was", _find_without_memory,
)  # fmt: skip
MULTIPLICATIONS = Internal(
    "torch.utils.flop_counter.flop_registry", "The work of an experiment is not known before it is run",
    "its memory is known all the same", _find_count,
)  # fmt: skip
ONEDNN = Internal(
    "torch.ops.mkldnn._is_mkldnn_bf16_supported", "The memory of convolutions in bf16 and fp16 is estimated less well",
    "training is as it was", _find_onednn,
)  # fmt: skip


def without_memory() -> Callable[[], AbstractContextManager[Any]] | None:
    """Return a function that creates a context in which tensors have a shape and no memory; None if torch has none.
    Creating the first one imports torch's compiler, for a second."""
    return WITHOUT_MEMORY.get()


def count_multiplications() -> _Count:
    """Return a function that returns the multiplications of an operation, given its arguments and results: those of
    matrix products and convolutions, 0 for others or if torch does not report them."""
    return MULTIPLICATIONS.get() or (lambda function, args, kwargs, results: 0)


def convolved_by_onednn(dtype: torch.dtype) -> bool:
    """Return whether oneDNN does convolutions in this number format on this processor. True if unknown."""
    knows = ONEDNN.get()
    return torch.backends.mkldnn.is_available() and (knows is None or knows(dtype))


def channels_of_a_block() -> int:
    """Return how many channels oneDNN groups in a convolution: the floats in a register of this processor."""
    return 16 if "AVX512" in torch.backends.cpu.get_cpu_capability() else 8


def is_view(tensor: Tensor) -> bool:
    """Return whether a tensor is a view, which keeps its base alive."""
    return tensor._base is not None
