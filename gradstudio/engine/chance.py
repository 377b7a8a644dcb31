"""torch's global random generators, which the threads of a process share: dropout and the like draw from them."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

GLOBAL = threading.RLock()  # held by whoever draws from them
_left: weakref.WeakSet[threading.Thread] = weakref.WeakSet()  # abandoned within a step


def leave(thread: threading.Thread) -> None:
    """Let others draw although this thread, which was abandoned, holds the generators and never releases them. It does
    not restore their state, either."""
    global GLOBAL
    _left.add(thread)
    GLOBAL = threading.RLock()


def states(device: str) -> list[Tensor]:
    """Return the state of the CPU's generator, and of the device's own."""
    tensors = [torch.get_rng_state()]
    return [*tensors, torch.cuda.get_rng_state(device)] if device.startswith("cuda") else tensors


def restore(tensors: Sequence[Tensor], device: str) -> None:
    """Put the generators into the states that `states` returned."""
    torch.set_rng_state(tensors[0])
    if device.startswith("cuda") and len(tensors) > 1:
        torch.cuda.set_rng_state(tensors[1], device)


@contextmanager
def preserve(device: str) -> Iterator[None]:
    """Restore the current state of the generators at the end."""
    with GLOBAL:
        before = states(device)
        try:
            yield
        finally:
            if threading.current_thread() not in _left:
                restore(before, device)
