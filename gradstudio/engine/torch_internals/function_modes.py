"""The stack of modes that observe each call of torch: ours is put below those that a script enters and leaves."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._device import DeviceContext

from gradstudio.engine.torch_internals.internal import Internal, check


class _Stack:
    """Puts a mode at the bottom of this thread's stack, above the device set by a script, and removes it."""

    def __init__(self) -> None:
        internals: Any = torch._C
        self._push, self._pop = internals._push_on_torch_function_stack, internals._pop_torch_function_stack
        self._length = internals._len_torch_function_stack

    def put(self, mode: TorchFunctionMode) -> None:
        above = [self._pop() for _ in range(self._length())]
        if above and isinstance(above[-1], DeviceContext):
            self._push(above.pop())
        self._push(mode)
        for each in reversed(above):
            self._push(each)

    def take_away(self, mode: TorchFunctionMode) -> bool:
        """Remove the mode. Return whether it was there: it is not within a call that it observes."""
        above = [self._pop() for _ in range(self._length())]
        for each in reversed(above):
            if each is not mode:
                self._push(each)
        return any([each is mode for each in above])


class _Trial(TorchFunctionMode):
    calls = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls += 1
        return func(*args, **(kwargs or {}))


def _find() -> _Stack:
    stack, mode = _Stack(), _Trial()
    stack.put(mode)
    try:
        torch.zeros(1)
    finally:
        stack.take_away(mode)
    torch.zeros(1)
    check(mode.calls == 1)
    return stack


STACK = Internal(
    "torch._C._push_on_torch_function_stack",
    "The loss code of a watched script cannot be recorded",
    "a crash file holds the state alone",
    _find,
)


def stack() -> _Stack | None:
    """Return the manager of this thread's stack of modes; None if that is impossible."""
    return STACK.get()


def unobserved() -> AbstractContextManager[object]:
    """Return a context in which no mode observes the calls of torch."""
    return getattr(torch._C, "DisableTorchFunction", nullcontext)()
