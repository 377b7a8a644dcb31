"""Uncaught tracebacks, printed as they would be without the watch."""

from __future__ import annotations

import os
import sys
import threading
from types import TracebackType
from typing import Any

from gradstudio.crash import call_log
from gradstudio.engine.torch_internals import module_tables

_OURS = os.path.join(os.path.dirname(__file__), "")
_HEARS = str(call_log.__file__)


def keep_clean() -> None:
    """Leave our own lines out of the tracebacks that Python prints from now on, unless the script prints its tracebacks
    itself."""
    if sys.excepthook is sys.__excepthook__:
        sys.excepthook = _of_the_script
    if threading.excepthook is threading.__excepthook__:
        threading.excepthook = _of_a_thread


def _of_the_script(_kind: type[BaseException], fault: BaseException, _trace: TracebackType | None) -> None:
    _clean(fault, set())
    sys.__excepthook__(type(fault), fault, fault.__traceback__)


def _of_a_thread(given: Any) -> None:
    _clean(given.exc_value, set())
    trace = given.exc_value.__traceback__ if given.exc_value is not None else None
    threading.__excepthook__(threading.ExceptHookArgs((given.exc_type, given.exc_value, trace, given.thread)))


def _clean(fault: BaseException | None, seen: set[int]) -> None:
    """Remove our own lines, and those with which torch calls the hooks of a model, from the traceback of an exception
    and of its causes."""
    if fault is None or id(fault) in seen:
        return
    seen.add(id(fault))
    kept: list[TracebackType] = []
    trace = fault.__traceback__
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if file == _HEARS and kept and kept[-1].tb_frame.f_code.co_name == "handle_torch_function":
            del kept[-2:]  # a function of torch that looks up its listeners, and is called again by each of them
        elif file != _HEARS and not file.startswith(_OURS):
            kept.append(trace)
        trace = trace.tb_next
    following: TracebackType | None = None
    for trace in reversed(kept):
        if following is not None and (place := module_tables.without_hooks(trace, following, _is_ours)):
            rest, *where = place
            following = TracebackType(rest, trace.tb_frame, *where)
        else:
            following = TracebackType(following, trace.tb_frame, trace.tb_lasti, trace.tb_lineno)
    fault.__traceback__ = following
    for other in (fault.__cause__, fault.__context__):
        _clean(other, seen)
    for other in getattr(fault, "exceptions", ()):
        _clean(other, seen)


def _is_ours(hook: Any) -> bool:
    return type(hook).__module__.startswith(f"{__package__}.")
