"""A short buffer for rows. The run takes many rows at a time: after a step the processor's caches are full
of the model, and only the first row pays for that."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterable, Iterator

from gradstudio.core.row import Row
from gradstudio.session.record.run_writer import RunWriter

HELD = 1 / 60  # seconds until rows are shown, checked at the end of a step: half the time between two frames
LONG = 0.2  # seconds of a step after which the rows before it are shown without waiting for its end


class PendingRows:
    """The rows of a run that have not reached its writer yet."""

    def __init__(self, writer: RunWriter) -> None:
        self._writer = writer
        self._rows: list[Row] = []
        self._changing, self._in_step = threading.Lock(), False
        self._show_at = 0.0

    @contextlib.contextmanager
    def in_step(self, step: int) -> Iterator[None]:
        """Let another thread show the rows while this step is made."""
        with self._changing:
            self._in_step = True
        self._writer.step_begins(step)
        try:
            yield
        finally:
            with self._changing:
                self._in_step = False
            self._writer.step_ends()

    def hold(self, rows: Iterable[Row]) -> None:
        """Buffer more rows."""
        self._rows += rows

    def release(self) -> list[Row]:
        """Return the buffered rows, and clear the buffer."""
        rows, self._rows = self._rows, []
        return rows

    def is_due(self) -> bool:
        """Return whether the rows have waited long enough."""
        return time.perf_counter() > self._show_at

    def show(self) -> float:
        """Show the buffered rows. Return the time at which the next are due."""
        for row in self.release():
            self._writer.append(row)
        self._show_at = time.perf_counter() + HELD
        return self._show_at

    def show_in_long_step(self) -> None:
        """Show the buffered rows while a step takes long, from another thread."""
        with self._changing:
            now = self._writer.run.step_now
            if self._in_step and now is not None and time.monotonic() - now[1] > LONG:
                for row in self.release():
                    self._writer.append(row)
