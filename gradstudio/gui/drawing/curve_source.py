"""Sources of curves: rows of a run, read once for all plots that draw them, into one envelope."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gradstudio.core.history import History
from gradstudio.gui.drawing.envelope import Envelope

Read = Callable[[str, History, int, int], np.ndarray]
MOST = 1 << 16  # rows read at once: a run of a million steps is opened without copying it


class Source:
    """One curve for each of these names. `read` returns the rows start to stop of one of them, (rows,)."""

    def __init__(self, names: tuple[str, ...], read: Read) -> None:
        self.names, self.read = names, read
        self._history: History | None = None
        self.envelope = Envelope(len(names))

    def hold(self, history: History) -> None:
        """Forget the rows of any other run."""
        if history is not self._history:
            self.clear()
            self._history = history

    def take(self, history: History, stop: int) -> None:
        """Read the rows up to `stop`. The first plot that needs them reads them for all."""
        self.hold(history)
        for start in range(self.envelope.count, stop, MOST):
            self.envelope.append(self._rows(history, start, min(start + MOST, stop)))

    def clear(self) -> None:
        self._history, self.envelope = None, Envelope(len(self.names))

    def _rows(self, history: History, start: int, stop: int) -> np.ndarray:
        """Return the rows start to stop, (curves, rows)."""
        return np.stack([self.read(name, history, start, stop) for name in self.names])
