"""torch's global random generators, which the threads of a process share: dropout and the like draw from them."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

GLOBAL = threading.RLock()  # held by whoever draws from them


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
            restore(before, device)
