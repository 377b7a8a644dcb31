"""Requests to glibc's malloc, where it is the C library's. Elsewhere they do nothing."""

from __future__ import annotations

import contextlib
import ctypes
import sys

_M_ARENA_MAX = -8  # of malloc.h


def share_arenas() -> None:
    """Make all threads share two arenas. By default malloc creates eight per core; every run has its own thread, and
    memory freed in one arena serves no other."""
    _call("mallopt", _M_ARENA_MAX, 2)


def return_freed_memory() -> None:
    """Give freed pages back to the system. Small objects that live on keep malloc from doing so by itself."""
    _call("malloc_trim", 0)


def _call(name: str, *given: int) -> None:
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            getattr(ctypes.CDLL(None), name)(*given)
