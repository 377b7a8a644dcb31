"""The only meeting point of the training thread and Qt: a timer on the GUI thread that reads the run about 30 times a
second.

It also collects cyclic garbage. A collection in the training thread would destroy Qt objects there, which crashes; so
automatic collection is off while the window lives, and the beat does it."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable
from typing import ClassVar
from weakref import WeakSet

from PySide6.QtCore import QObject, QTimer

from gradstudio.gui.frame_budget import INTERVAL, FrameBudget

COLLECT_EVERY = 30  # beats
# New modules, for example for a report: their objects stay, and searching them takes 0.2 s. They are excluded
# unsearched, and with them, until the window closes, garbage since the last collection.
IMPORTED = 20


class Heartbeat(QObject):
    beating: ClassVar[WeakSet[Heartbeat]] = WeakSet()  # of every window of this process

    def __init__(self, refresh: Callable[[], None], parent: QObject) -> None:
        super().__init__(parent)
        self._refresh = refresh
        self._budget = FrameBudget()
        self._beats, self._settled, self._modules = 0, True, 0
        self.longest = 0.0  # seconds of the longest beat so far
        self._timer = QTimer(self)
        self._timer.timeout.connect(self._beat)

    def start(self, *, settled: bool = True) -> None:
        """Start beating. Not `settled`: many permanent objects are about to be created; nothing is collected until
        `settle`."""
        self._settled, self._modules = settled, len(sys.modules)
        self.beating.add(self)
        gc.disable()
        self._timer.start(INTERVAL)

    def stop(self, *, alone: bool) -> None:
        """End with the window. `alone`: there is no other thread in which Python's own collector could run."""
        self._timer.stop()
        self.beating.discard(self)
        if alone and not self.beating:
            gc.unfreeze()
            gc.enable()

    def settle(self) -> None:
        """Exclude all current objects from later collections, which then take an unnoticeable time."""
        gc.freeze()
        self._settled, self._modules = True, len(sys.modules)

    def _collect(self) -> None:
        if len(sys.modules) > self._modules + IMPORTED:
            self.settle()
        else:
            gc.collect(2 if self._beats % (20 * COLLECT_EVERY) == 0 else 1)

    def _beat(self) -> None:
        started, worked = time.perf_counter(), time.thread_time()
        try:
            self._refresh()
        finally:  # a fault at every beat must not keep garbage from being collected
            self._keep_pace(started, worked)

    def _keep_pace(self, started: float, worked: float) -> None:
        """Choose when the next beat comes, from the duration of this one, and collect garbage if it is time to."""
        self._beats += 1
        interval = self._budget.interval(1000 * (time.thread_time() - worked))
        if abs(interval - self._timer.interval()) > 3:
            self._timer.setInterval(interval)
        if self._settled and self._beats % COLLECT_EVERY == 0:
            self._collect()
        self.longest = max(self.longest, time.perf_counter() - started)
