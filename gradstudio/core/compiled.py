"""Loops over numbers, compiled: one pass through memory and one call, where numpy's operations take several of each.

That is done once on a machine, in a second, and kept for the next start. The same numbers give the same bits each time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

READ_ONLY = "Array({}, {}, 'A', readonly=True)"  # the type of an array that is only read: its numbers, and of how many dimensions

_known: list[Compiled] = []
_once = threading.Lock()
_all = threading.Lock()  # held while all of them are compiled


class Compiled:
    """A function as machine code, from the first call on."""

    def __init__(self, function: Callable, signature: str, nogil: bool, any_order: bool) -> None:
        self._function, self._signature = function, signature
        # NaN and Inf are what they are. numba keeps code by its function's file alone: who changes these deletes __pycache__.
        self._options = {"nogil": nogil, "error_model": "numpy", "fastmath": {"reassoc", "contract"} if any_order else set()}
        self._code: Any = None
        _known.append(self)

    def __call__(self, *arguments: Any) -> Any:
        return (self._code or self.compile())(*arguments)

    def compile(self) -> Any:
        with _once:
            if self._code is None:
                from numba import njit  # only here: a command that neither trains nor draws does without

                code = njit(**self._options)(self._function)
                try:
                    code.enable_caching()
                    code.compile(self._signature)
                except Exception:  # what was kept is damaged, or nothing can be written: compiled for this once
                    with suppress(Exception):
                        code._cache.flush()
                    code = njit(**self._options)(self._function)
                    code.compile(self._signature)
                code.disable_compile()  # what is of another type is an error, and not a second's wait
                self._code = code
        return self._code


def compiled(signature: str, *, nogil: bool = False, any_order: bool = False) -> Callable[[Callable], Compiled]:
    """Compile a function for arguments of these types, as numba names them: int64, float32[::1], and float64[:, :] for an array whose
    rows need not lie one behind the other. `nogil`: other threads may run Python meanwhile, which for a few microseconds costs more than it
    gives. `any_order`: sums may be taken in whichever is fast, always the same one."""
    return lambda function: Compiled(function, signature, nogil, any_order)


def compile_all() -> None:
    """Those that are imported by now, so that no one waits for them later."""
    with _all:
        for each in list(_known):
            each.compile()


def busy() -> bool:
    """Whether someone is at it."""
    return _all.locked()
