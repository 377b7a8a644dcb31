"""Watches every optimizer of the script that this process runs, for `gradstudio watch`. `startup/sitecustomize.py`
starts it."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from gradstudio.core import files
from gradstudio.session.files import gate, summary
from gradstudio.session.record.run import Run
from gradstudio.watching import tracebacks
from gradstudio.watching.hooks.guard import say
from gradstudio.watching.recording.closing_lines import tell
from gradstudio.watching.recording.run_facts import Script
from gradstudio.watching.steps.watch_options import RECORD, OnNonfinite, Options
from gradstudio.watching.training_watch import begin as begin_watching
from gradstudio.watching.watcher import Watcher


@dataclass(frozen=True)
class Order:
    """The request from the command line. `target` is the path of a script, or the name of a module; paths are absolute,
    as a script may change the folder."""

    target: str
    arguments: tuple[str, ...]
    as_module: bool
    name: str
    library: str
    on_nonfinite: OnNonfinite
    every: int
    out: str
    quiet: bool
    updates: bool
    fail_on: str = ""
    stop_on: str = ""
    junit: str = ""
    record: int = RECORD
    record_budget: int | None = None

    @classmethod
    def read(cls, text: str) -> Order:
        """Return the order that the command wrote as JSON."""
        given = json.loads(text)
        given.pop("lent", None)  # known to startup/sitecustomize.py
        return cls(**{**given, "arguments": tuple(given["arguments"])})


def begin(text: str) -> Callable[[], None]:
    """Watch this process as ordered from here on. Return the function that ends the watch."""
    order = Order.read(text)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the script may have turned them into errors
        script = Script(_path(order), order.arguments, order.name)
        options = Options(
            order.on_nonfinite, order.every, order.updates, order.stop_on, record=order.record,
            record_budget=order.record_budget,
        )  # fmt: skip
        watcher = begin_watching(Path(order.library), script, True, options)
    tracebacks.keep_clean()
    return partial(_end, watcher, order)


def _path(order: Order) -> Path | None:
    """Return the file that is run; None if unknown. A module is not imported for that."""
    if not order.as_module:
        return Path(order.target)
    try:  # a module's file is not known yet while its package imports torch, and is determined then
        spec = getattr(sys.modules["__main__"], "__spec__", None) or importlib.util.find_spec(order.target)
    except (ImportError, ValueError):
        return None
    if spec is not None and spec.submodule_search_locations:
        return Path(spec.submodule_search_locations[0], "__main__.py")
    return Path(spec.origin) if spec is not None and spec.origin else None


def _end(watcher: Watcher, order: Order) -> None:
    """End the watch, print the results on stderr, and write the JSON if requested."""
    watcher.close()
    recorded = [watched_run for watched_run in watcher.runs if watched_run.is_recorded]
    if order.out and (recorded or not watcher.runs):  # otherwise rank 0 writes it
        text = summary.to_json([summary.summarize(each.run) for each in recorded if each.run is not None])
        _write(order.out, text + "\n")
    if not order.quiet:
        if not (watcher.runs or watcher.refused):
            say("no training was seen: no weights were updated after a backward pass in this process")
        tell(watcher.runs, watcher.library, written=watcher.has_written)
    if recorded or not watcher.runs:
        _judge([each.run for each in recorded if each.run is not None], order)


def _judge(runs: list[Run], order: Order) -> None:
    """Report the results of the runs to machines, and end the process with its own exit code if a gate was requested
    and they do not pass. Otherwise the script's exit code stays."""
    bar = order.fail_on or order.stop_on
    if order.junit:
        _write(order.junit, gate.junit(runs, bar or "critical"))
    for line in gate.for_github(runs, bar):
        print(line, file=sys.stderr, flush=True)
    code = gate.exit_code(runs, bar) if bar else 0
    if code:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError, AttributeError):
                stream.flush()
        os._exit(code)  # the last of the exit functions: none of the script's is left


def _write(path: str, text: str) -> None:
    try:
        files.write_whole(Path(path), text)
    except OSError as fault:
        say(f"error: {path}: {files.reason(fault)}")
