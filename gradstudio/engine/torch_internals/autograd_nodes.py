"""Autograd's graph: the active node, hooks on gradients, and whether a tensor was written to."""

from __future__ import annotations

import inspect
import sys
from collections import OrderedDict
from collections.abc import Callable, Sequence
from operator import attrgetter
from types import FrameType
from typing import Any

import torch
from torch import Tensor

from gradstudio.engine.torch_internals.internal import SAME_FIGURES, Internal, check


def _find_active_node() -> Callable[[], Any]:
    seen: list[tuple[str, str]] = []

    def note(gradient: Tensor) -> None:
        node: Any = torch._C._current_autograd_node()
        seen.append((node.name(), node.metadata.get("module", "")))

    weight = torch.ones(1, requires_grad=True)
    product = weight * 2
    made: Any = product.grad_fn
    made.metadata["module"] = "trial"
    weight.register_hook(note)
    product.register_hook(note)
    product.sum().backward()
    check(torch._C._current_autograd_node() is None and ("MulBackward0", "trial") in seen)
    return torch._C._current_autograd_node


def _find_hook_dict() -> Callable[[Tensor, Callable[[Tensor], None]], None]:
    def add_hook(tensor: Tensor, hook: Callable[[Tensor], None]) -> None:
        node: Any = tensor.grad_fn
        if tensor._backward_hooks is not None or node is None or type(tensor) is not Tensor:
            tensor.register_hook(hook)  # the script may have hooks of its own
            return
        hooks: Any = OrderedDict()
        hooks[hook] = hook  # those of torch have numbers as keys
        tensor._backward_hooks = hooks
        node._register_hook_dict(tensor)

    seen: list[float] = []
    weight = torch.ones(1, requires_grad=True)
    product = weight * 2
    add_hook(product, lambda gradient: seen.append(gradient.item()))
    handle = product.register_hook(lambda gradient: gradient * 5)
    removed = product.register_hook(lambda gradient: seen.append(0.0))
    removed.remove()
    (product * 3).backward()
    handle.remove()
    check(seen == [3] and weight.grad is not None and weight.grad.item() == 30)
    return add_hook


def _find_results_of_node() -> Callable[[Any], Any]:
    node: Any = (torch.ones(2, 3, requires_grad=True) * 2).grad_fn
    (told,) = node._input_metadata
    check(tuple(told.shape) == (2, 3) and told.dtype is torch.float32)
    return attrgetter("_input_metadata")


def _find_version_setter() -> Callable[[Sequence[Tensor], Sequence[int]], None]:
    internals: Any = torch._C
    setter = internals._autograd._unsafe_set_version_counter

    def set_each(tensors: Sequence[Tensor], versions: Sequence[int]) -> None:
        for tensor, number in zip(tensors, versions, strict=True):
            try:
                setter((tensor,), (number,))
            except TypeError:  # torch 2.4
                setter(tensor, number)

    places = torch.ones(2).add_(1), torch.ones(1)
    set_each(places, (0, 3))
    check([place._version for place in places] == [0, 3])
    return set_each


# The functions of torch in which a backward pass begins, and in which it calls a Python function.
_OF_BACKWARD = {
    inspect.unwrap(each).__code__
    for each in (torch.autograd.grad, torch.autograd.backward, torch.autograd.function.BackwardCFunction.apply)
}

NODE_AT_WORK = Internal(
    "torch._C._current_autograd_node",
    "NaN provenance does not name the module in the backward pass",
    "training is as it was",
    _find_active_node,
)
HOOK_DICT = Internal("torch.Tensor._backward_hooks", "A watched step takes longer", SAME_FIGURES, _find_hook_dict)

TOLD_RESULTS = Internal(
    "autograd.Node._input_metadata",
    "A NaN of loss code is named less exactly, and what reads the shapes of a loss is not found",
    "training is as it was",
    _find_results_of_node,
)

VERSION_SETTER = Internal(
    "torch._C._autograd._unsafe_set_version_counter",
    "The birth of a NaN on a GPU is unknown where a weight is an input of the model",
    "training is as it was",
    _find_version_setter,
)


def results_of_node(node: Any) -> Any:
    """Return the shape and dtype of each result of a node of autograd's graph; () if it does not report them."""
    find = TOLD_RESULTS.get()
    return () if find is None else find(node)


def active_node() -> Callable[[], Any]:
    """Return a function that returns the active node of autograd's graph in this thread, None if there is none."""
    return NODE_AT_WORK.get() or (lambda: None)


def active_backward() -> Callable[[], Any]:
    """Return a function that returns a value if this thread is called from a backward pass, otherwise None. Without the
    node the value is the frame of that pass, which a hook in a thread of a GPU does not have."""
    return NODE_AT_WORK.get() or _frame_of_backward


def _frame_of_backward() -> FrameType | None:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code not in _OF_BACKWARD:
        frame = frame.f_back
    return frame


def gradient_hook_adder() -> Callable[[Tensor, Callable[[Tensor], None]], object]:
    """Return a function that registers a hook for each gradient of a tensor, called before the hooks that are
    registered later."""
    return HOOK_DICT.get() or Tensor.register_hook


def hooks_of_arrival(tensor: Tensor) -> dict[int, Callable[..., Any]]:
    """Return the table of callbacks for when a gradient has arrived at a weight; an unrelated one if torch keeps it
    elsewhere."""
    hooks: Any = getattr(tensor, "_post_accumulate_grad_hooks", None)
    return {} if hooks is None else hooks


def version_of(tensor: Tensor) -> int:
    """Return a number that changes whenever torch writes to a tensor."""
    return tensor._version


def set_versions(tensors: Sequence[Tensor], versions: Sequence[int]) -> None:
    """Give tensors the versions that they had when they had these values."""
    if set_version := VERSION_SETTER.get():
        set_version(tensors, versions)
