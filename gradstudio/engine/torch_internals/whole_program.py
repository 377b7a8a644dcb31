"""torch's process-wide state: the hooks for every module and every optimizer, and those for the tensors that autograd
saves. Without these parts nothing is detected, and nothing is restored."""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import nn

_AUTOGRAD: Any = getattr(torch._C, "_autograd", None)


def hook_tables() -> dict[str, dict[Any, Any]]:
    """Return the tables of hooks that act on every module or optimizer, by their names in torch."""
    return {
        name: table
        for module in (nn.modules.module, sys.modules[torch.optim.Optimizer.__module__])
        for name, table in vars(module).items()
        if name.startswith("_global_") and isinstance(table, dict)
    }


def put_hooks_back(before: dict[str, dict[Any, Any]]) -> None:
    """Restore the contents of the tables, and reset torch's record of the kind of backward hooks."""
    for name, table in hook_tables().items():
        if table != before.get(name, table):
            table.clear()
            table.update(before[name])
    if not before.get("_global_backward_hooks", True) and hasattr(nn.modules.module, "_global_is_full_backward_hook"):
        nn.modules.module._global_is_full_backward_hook = None


def hooks_of_saved_tensors() -> Any:
    """Return the pair of functions that this thread calls for each tensor that autograd saves; None without one."""
    top = getattr(_AUTOGRAD, "_top_saved_tensors_default_hooks", None)
    return top(False) if top else None


def drop_hooks_of_saved_tensors(_: object = None) -> None:
    """Remove those functions from this thread."""
    while hooks_of_saved_tensors() is not None:
        _AUTOGRAD._pop_saved_tensors_default_hooks()
