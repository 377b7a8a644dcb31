"""Compile loops over numbers with numba: one call and one pass through memory, where numpy takes several of each.

A function is compiled once per machine, in a second, and cached for the next start. It gives the same bits each time.
Without numba, Python or numpy does the same, more slowly."""

from __future__ import annotations

import importlib.util
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any

# Type of a read-only array, with its number type and number of dimensions.
READ_ONLY = "Array({}, {}, 'A', readonly=True)"

_PLACES = ("NUMBA_CACHE_DIR", "NUMBA_CACHE_LOCATOR_CLASSES")  # where numba looks for its cached code

_known: list[JitFunction] = []
_once = threading.Lock()
_all = threading.Lock()  # held while all functions are compiled


class JitFunction:
    """A function that is compiled on its first call."""

    def __init__(
        self, function: Callable, signature: str, nogil: bool, any_order: bool, plain: Callable | None
    ) -> None:
        self._function, self._signature, self._plain = function, signature, plain or function
        # These leave NaN and Inf as they are. numba identifies cached code by the function's file alone: delete
        # __pycache__ after a change here, or of a constant that such a function has from another file.
        self._options = {
            "nogil": nogil,
            "error_model": "numpy",
            "fastmath": {"reassoc", "contract"} if any_order else set(),
        }
        self._code: Any = None
        _known.append(self)

    def __call__(self, *arguments: Any) -> Any:
        return (self._code or self.compile())(*arguments)

    def compile(self) -> Any:
        """Return the machine code, compiling it first if needed."""
        if self._code is not None:  # not even the lock: the garbage collector may call this while something compiles
            return self._code
        if not available():
            self._code = self._plain
            return self._code
        with _once, _own_places():
            if self._code is None:
                from numba import njit  # only here: a command that neither trains nor draws does without it

                # With a signature numba compiles at once, and accepts arguments of no other type.
                try:
                    self._code = njit(self._signature, cache=True, **self._options)(self._function)
                except Exception:  # the cached code is damaged, or the cache is not writable
                    self._drop_cached_code()
                    self._code = njit(self._signature, **self._options)(self._function)
        return self._code

    def _drop_cached_code(self) -> None:
        """Delete the cached code, so that the next start caches it again. Without numba's private cache each start
        compiles for itself."""
        from numba import njit

        code: Any = njit(**self._options)(self._function)
        with suppress(Exception):
            code.enable_caching()
            code._cache.flush()


@contextmanager
def _own_places() -> Iterator[None]:
    """Let numba load cached code only from its default locations. A file .numba_config.yaml in the current folder,
    which may be untrusted, can name others; an environment variable, even an empty one, takes precedence."""
    before = {name: os.environ.get(name) for name in _PLACES}
    os.environ.update({name: value or "" for name, value in before.items()})
    try:
        from numba.core import config

        config.reload_config()
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]


@cache
def available() -> bool:
    """Return whether numba is available."""
    try:
        return importlib.util.find_spec("numba") is not None
    except (ImportError, ValueError):
        return False


def jit(
    signature: str, *, nogil: bool = False, any_order: bool = False, plain: Callable | None = None
) -> Callable[[Callable], JitFunction]:
    """Compile a function for arguments of these types, in numba's notation: int64, float32[::1], and float64[:, :] for
    an array whose rows need not be contiguous. `nogil` lets other threads run Python meanwhile, which does not pay for
    a few microseconds. `any_order` lets numba sum in a faster order, the same one each time. `plain` is the equivalent
    without a compiler; by default the function itself is called."""
    return lambda function: JitFunction(function, signature, nogil, any_order, plain)


def compile_all() -> None:
    """Compile every function imported so far, so that no later call has to wait for it."""
    if not available():
        return
    import numpy.ma  # noqa: F401 (numba imports it at the first call of a function, which the window would wait for)

    with _all:
        for each in list(_known):
            each.compile()


def busy() -> bool:
    """Return whether functions are being compiled."""
    return _all.locked()
