"""A plugin of pytest that moves threads against each other: `make test-perturbed` (docs/reliability.md).

A test that needs a run in some state must hold it there (waiting.py). A test that only finds it there in most cases
passes on one machine and fails on another. Each mode makes one kind of such luck rare, so a test that lives on it fails:

short   What waits for a time waits for none. It shows a test that takes a time for a state.
ahead   The thread of the test rests after all that it sets going and after each wait, so other threads are far ahead of
        it. It shows a test that asks for "still running", or for a step that a run has passed by then.
behind  Threads and programs start late, and steps take long, so all others are far behind the test. It shows a test that
        looks at a result before it is there, and a wait with a limit that only a fast machine keeps.

Nothing here changes a number of a run. A failure is a test that lies, a fault of the program, or a test of a time itself:
those are few, and must say so."""

from __future__ import annotations

import functools
import os
import random
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

MODES = ("short", "ahead", "behind")
AHEAD = 0.05  # seconds: several steps of a small run, and little over a whole suite
LATE_THREAD, LATE_STEP = (0.0, 0.05, 0.3), (0.0, 0.0, 0.01, 0.03)  # seconds, one of them by chance


def pytest_configure() -> None:
    mode = os.environ.get("PERTURB", "")
    if mode not in MODES:
        raise pytest.UsageError(f"PERTURB is {mode!r}: set it to one of {', '.join(MODES)}")
    {"short": _short, "ahead": _ahead, "behind": _behind}[mode]()


def pytest_report_header() -> str:
    return f"timing: PERTURB={os.environ['PERTURB']}"


def _short() -> None:
    from PySide6.QtCore import QEventLoop, QTimer
    from pytestqt.qtbot import QtBot

    def wait(self: QtBot, ms: int) -> None:
        loop = QEventLoop()
        QTimer.singleShot(random.choice((0, 1, 2)), loop.quit)
        loop.exec()

    QtBot.wait = wait


def _ahead() -> None:
    import waiting
    from PySide6.QtTest import QTest
    from pytestqt.qtbot import QtBot

    from gradstudio.session.running.worker import Worker

    for owner, names in (
        (QtBot, ("wait", "waitUntil", "waitSignal")),
        (QTest, ("mouseClick", "mouseDClick", "mousePress", "mouseRelease", "keyClick", "keyClicks")),
        (threading.Thread, ("start",)),
        (Worker, ("send", "on_request", "rename")),
        (waiting, ("until",)),
    ):
        for name in names:
            _around(owner, name, after=_rest)


def _behind() -> None:
    from gradstudio.engine.trainer import Trainer

    _around(Trainer, "advance", before=lambda: time.sleep(random.choice(LATE_STEP)))
    start = threading.Thread.start

    def start_late(self: threading.Thread) -> None:
        _around(self, "run", before=lambda: time.sleep(random.choice(LATE_THREAD)))
        start(self)

    threading.Thread.start = start_late


def _rest() -> None:
    if threading.current_thread() is threading.main_thread():
        time.sleep(AHEAD)


def _around(
    owner: Any, name: str, before: Callable[[], object] = lambda: None, after: Callable[[], object] = lambda: None
) -> None:
    """Let a function of a class, a module or an object have something done before and after it."""
    function = getattr(owner, name)

    @functools.wraps(function)
    def perturbed(*arguments: Any, **named: Any) -> Any:
        before()
        try:
            return function(*arguments, **named)
        finally:
            after()

    setattr(owner, name, perturbed)
