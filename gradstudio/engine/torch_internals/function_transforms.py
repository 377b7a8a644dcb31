"""Whether a call of this thread is within a function transformed by torch.func, for example by grad or vmap."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from gradstudio.engine.torch_internals.internal import Internal, check


def _find_stack() -> Callable[[], Any]:
    internals: Any = torch._C  # whose types lack what comes next
    _functorch = internals._functorch
    check(_functorch.peek_interpreter_stack() is None)
    _functorch._grad_increment_nesting()  # torch.func.grad itself takes a second for its first call
    try:
        check(_functorch.peek_interpreter_stack() is not None)
    finally:
        _functorch._grad_decrement_nesting()
    check(_functorch.peek_interpreter_stack() is None)
    return _functorch.peek_interpreter_stack


STACK = Internal(
    "torch._C._functorch.peek_interpreter_stack",
    "A script that transforms its model by torch.func may not be watched",
    "the script goes on as it was",
    _find_stack,
)


def transform() -> Callable[[], Any]:
    """Return a function that returns the transform of this thread's calls, None if there is none."""
    return STACK.get() or (lambda: None)
