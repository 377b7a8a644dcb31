"""Runs a training script as Python would, and watches every optimizer that it makes."""

from __future__ import annotations

import builtins
import contextlib
import importlib.util
import json
import os
import sys
import threading
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType, TracebackType

from gradstudio.core import files
from gradstudio.session.files import summary
from gradstudio.watching.closing_lines import tell
from gradstudio.watching.guard import say
from gradstudio.watching.watched import begin
from gradstudio.watching.watched_run import Script
from gradstudio.watching.watcher import OnNonfinite, Watcher, outcome_of

_OURS = os.path.join(os.path.dirname(__file__), "")


@dataclass(frozen=True)
class Order:
    """What the command line asked for. `target` is the path of a script, or the name of a module."""

    target: str
    arguments: tuple[str, ...] = ()
    as_module: bool = False
    name: str = ""
    library: str = ""
    on_nonfinite: OnNonfinite = "explain"
    every: int = 1
    as_json: bool = False
    out: str = ""
    quiet: bool = False


def run(order: Order) -> int:
    """Run the script to its end, and return its exit code."""
    try:
        code, main = _code(order)
    except SyntaxError as fault:
        traceback.print_exception(fault.with_traceback(None))
        return 1
    except (OSError, ImportError, ValueError) as fault:
        say(f"error: {order.target}: {' '.join(str(fault).split())}")
        return 2
    script = Script(Path(str(main.__file__)), order.arguments, order.name, order.every)
    watcher = begin(Path(order.library) if order.library else files.user_library(), script, True, order.on_nonfinite)
    ours, process = set(threading.enumerate()), os.getpid()
    fault = _execute(code, main)
    _wait_for_threads(ours)
    if os.getpid() != process:
        return _exit_code(fault)  # forked off by the script, where nothing is watched
    watcher.close(*outcome_of(fault))
    _tell(watcher, order)
    return _exit_code(fault)


def _wait_for_threads(ours: set[threading.Thread]) -> None:
    """Wait for the threads of the script, as Python does before it ends."""
    while others := [each for each in threading.enumerate() if not each.daemon and each not in ours]:
        with contextlib.suppress(KeyboardInterrupt):
            others[0].join()


def _code(order: Order) -> tuple[CodeType, ModuleType]:
    """Return the compiled script and the main module that it runs in, which has what it would have in Python."""
    main = ModuleType("__main__")
    if order.as_module:
        sys.path.insert(0, os.getcwd())
        spec = importlib.util.find_spec(order.target)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(f"{order.target}.__main__")
        if spec is None or spec.origin is None:
            raise ImportError("no such module")
        file = spec.origin
        main.__spec__, main.__package__, main.__loader__ = spec, spec.parent, spec.loader
    else:
        file = os.path.join(os.getcwd(), order.target)
        main.__loader__ = SourceFileLoader("__main__", file)
        sys.path.insert(0, str(Path(file).resolve().parent))
    vars(main).update(__file__=file, __builtins__=builtins, __annotations__={}, __cached__=None)
    sys.argv = [file if order.as_module else order.target, *order.arguments]
    return compile(Path(file).read_bytes(), file, "exec", dont_inherit=True), main


def _execute(code: CodeType, main: ModuleType) -> BaseException | None:
    """Execute the code as the main module, and return the exception that ended it. Its own traceback is printed as
    Python would."""
    sys.modules["__main__"] = main
    try:
        exec(code, vars(main))
    except SystemExit as end:
        return end
    except BaseException as fault:
        _without_us(fault, set())
        sys.last_type, sys.last_value, sys.last_traceback = type(fault), fault, fault.__traceback__
        try:
            sys.excepthook(type(fault), fault, fault.__traceback__)  # the script may have its own
        except Exception:
            traceback.print_exception(fault)
        return fault
    return None


def _without_us(fault: BaseException | None, seen: set[int]) -> None:
    """Take our own lines out of the traceback of an exception, and of those that led to it."""
    if fault is None or id(fault) in seen:
        return
    seen.add(id(fault))
    kept: list[TracebackType] = []
    trace = fault.__traceback__
    while trace is not None:
        if not trace.tb_frame.f_code.co_filename.startswith(_OURS):
            kept.append(trace)
        trace = trace.tb_next
    for each, following in zip(kept, [*kept[1:], None], strict=True):
        each.tb_next = following
    fault.__traceback__ = kept[0] if kept else None
    for other in (fault.__cause__, fault.__context__):
        _without_us(other, seen)


def _exit_code(fault: BaseException | None) -> int:
    """Return the exit code that Python would have given."""
    if fault is None:
        return 0
    if isinstance(fault, SystemExit):
        if fault.code is None or isinstance(fault.code, int):
            return fault.code or 0
        print(fault.code, file=sys.stderr)
        return 1
    if isinstance(fault, KeyboardInterrupt):
        sys.excepthook = lambda *_: None  # its traceback was printed; Python ends by the signal, as it would have
        raise fault
    return 1


def _tell(watcher: Watcher, order: Order) -> None:
    """Say on stderr what came of it, and write the JSON where it was asked for."""
    if order.out:
        text = summary.to_json([summary.summarize(found.run) for found in watcher.runs if found.run is not None])
        try:
            files.write_whole(Path(order.out), text + "\n")
        except OSError as fault:
            say(f"error: {order.out}: {files.reason(fault)}")
    if order.quiet:
        return
    if not watcher.runs:
        say("no training was seen: no weights were updated after a backward pass in this process")
    tell(watcher.runs, watcher.library)


def main(arguments: Sequence[str]) -> int:
    """Carry out an order that the command wrote as JSON."""
    given = json.loads(arguments[0])
    return run(Order(**{**given, "arguments": tuple(given["arguments"])}))
