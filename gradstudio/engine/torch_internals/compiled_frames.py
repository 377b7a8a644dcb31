"""Whether torch's compiler intercepts the calls of this thread, and whether anything is to be compiled at all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch

from gradstudio.engine.torch_internals.internal import SAME_FIGURES, Internal, check


def _find_looker() -> Callable[[], Any]:
    from torch._C._dynamo import eval_frame

    before = eval_frame.set_eval_frame(False)  # intercept nothing new
    try:
        check(eval_frame.get_eval_frame_callback() is False)
    finally:
        eval_frame.set_eval_frame(before)
    check(eval_frame.get_eval_frame_callback() is before)
    return eval_frame.get_eval_frame_callback


def _find_backends() -> dict[int, Any]:
    from torch._dynamo import eval_frame

    cached = eval_frame.cached_backends
    check(type(cached) is dict and all(key == id(value) for key, value in cached.items()))
    check("cached_backends" in eval_frame._TorchDynamoContext.__init__.__code__.co_names)
    return cached


LOOKER = Internal(
    "torch._C._dynamo.eval_frame.get_eval_frame_callback",
    "A watched step takes longer where torch's compiler is loaded",
    SAME_FIGURES,
    _find_looker,
)


BACKENDS = Internal(
    "torch._dynamo.eval_frame.cached_backends",
    "A watched step takes longer where torch's compiler is loaded and nothing is compiled",
    SAME_FIGURES,
    _find_backends,
)


def backends() -> dict[int, Any]:
    """Return the table of the backends given to torch's compiler, by id, until a script resets the compiler; None in it
    means that code is to be left as it is. Empty if torch keeps it elsewhere."""
    return BACKENDS.get() or {}


def call_interceptor() -> Callable[[], Any]:
    """Return a function that returns the callback with which torch's compiler intercepts the calls of this thread, None
    if there is none; True if unknown."""
    return LOOKER.get() or (lambda: True)


def without_compilation() -> AbstractContextManager[object]:
    """Return a context in which compiled code runs as it is written."""
    set_stance = getattr(torch.compiler, "set_stance", None)  # from torch 2.6 on
    return set_stance("force_eager") if set_stance is not None else _without_frames()


@contextmanager
def _without_frames() -> Iterator[None]:
    """Intercept no calls, even of compiled code in this context."""
    from torch._dynamo import eval_frame

    module: Any = eval_frame
    original = module.set_eval_frame
    module.set_eval_frame = lambda _: original(None)
    try:
        yield
    finally:
        module.set_eval_frame = original
