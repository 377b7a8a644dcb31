"""The columns of a run that plots draw, with the smoothed loss: read once for all plots."""

from __future__ import annotations

import numpy as np

from gradstudio.core.history import COLUMNS, History
from gradstudio.core.jit import READ_ONLY, jit
from gradstudio.gui.drawing.curve_source import Source
from gradstudio.gui.drawing.smoothing import SMOOTHING, Smoother

# One stretch of columns, which is read without a copy.
_DRAWN = slice(tuple(COLUMNS).index("loss"), tuple(COLUMNS).index("scale") + 1)


@jit(f"void({READ_ONLY.format('float64', 2)}, float64[:, ::1])")
def _turn(rows: np.ndarray, curves: np.ndarray) -> None:
    """Transpose (rows, columns) to (columns, rows). numpy would release the interpreter lock for it and wait to get it
    back."""
    for row in range(rows.shape[0]):
        for column in range(rows.shape[1]):
            curves[column, row] = rows[row, column]


class RunSource(Source):
    """The curves of a run: columns of its history, and its smoothed loss, which depends on all rows before."""

    def __init__(self) -> None:
        super().__init__(
            (*tuple(COLUMNS)[_DRAWN], "smooth"), lambda name, history, start, stop: history.column(name, start, stop)
        )
        self.smoothing = SMOOTHING
        self._smoother = Smoother()

    def clear(self) -> None:
        super().clear()
        self._smoother = Smoother(self.smoothing)

    def smooth(self, smoothing: float) -> None:
        """Set the smoothing of the loss from now on: all rows are reread."""
        self.smoothing = smoothing
        self.clear()

    def _rows(self, history: History, start: int, stop: int) -> np.ndarray:
        table = history.table(start, stop)
        rows = np.empty((len(self.names), len(table)))
        _turn(table[:, _DRAWN], rows[:-1])
        self._smoother.smooth(rows[0], into=rows[-1])
        return rows
