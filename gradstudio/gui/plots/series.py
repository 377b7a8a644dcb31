"""A curve of a plot: its envelope, how it is drawn, and the marks for what a line cannot show."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyqtgraph as pg
from PySide6.QtCore import Qt

from gradstudio.core.history import History
from gradstudio.gui.plots.envelope import INF, NAN, ZERO, Envelope
from gradstudio.gui.theme import theme

Read = Callable[[History, int, int], np.ndarray]
Scale = Callable[[np.ndarray], np.ndarray]

_SIGNS = {NAN: "× NaN", INF: "▲ Inf"}
LONGEST_READ = 1 << 17  # rows read anew for a close look; beyond that the envelope serves


def log10(values: np.ndarray) -> np.ndarray:
    """log10, with a gap where there is none."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(values > 0, np.log10(values), np.nan)


def log2(values: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(values > 0, np.log2(values), np.nan)


def linear(values: np.ndarray) -> np.ndarray:
    return values


class Series:
    """One curve. Gaps are left where values are not finite; the marks say what stood there."""

    def __init__(
        self, plot: pg.PlotItem, read: Read, role: str, *, alpha: int = 255, dashed: bool = False, z: int = 10,
        marked: bool = True, stateful: bool = False,
    ) -> None:  # fmt: skip
        self._read = read
        self._stateful = stateful  # its values depend on those before, so that no part can be read anew
        self._role, self._alpha, self._dashed = role, alpha, dashed
        self.scale: Scale = linear
        self.envelope = Envelope()
        self._curve = pg.PlotCurveItem(connect="finite", skipFiniteCheck=False)
        self._curve.setZValue(z)
        plot.addItem(self._curve, ignoreBounds=True)
        self._marks: dict[int, pg.ScatterPlotItem] = {}
        for flag, symbol in ((NAN, "x"), (INF, "t1"), (ZERO, "t")) if marked else ():
            self._marks[flag] = pg.ScatterPlotItem(symbol=symbol, size=9, pen=None)
            self._marks[flag].setZValue(z + 20)
            plot.addItem(self._marks[flag], ignoreBounds=True)
        self.restyle()

    def restyle(self) -> None:
        style = Qt.PenStyle.DashLine if self._dashed else Qt.PenStyle.SolidLine
        self._curve.setPen(pg.mkPen(theme.color(self._role, self._alpha), width=1, style=style))
        for flag, marks in self._marks.items():
            color = theme.color("bad" if flag in (NAN, INF) else "dim")
            marks.setPen(pg.mkPen(None))
            marks.setBrush(pg.mkBrush(color))

    def clear(self) -> None:
        self.envelope = Envelope()
        self._curve.setData([], [])
        for marks in self._marks.values():
            marks.setData([], [])

    def take(self, history: History, start: int, stop: int) -> None:
        self.envelope.append(self._read(history, start, stop))

    def range(self, first: float, last: float, *, above: float = np.inf) -> tuple[float, float] | None:
        """What the y axis must hold, in its own units; None where nothing can be drawn. Whatever stands more than `above`
        over nearly all of the curve runs out of the plot, so that an explosion does not flatten what led up to it."""
        found = self.envelope.range(first, last, positive=self.scale is not linear)
        if found is None:
            return None
        low, high, usual = self.scale(np.array([*found, self.envelope.typical(0.95)]))
        return float(low), float(max(low, np.fmin(high, usual + above)))

    def draw(self, history: History, first: float, last: float) -> None:
        steps, values = self._points(history, first, last)
        self._curve.setData(*_widen_lone_points(steps, self.scale(values)), connect="finite")

    def draw_marks(self, low: float, high: float) -> None:
        """Crosses for NaN and triangles for Inf at the top, triangles for zero at the foot of a log axis."""
        inset = (high - low) * 0.04
        for flag, marks in self._marks.items():
            steps = self.envelope.flagged(flag) if flag != ZERO or self.scale is not linear else np.empty(0)
            marks.setVisible(bool(len(steps)))  # an empty scatter would still be painted
            if len(steps):
                marks.setData(steps, np.full(len(steps), low + inset if flag == ZERO else high - inset))

    def marks_legend(self) -> str:
        """What the marks that stand in the plot mean, as rich text; empty without any."""
        told = [f"<span style='color:{theme.colors.bad}'>{sign}</span>" for flag, sign in _SIGNS.items() if self._flagged(flag)]
        if self.scale is not linear and self._flagged(ZERO):
            told.append("▼ 0: not on a log axis")
        return " &nbsp; ".join(told)

    def _flagged(self, flag: int) -> bool:
        return bool(len(self.envelope.flagged(flag)))

    def _points(self, history: History, first: float, last: float) -> tuple[np.ndarray, np.ndarray]:
        if self._stateful or self.envelope.width == 1 or last - first > LONGEST_READ or (last - first) / self.envelope.width > 700:
            return self.envelope.curve()
        start, stop = max(int(first) - 1, 0), min(int(last) + 2, self.envelope.count)
        close = Envelope(start=start)
        close.append(self._read(history, start, stop))
        return close.curve()


def _widen_lone_points(steps: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A point between two gaps becomes a short dash: a line through one point alone would not be seen."""
    there = np.pad(np.isfinite(values), 1)
    lone = np.flatnonzero(there[1:-1] & ~there[:-2] & ~there[2:])
    if not len(lone):
        return steps, values
    ends = np.insert(steps, lone + 1, steps[lone] + 0.4)
    ends[lone + np.arange(len(lone))] -= 0.4
    return ends, np.insert(values, lone + 1, values[lone])


def column(name: str) -> Read:
    return lambda history, start, stop: history.column(name, start, stop)
