"""What a studio file shares with everything else in this process, and has to leave as it was: other runs would train
otherwise, and a branch of its own would no longer repeat it. It is looked at after each call; what of torch a file may
replace takes longer to look at (torch_itself.py)."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import torch


def folder() -> str:
    """Return the working folder, "" if it was deleted."""
    with suppress(OSError):
        return os.getcwd()
    return ""


# What is shared, in the order of `now`, and how it is set.
_PUT: Mapping[str, Callable[[Any], object]] = {
    "torch's default dtype": torch.set_default_dtype,
    "torch's grad mode": torch.set_grad_enabled,
    "torch's number of threads": torch.set_num_threads,
    "torch's deterministic mode": torch.set_deterministic_debug_mode,
    "the working folder": os.chdir,
}


def now(folder: str) -> tuple[Any, ...]:
    """Return the state as it is, with the working folder as it is known to be: to ask for that may take longer than
    all the rest."""
    return (
        torch.get_default_dtype(), torch.is_grad_enabled(), torch.get_num_threads(),
        torch.get_deterministic_debug_mode(), folder,
    )  # fmt: skip


def put_back(before: tuple[Any, ...]) -> str:
    """Bring the state back to what it was. Return what was changed, in words; "" if nothing was."""
    after = now(folder())
    if after == before:
        return ""
    changed = []
    for (name, put), was, found in zip(_PUT.items(), before, after, strict=True):
        if was != found:
            changed.append(f"{name} (to {str(found).removeprefix('torch.')})")
            with suppress(OSError, RuntimeError):  # a folder that is gone
                put(was)
    return " and ".join(changed)
