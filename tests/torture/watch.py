"""Hears what must never be: an exception that nobody took, a warning of Qt, a turn of the event loop that takes long."""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from PySide6.QtCore import QAbstractEventDispatcher, QMessageLogContext, QtMsgType, qInstallMessageHandler

LONG = 0.1  # seconds of the window's own work in one turn of the event loop
# The offscreen platform has no window manager; QTest itself tells of a click or a key that nothing took.
_HARMLESS = ("This plugin does not support", "Mouse event", "Keyboard event")


@dataclass(frozen=True)
class Stall:
    seconds: float
    acts: tuple[str, ...]  # what was done in that turn


class Watch:
    """Everything that was heard since it began. `faults` has each fault once, with where it came from."""

    def __init__(self) -> None:
        self.faults: dict[str, str] = {}  # headline by its place, for the report
        self.counts: dict[str, int] = {}
        self.stalls: list[Stall] = []
        self.timing = False  # whether turns of the event loop are measured now
        self.turns = 0
        self.worst = 0.0
        self.now: Callable[[], str] = lambda: ""  # what is being done
        self._acts: list[str] = []
        self._began = self._excluded = 0.0

    def begin(self) -> None:
        """Listen from now on. The GUI thread calls this."""
        sys.excepthook = self._raised
        threading.excepthook = lambda args: self._raised(args.exc_type, args.exc_value, args.exc_traceback)
        sys.unraisablehook = lambda args: self._raised(args.exc_type, args.exc_value, args.exc_traceback)
        qInstallMessageHandler(self._told)
        dispatcher = QAbstractEventDispatcher.instance()
        for signal in (dispatcher.awake, dispatcher.aboutToBlock):  # posted events come between them, timers after
            signal.connect(self._turn_ends)
        self._turn_begins()

    def end(self) -> None:
        """Let faults be printed again."""
        sys.excepthook, threading.excepthook = sys.__excepthook__, threading.__excepthook__
        sys.unraisablehook = sys.__unraisablehook__

    def doing(self, act: str) -> None:
        """Note what is done in this turn."""
        self._acts.append(act)

    def time_turns(self, timing: bool) -> None:
        """Measure the turns of the event loop from now on, or no longer."""
        self.timing = timing
        self._turn_begins()

    def exclude(self, seconds: float) -> None:
        """Take the work of the test itself out of this turn."""
        self._excluded += seconds

    def report(self, place: str, text: str) -> None:
        """Note a fault, once for each place."""
        self.counts[place] = self.counts.get(place, 0) + 1
        self.faults.setdefault(place, f"{text}\n    while: {self.now()}")

    def caught(self, fault: Exception) -> None:
        """Note an exception that an act ended in."""
        self._raised(type(fault), fault, fault.__traceback__)

    def told(self) -> str:
        lines = [f"{self.counts[place]} x {text}" for place, text in self.faults.items()]
        return "\n".join(lines)

    # ---- inside

    def _raised(self, kind: type[BaseException], fault: BaseException | None, trace: TracebackType | None) -> None:
        if issubclass(kind, KeyboardInterrupt):
            raise SystemExit(130)
        frames = traceback.extract_tb(trace)
        place = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else "nowhere"
        self.report(f"{kind.__name__} {place}", "".join(traceback.format_exception(kind, fault, trace)).rstrip())

    def _told(self, kind: QtMsgType, context: QMessageLogContext, text: str) -> None:
        if kind in (QtMsgType.QtDebugMsg, QtMsgType.QtInfoMsg) or text.startswith(_HARMLESS):
            return
        self.report(f"Qt {text.split('(')[0][:60]}", f"Qt: {text}")

    def _turn_begins(self) -> None:
        self._began, self._excluded = time.thread_time(), 0.0
        self._acts.clear()

    def _turn_ends(self) -> None:
        if not self.timing:
            self._turn_begins()
            return
        seconds = time.thread_time() - self._began - self._excluded
        self.turns += 1
        self.worst = max(self.worst, seconds)
        if seconds > LONG:
            self.stalls.append(Stall(seconds, tuple(self._acts) or (f"nothing, after {self.now()}",)))
        self._turn_begins()


def silence(kind: Any, method: str, result: object) -> None:
    """Replace a method that would leave the process, such as one that opens a browser."""
    setattr(kind, method, staticmethod(lambda *_: result))
