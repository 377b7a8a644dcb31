"""torch itself, which all runs of this process share: its functions and methods, its global hooks, and its modes. A
studio file that changes one of them would change every run after it, so it is restored. So are the functions of the
clock, which tell the program when to show what.

The first check takes a few milliseconds, and each other one about one: it is made when a file has run, when its model
is built, when its run ends and before another one begins; never at a step."""

from __future__ import annotations

import inspect
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from types import CodeType, ModuleType
from typing import Any, NamedTuple

import torch
from torch.backends import cuda, mkldnn

from gradstudio.core.studio_file import MODULE
from gradstudio.engine.torch_internals import whole_program

_MODULES = (
    "torch", "torch.nn", "torch.optim", "torch.autograd", "torch.linalg", "torch.special", "torch.fft", "torch.random",
    "torch.utils.checkpoint", "time",
)  # fmt: skip
_FOLDER = os.path.join(os.path.dirname(torch.__file__), "")
_NOTHING: Any = object()
_MOST_WRAPPERS = 20  # of a function


class _Mode(NamedTuple):
    """A mode of torch: how it is read, and how it is set."""

    get: Callable[[], Any]
    put: Callable[[Any], object]


def _set_anomaly(mode: tuple[bool, bool]) -> None:
    torch.autograd.set_detect_anomaly(*mode)


def _set_mkldnn(enabled: bool) -> None:
    mkldnn.enabled = enabled


_MODES: Mapping[str, _Mode] = {
    "torch's default device": _Mode(torch.get_default_device, lambda _: torch.set_default_device(None)),
    "torch's anomaly mode": _Mode(
        lambda: (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()), _set_anomaly
    ),
    "torch's precision of float32 products": _Mode(
        torch.get_float32_matmul_precision, torch.set_float32_matmul_precision
    ),
    "torch's autocast on the CPU": _Mode(
        lambda: torch.is_autocast_enabled("cpu"), lambda on: torch.set_autocast_enabled("cpu", on)
    ),
    "torch's autocast on CUDA": _Mode(
        lambda: torch.is_autocast_enabled("cuda"), lambda on: torch.set_autocast_enabled("cuda", on)
    ),
    "torch's use of oneDNN": _Mode(lambda: mkldnn.enabled, _set_mkldnn),
    "torch's plain attention": _Mode(cuda.math_sdp_enabled, cuda.enable_math_sdp),
    "torch's flash attention": _Mode(cuda.flash_sdp_enabled, cuda.enable_flash_sdp),
    "torch's hooks of saved tensors": _Mode(
        whole_program.hooks_of_saved_tensors, whole_program.drop_hooks_of_saved_tensors
    ),
}


class _Owner(NamedTuple):
    """A module or class of torch, and its parts by name: their original values, and permitted replacements."""

    name: str
    itself: Any
    parts: Mapping[str, Any]
    accepted: dict[str, Any]  # created by torch itself or a package


