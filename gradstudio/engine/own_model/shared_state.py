"""The process-wide state that a studio file must leave unchanged: other runs would otherwise train differently, and a
branch of its own would no longer repeat it. It is checked after each call; the parts of torch that a file may replace
take longer to check (torch_itself.py)."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import torch


def folder() -> str:
    """Return the working folder; "" if it was deleted."""
    with suppress(OSError):
        return os.getcwd()
    return ""


# The shared state, in the order of `now`, and how to set it.
_PUT: Mapping[str, Callable[[Any], object]] = {
    "torch's default dtype": torch.set_default_dtype,
    "torch's grad mode": torch.set_grad_enabled,
    "torch's number of threads": torch.set_num_threads,
    "torch's deterministic mode": torch.set_deterministic_debug_mode,
    "the working folder": os.chdir,
}


def now(folder: str) -> tuple[Any, ...]:
    """Return the current state. `folder`: the working folder, if known, as asking for it may take longer than
    everything else."""
    return (
        torch.get_default_dtype(), torch.is_grad_enabled(), torch.get_num_threads(),
        torch.get_deterministic_debug_mode(), folder,
    )  # fmt: skip


def put_back(before: tuple[Any, ...]) -> str:
    """Restore the former state. Return what was changed, in words; "" if nothing was."""
    after = now(folder())
    if after == before:
        return ""
    changed = []
    for (name, put), was, now_value in zip(_PUT.items(), before, after, strict=True):
        if was != now_value:
            changed.append(f"{name} (to {str(now_value).removeprefix('torch.')})")
            with suppress(OSError, RuntimeError):  # a deleted folder
                put(was)
    return " and ".join(changed)
