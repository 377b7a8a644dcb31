"""Whether torch's compiler looks at what this thread calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gradstudio.engine.torch_internals.internal import Internal, check


def _find_looker() -> Callable[[], Any]:
    from torch._C._dynamo import eval_frame

    before = eval_frame.set_eval_frame(False)  # look at nothing new
    try:
        check(eval_frame.get_eval_frame_callback() is False)
    finally:
        eval_frame.set_eval_frame(before)
    check(eval_frame.get_eval_frame_callback() is before)
    return eval_frame.get_eval_frame_callback


LOOKER = Internal(
    "torch._C._dynamo.eval_frame.get_eval_frame_callback",
    "A watched step takes longer where torch's compiler is loaded",
    "the figures are the same",
    _find_looker,
)


def looker() -> Callable[[], Any]:
    """Return a function that gives what looks at the calls of this thread for torch's compiler, None where nothing
    does; True where that is not known."""
    return LOOKER.get() or (lambda: True)
