"""Where a step stands on the x axis of every plot: at its number, or at the second of the run at which it began."""

from __future__ import annotations

from typing import overload

import numpy as np

from gradstudio.core.history import History
from gradstudio.session.record.own_steps import own_step

GUESS = 1e-3  # seconds of a step, until the first one was measured
LONGEST = 1e9  # seconds of a step: a file of somebody else may tell more, and their sum is to stay finite
READ = 1 << 16  # rows read at once


class Clock:
    """The second at which each step of a run began. Pauses are not in it. A step whose time is unknown takes none."""

    def __init__(self) -> None:
        self.count = 0  # steps taken in
        self._began = np.zeros(1024)  # of each step, and the end of the last

    def take(self, history: History, stop: int) -> None:
        """Read the rows up to `stop`."""
        for start in range(self.count, stop, READ):
            seconds = history.column("step_seconds", start, min(start + READ, stop))
            end = start + len(seconds)
            if end >= len(self._began):
                self._began = np.concatenate([self._began, np.zeros(max(end + 1 - len(self._began), len(self._began)))])
            spent = np.where(np.isfinite(seconds), np.clip(seconds, 0.0, LONGEST), 0.0)
            np.add(np.cumsum(spent), self._began[start], out=self._began[start + 1 : end + 1])
            self.count = end

    @property
    def total(self) -> float:
        """Seconds of all steps."""
        return self._began.item(self.count)

    @property
    def pace(self) -> float:
        """Mean seconds of a step; a guess without any that was measured."""
        return self.total / self.count if self.total > 0 else GUESS

    @overload
    def at(self, steps: float) -> float: ...
    @overload
    def at(self, steps: np.ndarray) -> np.ndarray: ...
    def at(self, steps: np.ndarray | float) -> np.ndarray | float:
        """Return the seconds at which steps began; between two, a share of the first, and outside of the run as if each
        took as long as their mean."""
        if not isinstance(steps, np.ndarray):  # thirty times as fast, many times a frame
            return self._one_at(steps)
        inside = np.minimum(np.maximum(steps, 0.0), self.count)
        whole = np.minimum(inside.astype(np.int64), max(self.count - 1, 0))
        first, second = self._began[whole], self._began[np.minimum(whole + 1, self.count)]
        return first + (inside - whole) * (second - first) + (steps - inside) * self.pace

    def _one_at(self, step: float) -> float:
        inside = min(max(step, 0.0), self.count)
        whole = min(int(inside), max(self.count - 1, 0))
        first, second = self._began.item(whole), self._began.item(min(whole + 1, self.count))
        return first + (inside - whole) * (second - first) + (step - inside) * self.pace

    @overload
    def step_at(self, seconds: float) -> float: ...
    @overload
    def step_at(self, seconds: np.ndarray) -> np.ndarray: ...
    def step_at(self, seconds: np.ndarray | float) -> np.ndarray | float:
        """Return the steps that ran at these seconds, with the share of them that was over: the inverse of `at`."""
        if not isinstance(seconds, np.ndarray):
            return self._one_step_at(seconds)
        inside = np.minimum(np.maximum(seconds, 0.0), self.total)
        whole = np.clip(self._whole_steps(inside), 0, max(self.count - 1, 0))
        first, second = self._began[whole], self._began[np.minimum(whole + 1, self.count)]
        wide = second - first
        share = np.divide(inside - first, wide, out=np.zeros(len(inside)), where=wide > 0)
        return np.minimum(whole + share, self.count) + (seconds - inside) / self.pace

    def _one_step_at(self, seconds: float) -> float:
        if seconds <= 0:
            return seconds / self.pace
        if seconds >= self.total:
            return self.count + (seconds - self.total) / self.pace
        whole = int(self._whole_steps(seconds))
        first, second = self._began.item(whole), self._began.item(whole + 1)
        return whole + (seconds - first) / (second - first)

    def _whole_steps(self, seconds: np.ndarray | float) -> np.ndarray:
        """Return the number of the step that runs at these seconds."""
        return np.asarray(np.searchsorted(self._began[: self.count + 1], seconds, "right")) - 1


class Places:
    """The x axis that all plots share. A place is a step, or where the axis is `timed` a second of the run on view."""

    def __init__(self) -> None:
        self.timed = False
        self.clock = Clock()
        self._history: History | None = None
        self._shown: History | None = None

    def number(self, step: float) -> int:
        """Return the number of a step as it is told: that of its script, where rows are counted otherwise."""
        return int(step) if self._shown is None else own_step(self._shown, int(step))

    def take(self, history: History, stop: int) -> None:
        """Read the times of a run up to a row, if they are wanted."""
        self._shown = history
        if not self.timed:
            return
        if history is not self._history or stop < self.clock.count:
            self.clock, self._history = Clock(), history
        if stop > self.clock.count:
            self.clock.take(history, stop)

    @property
    def pace(self) -> float:
        """Width of a step, in the units of the axis."""
        return self.clock.pace if self.timed else 1.0

    @overload
    def of(self, steps: float) -> float: ...
    @overload
    def of(self, steps: np.ndarray) -> np.ndarray: ...
    def of(self, steps: np.ndarray | float) -> np.ndarray | float:
        """Return the places of steps."""
        return self.clock.at(steps) if self.timed else steps

    @overload
    def step_at(self, place: float) -> float: ...
    @overload
    def step_at(self, place: np.ndarray) -> np.ndarray: ...
    def step_at(self, place: np.ndarray | float) -> np.ndarray | float:
        """Return the steps that stand at places, with the share of each that lies before them."""
        return self.clock.step_at(place) if self.timed else place

    @overload
    def here(self, steps: float, clock: Clock | None) -> float: ...
    @overload
    def here(self, steps: np.ndarray, clock: Clock | None) -> np.ndarray: ...
    def here(self, steps: np.ndarray | float, clock: Clock | None) -> np.ndarray | float:
        """Return the steps of the run on view that stand where steps of another run do, whose clock this is."""
        return steps if clock is None or not self.timed else self.clock.step_at(clock.at(steps))

    def there(self, step: float, clock: Clock | None) -> float:
        """Return the step of another run, whose clock this is, that stands where a step of the run on view does."""
        return step if clock is None or not self.timed else clock.step_at(self.clock.at(step))
