"""Hooks into gradient clipping and autocast: how a script clips, and in which number format it computes."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from typing import Any

import torch
from torch import Tensor
from torch.compiler import is_compiling

from gradstudio.engine.torch_internals.internal import SAME_FIGURES, Internal, check

_CLIPPING_HELPER = "_group_tensors_by_device_and_dtype"
_BY_NORM = "_clip_grads_with_norm_"  # from torch 2.6 on; clip_grad_norm_ does it itself before
_LIMITS = {_BY_NORM: "max_norm", "clip_grad_norm_": "max_norm", "clip_grad_value_": "clip_value"}
_KINDS = {_BY_NORM: "norm", "clip_grad_norm_": "norm", "clip_grad_value_": "value"}


def _find_clipping() -> Any:
    """Both clipping functions call this helper by its global name, however the script imported them."""
    from torch.nn.utils import clip_grad

    owner, name = _clipping_by_norm(clip_grad)
    for function in (getattr(owner, name), clip_grad.clip_grad_value_):
        code: Any = inspect.unwrap(function).__code__
        check(_CLIPPING_HELPER in code.co_names and _LIMITS[code.co_name] in code.co_varnames)
    check(callable(getattr(clip_grad, _CLIPPING_HELPER)))
    return clip_grad


def _clipping_by_norm(module: Any) -> tuple[Any, str]:
    """Return the module and the name under which torch looks up the function that clips by norm at each call."""
    if hasattr(module, _BY_NORM):
        return module, _BY_NORM
    around: Any = module.clip_grad_norm_  # which calls the function without autograd
    return around.__closure__[around.__code__.co_freevars.index("func")], "cell_contents"


CLIPPING = Internal(
    "torch.nn.utils.clip_grad", "Kind and limit of clipping in a watched script are not known",
    "a norm that cannot be told without them is unknown, and the others are the same", _find_clipping,
)  # fmt: skip


def _find_any_autocast() -> Callable[[], bool]:
    any_enabled = torch._C._is_any_autocast_enabled
    check(not any_enabled())
    for device in ("cpu", "cuda"):
        before = torch.is_autocast_enabled(device)
        torch.set_autocast_enabled(device, True)
        try:
            check(any_enabled())
        finally:
            torch.set_autocast_enabled(device, before)
    check(not any_enabled())
    return any_enabled


ANY_AUTOCAST = Internal(
    "torch._C._is_any_autocast_enabled", "A watched step takes longer", SAME_FIGURES, _find_any_autocast
)


def clipping_is_observable() -> bool:
    """Return whether a script's clipping can be observed at all."""
    return CLIPPING.get() is not None


def hook_clipping(
    on_clip: Callable[[str, float, Sequence[Tensor], Sequence[Tensor]], None], afterwards: Callable[[], None]
) -> Callable[[], None] | None:
    """Before torch clips gradients, call `on_clip` with kind, limit, gradients and, if there are none, parameters; call
    `afterwards` once it has clipped by norm. Return the function that removes the hook, None if hooking is
    impossible."""
    module = CLIPPING.get()
    if module is None:
        return None
    original = getattr(module, _CLIPPING_HELPER)
    owner, place = _clipping_by_norm(module)
    by_norm: Callable[..., Any] = getattr(owner, place)

    def group(tensors: Any, *others: Any, **named: Any) -> Any:
        if not is_compiling():
            frame = sys._getframe(1)
            caller = frame.f_code.co_name
            if caller in _KINDS:
                on_clip(_KINDS[caller], float(frame.f_locals[_LIMITS[caller]]), tensors[0], ())
        return original(tensors, *others, **named)

    @wraps(by_norm)
    def clip(parameters: Any, max_norm: Any, *others: Any, **named: Any) -> Any:
        if is_compiling():
            return by_norm(parameters, max_norm, *others, **named)
        parameters = list(parameters) if isinstance(parameters, Iterator) else parameters
        if isinstance(parameters, list) and all(tensor.grad is None for tensor in parameters):
            on_clip("norm", float(max_norm), (), parameters)  # it does not get as far as the helper
        given = by_norm(parameters, max_norm, *others, **named)
        afterwards()
        return given

    ours = ((module, _CLIPPING_HELPER, group, original), (owner, place, clip, by_norm))

    def undo() -> None:
        for owner, name, own, before in ours:
            if getattr(owner, name) is own:
                setattr(owner, name, before)

    for owner, name, own, _ in ours:
        setattr(owner, name, own)
    return undo


def autocast_asker() -> Callable[[], bool]:
    """Return a function that tells whether autocast may be on in this thread, for the CPU or CUDA."""
    return ANY_AUTOCAST.get() or (lambda: True)


def autocast_format(autocast: Any) -> torch.dtype | None:
    """Return the number format of an autocast block; None if it is disabled."""
    return getattr(autocast, "fast_dtype", None) if getattr(autocast, "_enabled", False) else None
