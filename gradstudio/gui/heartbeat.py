"""The only meeting of the training thread and Qt: a timer on the GUI thread that reads the Run about 30 times a second.

While a beat runs Python, the training thread cannot. So a beat that takes long, on a slow machine or because there is much to
show, is followed by a longer rest: over time, the beats take no more than a small share of one core.

It is also where cyclic garbage is collected. A collection in the training thread would destroy Qt objects there, which
crashes; so automatic collection is off while the window lives, and the beat does it.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

from PySide6.QtCore import QObject, QTimer

INTERVAL = 33  # ms from beat to beat
SLOWEST = 200  # ms
SHARE = 0.05  # of one core, at the most, where that can be had with SLOWEST
COLLECT_EVERY = 30  # beats


class Heartbeat(QObject):
    def __init__(self, refresh: Callable[[], None], parent: QObject) -> None:
        super().__init__(parent)
        self._refresh = refresh
        self._beats, self._settled = 0, True
        self._cost = 0.0  # ms of a core that a beat takes, on average
        self.longest = 0.0  # seconds that a beat has taken at most
        self._timer = QTimer(self)
        self._timer.timeout.connect(self._beat)

    def start(self, *, settled: bool = True) -> None:
        """Not `settled`: much is about to come that stays, and until `settle` nothing is collected."""
        self._settled = settled
        gc.disable()
        self._timer.start(INTERVAL)

    def stop(self, *, alone: bool) -> None:
        """The window is gone. `alone`: no other thread lives that Python's own collector could run in."""
        self._timer.stop()
        if alone:
            gc.unfreeze()
            gc.enable()

    def settle(self) -> None:
        """What is there now stays for good: a full collection looks past it, and takes no time that a person could see."""
        gc.freeze()
        self._settled = True

    def _beat(self) -> None:
        started, worked = time.perf_counter(), time.thread_time()
        self._refresh()
        self._beats += 1
        self._pace(1000 * (time.thread_time() - worked))
        if self._settled and self._beats % COLLECT_EVERY == 0:
            gc.collect(2 if self._beats % (20 * COLLECT_EVERY) == 0 else 1)
        self.longest = max(self.longest, time.perf_counter() - started)

    def _pace(self, cost: float) -> None:
        """Rest the longer the more a beat costs, in ms; a single dear one, such as that of a new preset, changes nothing."""
        self._cost += 0.1 * (min(cost, 3 * self._cost + 1) - self._cost)
        interval = round(min(max(INTERVAL, self._cost / SHARE), SLOWEST))
        if abs(interval - self._timer.interval()) > 3:
            self._timer.setInterval(interval)
