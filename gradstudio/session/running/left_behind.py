"""A training thread that is abandoned in a step that does not end: it no longer writes its run, and ends as soon as the
code that it is in returns to Python."""

from __future__ import annotations

import ctypes
import sys
import threading


class LeftBehind(BaseException):
    """Ends an abandoned thread."""


def end(thread: threading.Thread) -> None:
    """Raise LeftBehind in a thread, at its next line of Python."""
    if thread.ident is None:
        return
    number = ctypes.c_ulong(thread.ident)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(number, ctypes.py_object(LeftBehind))
    if (chance := sys.modules.get("gradstudio.engine.chance")) is not None:
        chance.leave(thread)
