"""Replaying a run: the viewed step advances by itself. Nothing is trained."""

from __future__ import annotations

import time

from PySide6.QtCore import QObject, QTimer, Signal

from gradstudio.gui import user_settings
from gradstudio.gui.widgets.viewed_step import ViewedStep

SPEEDS = (1, 2, 5, 10, 20)
PACE = 20.0  # steps a second at 1x
SLOW = 10  # steps before the first NaN or Inf
SLOWLY = 2.5  # steps a second there, at any speed
TICK = 33  # ms


class Playback(QObject):
    """Advances the viewed step, slowly where the run is about to diverge."""

    changed = Signal()

    def __init__(self, looked: ViewedStep) -> None:
        super().__init__()
        self._looked = looked
        self._at, self._last_tick = 0.0, 0.0
        self._timer = QTimer(self, interval=TICK)
        self._timer.timeout.connect(self._tick)
        self.speed = int(user_settings.REPLAY_SPEED.get())

    @property
    def playing(self) -> bool:
        return self._timer.isActive()

    def toggle(self) -> None:
        """Play from the viewed step, or from the first one; pause if it is playing."""
        if self.playing:
            self.stop()
        elif self._looked.last > 0:
            self._looked.look_at(self._looked.step or 0)
            self._at, self._last_tick = float(self._looked.step or 0), time.monotonic()
            self._timer.start()
            self.changed.emit()

    def stop(self) -> None:
        """Stay at the viewed step."""
        if self.playing:
            self._timer.stop()
            self.changed.emit()

    def choose_speed(self, speed: int) -> None:
        """Play this many times as fast, and remember it."""
        self.speed = speed
        user_settings.REPLAY_SPEED.set(str(speed))
        self.changed.emit()

    def next_speed(self) -> None:
        """Play faster; after the fastest comes the slowest."""
        self.choose_speed(SPEEDS[(SPEEDS.index(self.speed) + 1) % len(SPEEDS)])

    def _tick(self) -> None:
        now = time.monotonic()
        seconds, self._last_tick = min(now - self._last_tick, 0.2), now
        if self._looked.step is None:
            self.stop()  # the user returned to the newest step
            return
        if int(self._at) != self._looked.step:
            self._at = float(self._looked.step)  # the user moved it
        self._at = self._after(self._at, seconds)
        self._looked.look_at(int(self._at))
        if self._looked.step is None:
            self.stop()

    def _after(self, step: float, seconds: float) -> float:
        """Return the position of the replay after this many seconds."""
        broke = self._looked.run.first_nonfinite_step if self._looked.run is not None else None
        fast = step + seconds * self.speed * PACE
        if broke is None or fast < broke - SLOW or step >= broke:
            return fast
        return max(step, float(broke - SLOW)) + seconds * SLOWLY
