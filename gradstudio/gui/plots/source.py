"""Where curves come from: columns of a run, read once for all plots that draw them, into one envelope."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gradstudio.core.compiled import READ_ONLY, compiled
from gradstudio.core.history import COLUMNS, History
from gradstudio.gui.plots.envelope import Envelope
from gradstudio.gui.plots.smoother import Smoother

Read = Callable[[str, History, int, int], np.ndarray]
_DRAWN = slice(tuple(COLUMNS).index("loss"), tuple(COLUMNS).index("scale") + 1)  # one stretch, which is read without a copy
MOST = 1 << 16  # rows read at once: a run of a million steps is opened without a copy of it


@compiled(f"void({READ_ONLY.format('float64', 2)}, float64[:, ::1])")
def _turn(rows: np.ndarray, curves: np.ndarray) -> None:
    """(rows, columns) as (columns, rows). numpy would let go of the interpreter lock for it, and have to get it back."""
    for row in range(rows.shape[0]):
        for column in range(rows.shape[1]):
            curves[column, row] = rows[row, column]


class Source:
    """The columns of these names, a curve each. `read`: a column's rows start to stop, (rows,)."""

    def __init__(self, names: tuple[str, ...], read: Read) -> None:
        self.names, self.read = names, read
        self._history: History | None = None
        self.envelope = Envelope(len(names))

    def hold(self, history: History) -> None:
        """Have nothing of any other run."""
        if history is not self._history:
            self.clear()
            self._history = history

    def take(self, history: History, stop: int) -> None:
        """Have the rows up to `stop` of this history; whoever asks first reads them for all."""
        self.hold(history)
        for start in range(self.envelope.count, stop, MOST):
            self.envelope.append(self._rows(history, start, min(start + MOST, stop)))

    def clear(self) -> None:
        self._history, self.envelope = None, Envelope(len(self.names))

    def _rows(self, history: History, start: int, stop: int) -> np.ndarray:
        """(curves, rows)."""
        return np.stack([self.read(name, history, start, stop) for name in self.names])


class RunSource(Source):
    """What is drawn of a run, and its smoothed loss, which depends on all rows before."""

    def __init__(self) -> None:
        super().__init__((*tuple(COLUMNS)[_DRAWN], "smooth"), lambda name, history, start, stop: history.column(name, start, stop))
        self._smoother = Smoother()

    def clear(self) -> None:
        super().clear()
        self._smoother = Smoother()

    def _rows(self, history: History, start: int, stop: int) -> np.ndarray:
        table = history.table(start, stop)
        rows = np.empty((len(self.names), len(table)))
        _turn(table[:, _DRAWN], rows[:-1])
        self._smoother.smoothed(rows[0], into=rows[-1])
        return rows
