"""The position of a step on the x axis of every plot: its number, or the second of the run at which it began."""

from __future__ import annotations

from typing import overload

import numpy as np

from gradstudio.core.history import History
from gradstudio.session.record.own_steps import own_step

GUESS = 1e-3  # seconds of a step, until the first one was measured
LONGEST = 1e9  # seconds of a step: an untrusted file may claim more, and their sum must stay finite
READ = 1 << 16  # rows read at once


class Clock:
    """The second at which each step of a run began, without pauses. A step whose time is unknown takes none."""

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
        """Mean seconds of a step; a guess if none was measured."""
        return self.total / self.count if self.total > 0 else GUESS

    @overload
    def at(self, steps: float) -> float: ...
    @overload
    def at(self, steps: np.ndarray) -> np.ndarray: ...
    def at(self, steps: np.ndarray | float) -> np.ndarray | float:
        """Return the seconds at which steps began; between two, interpolated, and outside of the run as if each took
        the mean time."""
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
        """Return the steps that ran at these seconds, with the elapsed share: the inverse of `at`."""
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
    """The x axis that all plots share. A place is a step, or if the axis is `timed` a second of the run on view."""

    def __init__(self) -> None:
        self.timed = False
        self.clock = Clock()
        self._history: History | None = None
        self._shown: History | None = None

    def number(self, step: float) -> int:
        """Return the number of a step as shown: that of its script, if rows are counted differently."""
        return int(step) if self._shown is None else own_step(self._shown, int(step))

    def take(self, history: History, stop: int) -> None:
        """Read the times of a run up to a row, if they are needed."""
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
        """Return the steps at these places, with the share of each that lies before them."""
        return self.clock.step_at(place) if self.timed else place

    @overload
    def here(self, steps: float, clock: Clock | None) -> float: ...
    @overload
    def here(self, steps: np.ndarray, clock: Clock | None) -> np.ndarray: ...
    def here(self, steps: np.ndarray | float, clock: Clock | None) -> np.ndarray | float:
        """Return the steps of the run on view that are at the same places as steps of another run, whose clock
        this is."""
        return steps if clock is None or not self.timed else self.clock.step_at(clock.at(steps))

    def step_in_other_run(self, step: float, clock: Clock | None) -> float:
        """Return the step of another run, whose clock this is, that is at the same place as a step of the run on
        view."""
        return step if clock is None or not self.timed else clock.step_at(self.clock.at(step))