class _Before:
    """torch as it was before any studio file had run in this process."""

    def __init__(self) -> None:
        self._owners = [_Owner(name, owner, dict(vars(owner)), {}) for name, owner in _owners()]
        self._known = {id(part) for owner in self._owners for part in owner.parts.values()}
        self._modes = {name: mode.get() for name, mode in _MODES.items()}
        self._hooks = {name: dict(table) for name, table in whole_program.hook_tables().items()}

    def put_back(self) -> str:
        """Restore that state of torch. Return what was changed, in words; "" if nothing was."""
        changed = [f"replaces {name}" for owner in self._owners for name in self._put_parts_back(owner)]
        for name, mode in _MODES.items():
            if (current := mode.get()) != self._modes[name]:
                changed.append(f"changes {name}" + (f" (to {current})" if isinstance(current, (bool, str)) else ""))
                mode.put(self._modes[name])
        if whole_program.hook_tables() != self._hooks:
            changed.append("leaves a hook on all modules or optimizers")
            whole_program.put_hooks_back(self._hooks)
        return changed[0] if changed else ""

    def _put_parts_back(self, owner: _Owner) -> Iterator[str]:
        now = vars(owner.itself)
        for name, part in owner.parts.items():
            current = now.get(name, _NOTHING)
            if current is part:
                if owner.accepted:
                    owner.accepted.pop(name, None)  # the part was already restored
            elif not self._is_allowed(owner, name, part, current):
                yield f"{owner.name}.{name}"
                setattr(owner.itself, name, owner.accepted.get(name, part))
        for name in now.keys() - owner.parts.keys() if isinstance(owner.itself, type) else ():
            # a new method may hide that of a base class
            part = next((vars(above)[name] for above in owner.itself.__mro__[1:] if name in vars(above)), None)
            if _acts(part) and not self._is_allowed(owner, name, part, now[name]):
                yield f"{owner.name}.{name}"
                delattr(owner.itself, name)

    def _is_allowed(self, owner: _Owner, name: str, part: Any, current: Any) -> bool:
        """Return whether the replacement of a part is not the fault of a file: created by torch itself, as its compiler
        wraps functions, or by an installed package, even before the first check."""
        if owner.accepted.get(name, _NOTHING) is current:
            return True
        if not _acts(part) and (name.startswith("_") or isinstance(part, ModuleType)):
            return True
        by_torch = id(current) not in self._known and _is_made_by_torch(current, part)
        was_a_packages = owner.itself is not time and _is_a_packages(part)
        allowed = by_torch or was_a_packages or _is_a_packages(current)
        if allowed:
            owner.accepted[name] = current
        return allowed


def _owners() -> Iterator[tuple[str, Any]]:
    """Yield the clock, and the modules and classes of torch whose functions a run may call, by name."""
    modules = [
        (name, module)
        for name, module in list(sys.modules.items())
        if isinstance(module, ModuleType) and (name in _MODULES or name.startswith(("torch.nn.", "torch.optim.")))
    ]
    yield from modules
    seen = set()
    for space in ("torch", "torch.nn", "torch.optim", *(name for name, _ in modules)):  # the shortest name comes first
        for name, kind in list(vars(sys.modules[space]).items()):
            own = isinstance(kind, type) and getattr(kind, "__module__", "").startswith(("torch.nn", "torch.optim"))
            if (own or kind in (torch.Tensor, torch.autograd.Function)) and id(kind) not in seen:
                seen.add(id(kind))
                yield f"{space}.{name}", kind


def _acts(part: Any) -> bool:
    """Return whether a part is a function, a method or a property."""
    return callable(part) or hasattr(part, "__get__")


def _unwrap(part: Any) -> list[Any]:
    """Return a Python function and those that it wraps, outermost first; [] for anything else."""
    functions: list[Any] = []
    while part is not None and len(functions) < _MOST_WRAPPERS:
        part = getattr(part, "__func__", None) or getattr(part, "fget", None) or part  # of a method or a property
        if not isinstance(getattr(part, "__code__", None), CodeType):
            break
        functions.append(part)
        part = getattr(part, "__wrapped__", None)
    return functions


def _is_made_by_torch(replacement: Any, part: Any) -> bool:
    """Return whether a function was created by code of torch, around `part` or from scratch."""
    functions = _unwrap(replacement)
    if not functions:
        return False
    inner, code = getattr(functions[0], "__wrapped__", part), functions[0].__code__
    if inner is not part and not set(functions[1:]) & set(_unwrap(part)):
        return False
    return code.co_filename.startswith(_FOLDER) and bool(code.co_flags & inspect.CO_NESTED)


def _is_a_packages(part: Any) -> bool:
    """Return whether a part comes from a package other than torch. The code of a studio file has no folder."""
    if functions := _unwrap(part):
        file = functions[0].__code__.co_filename
        return os.path.isabs(file) and not file.startswith(_FOLDER)
    home = getattr(part, "__module__", None)
    return isinstance(home, str) and home not in (MODULE, "builtins") and home.partition(".")[0] != "torch"


_before: _Before | None = None
_one_at_a_time = threading.Lock()


def remember() -> None:
    """Remember torch in its current state, before the first studio file of this process runs."""
    global _before
    with _one_at_a_time:
        _before = _before or _Before()


def put_back() -> str:
    """Restore the former state of torch. Return what a file has changed, in words; "" if nothing was."""
    with _one_at_a_time:
        return _before.put_back() if _before else ""
