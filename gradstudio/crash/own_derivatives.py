"""Derivatives that a script defines itself, as an autograd function: observed as calls of torch, and replayed from them
without the code that made them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import BackwardCFunction


def name_of_own(tensor: Tensor) -> str:
    """Return the name of the autograd function with which a script defines the derivative of a tensor; "" if torch
    does."""
    node = tensor.grad_fn
    return type(node).__name__.removesuffix("Backward") if isinstance(node, BackwardCFunction) else ""


@contextmanager
def without_reentrant_checkpoints() -> Iterator[None]:
    """Call what a script checkpoints directly, as its values are the same."""
    checkpoints: Any = sys.modules.get("torch.utils.checkpoint")
    if checkpoints is None:
        yield
        return
    function = checkpoints.CheckpointFunction
    function.apply = staticmethod(lambda called, _preserves, *given: called(*given))
    try:
        yield
    finally:
        del function.apply


class _Recorded(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, result: Callable[[], Tensor], derive: Callable[[Tensor], Any], *_: Any) -> Tensor:
        ctx.derive = derive
        return result().detach()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return None, None, *ctx.derive(gradients[0])


def with_own_derivative(result: Callable[[], Tensor], derive: Callable[[Tensor], Any], *given: Any) -> Tensor:
    """Return what `result` gives; its gradient comes to those that are `given` by `derive`."""
    return _Recorded.apply(result, derive, *given)
