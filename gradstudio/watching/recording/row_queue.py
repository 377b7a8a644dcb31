"""The rows of a run that wait to be recorded together."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from gradstudio.core import plugins
from gradstudio.core.columns import COLUMNS
from gradstudio.core.history import Logged
from gradstudio.session.record.run_writer import RunWriter
from gradstudio.watching.measuring.waiting_rows import most_waiting
from gradstudio.watching.recording.step_numbers import StepNumbers
from gradstudio.watching.steps.measured_step import MeasuredStep


class RowQueue:
    """Records the measured steps of a run with this many layers. Any thread may call `gather`."""

    def __init__(self, writer: RunWriter, numbers: StepNumbers, layers: int) -> None:
        self._writer, self._numbers = writer, numbers
        self._waiting: deque[MeasuredStep] = deque()
        self.append, self.extend = self._waiting.append, self._waiting.extend
        self._most = most_waiting(layers)
        self._recording = threading.RLock()  # locked while rows are recorded, as the library's thread records too

    @property
    def is_full(self) -> bool:
        """Whether no more rows are to wait."""
        return len(self._waiting) >= self._most

    @contextmanager
    def recorded(self) -> Iterator[RunWriter]:
        """Record the waiting rows, and no more of them within this context: for what comes after them."""
        with self._recording:
            self.gather()
            yield self._writer

    def gather(self) -> None:
        """Record the waiting rows, and those that another thread is recording."""
        numbers = self._numbers
        with self._recording, np.errstate(all="ignore"):  # a script may have configured numpy to raise
            while self._waiting:
                if not plugins.names("columns") and (plain := self._without_news()):
                    columns = np.array([measured_step.figures() for measured_step in plain])
                    if numbers.every > 1:
                        columns[:, 0] = len(self._writer.run.history) - numbers.rows_before + np.arange(len(plain))
                    columns[:, 0] += numbers.offset - (numbers.first if numbers.every == 1 else 0)
                    self._writer.append_finite(columns, np.stack([made.gradient.layers for made in plain], 1))
                    self._writer.look()
                else:
                    self.record(self._waiting.popleft())

    def record(self, made: MeasuredStep, *, harmless: bool = False) -> None:
        """Record one step after all that are recorded."""
        count = len(self._writer.run.history)
        figures: dict[str, Any] = {name: value for name, value in made.told if name in COLUMNS}
        logged = tuple(Logged(count, name, value) for name, value in made.told if name not in COLUMNS)
        step = self._numbers.of_row(count, made.step)
        self._writer.record(replace(made.row(), step=step, harmless=harmless, logged=logged, **figures))

    def _without_news(self) -> list[MeasuredStep]:
        """Return the steps at the front that consist of figures only, and remove them. Recorded together they take a
        third of the time."""
        plain: list[MeasuredStep] = []
        history = self._writer.run.history
        settings = history.settings[-1][1] if history.settings else None
        unused = history.unused[-1][1] if history.unused else ()
        while self._waiting:
            made = self._waiting[0]
            if made.brings_news or made.settings != settings or made.unused not in (None, unused):
                break
            plain.append(self._waiting.popleft())
        return plain

    def add_last(self, figures: Iterable[tuple[str, float]]) -> float | None:
        """Add the script's own figures after the last row to that, and return its test accuracy, if there is one."""
        accuracy, history = None, self._writer.run.history
        for name, value in figures if len(history) else ():
            if name not in COLUMNS:
                history.logged.append(Logged(len(history) - 1, name, value))
            elif name == "test_accuracy":
                accuracy = value
        return accuracy
