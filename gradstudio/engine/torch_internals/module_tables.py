"""A module's own tables: parameters, buffers, hooks, its compiled call; and a traceback without our hooks."""

from __future__ import annotations

import linecache
from collections.abc import Callable
from functools import partial
from types import CodeType, TracebackType
from typing import Any

import torch
from torch import Tensor, nn


def _hooks_of(module: Any) -> tuple[list[Any], list[Any]]:
    """Return the hooks around a model's forward pass that may be ours, and all the others."""
    kinds = ("forward_hooks", "forward_pre_hooks", "backward_hooks", "backward_pre_hooks")
    forward = [hook for kind in kinds[:2] for hook in getattr(module, f"_{kind}", {}).values()]
    others = [hook for kind in kinds[2:] for hook in getattr(module, f"_{kind}", {}).values()]
    everywhere = [getattr(nn.modules.module, f"_global_{kind}", {}) for kind in kinds]
    return forward, [*others, *(hook for hooks in everywhere for hook in hooks.values())]


def own_tables(module: nn.Module) -> list[dict[str, Any]]:
    """Return the tables of a module's own parameters and modules by name; none in a version of torch that keeps them
    elsewhere."""
    return [table for table in map(vars(module).get, ("_parameters", "_modules")) if isinstance(table, dict)]


def compiled_call(module: nn.Module) -> Callable[..., Any] | None:
    """Return the function that a module compiled in place calls; None for another, and in a version of torch that keeps
    it elsewhere."""
    return vars(module).get("_compiled_call_impl")


def set_compiled_call(module: nn.Module, call: Callable[..., Any]) -> None:
    """Set the function that a module compiled in place calls. torch copies and saves a module without it."""
    vars(module)["_compiled_call_impl"] = call


def buffers(module: nn.Module) -> dict[str, Tensor | None]:
    """Return a module's own buffers by name, None if one has no tensor yet; none in a version of torch that keeps them
    elsewhere."""
    return vars(module).get("_buffers") or {}


def own_attributes(module: nn.Module) -> dict[str, Any]:
    """Return a module's attributes apart from its parameters, its buffers, its modules and torch's own."""
    return {name: value for name, value in vars(module).items() if name not in _KEPT_BY_TORCH}


_KEPT_BY_TORCH = frozenset(vars(nn.Module()))


def without_hooks(trace: TracebackType, following: TracebackType, is_ours: Callable[[Any], bool]) -> Any:
    """Return what would follow `trace` if the model that it calls had no hooks of ours, with the instruction and the
    line; None if it is not such a call. `following` is the next entry: with hooks torch calls a function within this
    one, and in torch 2.4 the model itself."""
    called, inner = trace.tb_frame.f_code, following.tb_frame.f_code
    if called is not getattr(nn.Module._call_impl, "__code__", None):
        return None
    has_inner = any(isinstance(each, CodeType) and each.co_name == "inner" for each in called.co_consts)
    if has_inner and inner not in called.co_consts:
        return None
    module: Any = trace.tb_frame.f_locals.get("self")
    ours, others = _hooks_of(module)
    if others or not all(map(is_ours, ours)):
        return None
    text, call = partial(linecache.getline, called.co_filename), "forward_call(*args, **kwargs)"
    if not has_inner and text(trace.tb_lineno).strip() != f"result = {call}":
        return None
    plain = [
        (2 * number, line)
        for number, (line, _, start, end) in enumerate(called.co_positions())
        if line is not None and text(line)[start:end] == call and text(line).strip() == f"return {call}"
    ]
    return (following.tb_next if has_inner else following, *plain[-1]) if plain else None


def scripts_modules() -> Any:
    """Return the module of torch whose `create_script_module` converts a model to a script; None if it has none."""
    owner = getattr(torch.jit, "_recursive", None)
    return owner if hasattr(owner, "create_script_module") else None
