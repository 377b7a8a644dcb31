"""The guard around every entry from torch: a fault of the watch never reaches the script."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from functools import cache, wraps
from typing import Any, NamedTuple

_forks = 0  # how many forks this process is away from the first one


def _count_fork() -> None:
    global _forks
    _forks += 1


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_count_fork)


class Stop(Exception):
    """Carries an exception that the script has requested past the guards."""

    def __init__(self, asked_for: Exception) -> None:
        super().__init__(str(asked_for))
        self.asked_for = asked_for


def say(text: str) -> None:
    """Print a line on stderr; stdout belongs to the script."""
    with contextlib.suppress(OSError, ValueError, AttributeError):  # no reader
        print(f"gradstudio: {text}", file=sys.stderr if _stderr is None else _stderr, flush=True)


@cache
def say_once(text: str) -> None:
    """Print a line only once per process."""
    say(text)


_replaying: set[int] = set()  # threads that replay a pass of the script
_stderr: Any = None  # where our lines go while the script's output is suppressed


@contextlib.contextmanager
def replaying() -> Iterator[None]:
    """Replay a pass of the script in this context: its output and logging are suppressed, and nothing of it is
    observed."""
    global _stderr
    here, stderr, level = threading.get_ident(), _stderr, logging.root.manager.disable
    is_outermost = here not in _replaying
    _stderr = sys.stderr if stderr is None else stderr
    _replaying.add(here)
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            logging.disable(sys.maxsize)  # a handler may refer to the stream itself, or a file
            yield
    finally:
        logging.disable(level)
        _stderr = stderr
        if is_outermost:
            _replaying.discard(here)


def _call(function: Callable[..., Any], arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
    return function(*arguments, **named)


class _Compiler(NamedTuple):
    """The queries to torch's compiler once it is loaded: whether it traces the current code, its callback for this
    thread's calls, and calling something without it."""

    reads: Callable[[], bool]
    call_interceptor: Callable[[], Any]
    call_without: Callable[..., Any]


_compiler: _Compiler | None = None
_compiles = False  # whether anything may have been compiled; never reset
_NONE = id(None)
_backends: dict[int, Any] = {_NONE: None}  # of torch's compiler: it has others too once something is to be compiled


_compiled: list[Callable[[], Any]] = []  # what the script has compiled, by weak reference


def leave_uncompiled(model: Any = None, *_: Any, **__: Any) -> None:
    """Exclude all guarded code from torch's compiler: a script is about to compile something, perhaps a whole step.
    This imports the compiler, so it waits for a script that compiles."""
    global _compiles
    _compiles = True
    model = getattr(model, "__self__", model)  # `model.compile()` compiles a method of it
    _compiled.append(weakref.ref(model) if hasattr(model, "named_modules") else lambda: False)
    _load()


def leave_uncompiled_from_now_on() -> None:
    """Exclude all guarded code before the first compilation, if the compiler is already loaded, which any optimizer
    does."""
    global _compiles, _backends
    from gradstudio.engine.torch_internals.compiled_frames import backends

    _backends = backends()
    _compiles = _compiles or set(_backends) != {_NONE}  # empty: the script has reset the compiler
    _load()


def may_be_compiled() -> bool:
    """Return whether the script may have compiled something."""
    return _compiles or not (len(_backends) == 1 and _NONE in _backends)


def compiled_models() -> list[Any] | None:
    """Return the models that the script has compiled; None if it may have compiled other code."""
    compiled = [model for each in _compiled if (model := each()) is not None]
    return None if False in compiled or (may_be_compiled() and not _compiled) else compiled


def _load() -> None:
    global _compiler
    if _compiler is None:
        import torch  # imported here: the command that starts a script does without it

        from gradstudio.engine.torch_internals.compiled_frames import call_interceptor

        _compiler = _Compiler(torch.compiler.is_dynamo_compiling, call_interceptor(), torch.compiler.disable(_call))


def guarded(give_up: Callable[[str], None]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Wrap a function that torch calls: a fault in it calls `give_up` with one line, and torch goes on. It is skipped
    while this thread replays a pass, and in a forked process, which is not watched."""
    of_this_process = _forks

    def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def careful(*arguments: Any, **named: Any) -> Any:
            if _forks != of_this_process or (_replaying and threading.get_ident() in _replaying):
                return None
            try:
                is_plain = not _compiles and len(_backends) == 1 and _NONE in _backends  # nearly always
                if is_plain or _compiler is None or not (_compiler.reads() or _compiler.call_interceptor() is not None):
                    return function(*arguments, **named)
                return _compiler.call_without(function, arguments, named)
            except Stop as stop:
                raise stop.asked_for from None
            except Exception as fault:
                if os.environ.get("GRADSTUDIO_DEBUG"):
                    import traceback

                    traceback.print_exc()
                give_up(f"{type(fault).__name__}: {' '.join(str(fault).split())[:200]}")
                return None

        return careful

    return wrap
