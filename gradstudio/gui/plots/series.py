"""A curve of a plot: its envelope, how it is drawn, and the marks for what a line cannot show."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from PySide6.QtCore import Qt
from PySide6.QtGui import QPen

from gradstudio.core.history import History
from gradstudio.gui.plots.canvas import Canvas, Marks
from gradstudio.gui.plots.curve import Curve
from gradstudio.gui.plots.envelope import INF, NAN, ZERO, Envelope
from gradstudio.gui.theme import theme

Read = Callable[[History, int, int], np.ndarray]
Scale = Callable[[np.ndarray], np.ndarray]

_SIGNS = {NAN: "× NaN", INF: "▲ Inf"}
LONGEST_READ = 1 << 17  # rows read anew for a close look; beyond that the envelope serves
PART = 64  # bins of a curve that are drawn anew when one of them changes
LOOK_AGAIN = 0.25  # seconds after which a range is found anew though no value has left it


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
        self, canvas: Canvas, read: Read, role: str, *, alpha: int = 255, dashed: bool = False, z: int = 10,
        marked: bool = True, stateful: bool = False,
    ) -> None:  # fmt: skip
        self.canvas, self._read = canvas, read
        self._stateful = stateful  # its values depend on those before, so that no part can be read anew
        self._role, self._alpha, self._dashed = role, alpha, dashed
        self.scale: Scale = linear
        self.envelope = Envelope()
        self._curve = Curve(canvas, z)
        self._drawn: tuple = ()  # what the curve shows, and up to which bin it stays so
        self._range: tuple = ()  # what was asked for, when, how much the envelope held, and what was found
        self._marks: dict[int, Marks] = {}
        for flag, symbol in ((NAN, "x"), (INF, "t1"), (ZERO, "t")) if marked else ():
            self._marks[flag] = Marks(canvas, symbol, 9, z + 20, height=0.96 if flag == ZERO else 0.04)
        self.restyle()

    def restyle(self) -> None:
        style = Qt.PenStyle.DashLine if self._dashed else Qt.PenStyle.SolidLine
        pen = QPen(theme.color(self._role, self._alpha), self.canvas.sharp, style)
        pen.setCosmetic(True)
        self._curve.dress(pen)
        for flag, marks in self._marks.items():
            marks.dress(None, theme.color("bad" if flag in (NAN, INF) else "dim"))

    def clear(self) -> None:
        self.envelope = Envelope()
        self._curve.cut(0)
        self._drawn, self._range = (), ()
        for marks in self._marks.values():
            marks.show_at(np.empty(0))

    def take(self, history: History, start: int, stop: int) -> None:
        self.envelope.append(self._read(history, start, stop))

    def look_again(self) -> None:
        """Find the range anew the next time."""
        self._range = ()

    def range(self, first: float, last: float, *, above: float = np.inf) -> tuple[float, float] | None:
        """What the y axis must hold, in its own units; None where nothing can be drawn. Whatever stands more than `above`
        over nearly all of the curve runs out of the plot, so that an explosion does not flatten what led up to it."""
        asked, now = (first, last, above, self.scale, self.envelope.extremes), time.monotonic()
        if not self._range or asked != self._range[0] or now > self._range[1]:
            self._range = (asked, now + LOOK_AGAIN, self._find_range(first, last, above))
        return self._range[2]

    def draw(self, history: History, first: float, last: float) -> None:
        """Draw what has changed since the last call."""
        envelope = self.envelope
        if self._wants_close_look(first, last):
            start, stop = max(int(first) - 1, 0), min(int(last) + 2, envelope.count)
            if self._drawn != (start, stop, self.scale):
                self._drawn = (start, stop, self.scale)
                close = Envelope(start=start)
                close.append(self._read(history, start, stop))
                self._curve.cut(1)
                self._curve.put(0, *self._scaled(close, 0, close.used))
            return
        shown = (envelope, envelope.width, self.scale)
        same = self._drawn[:3] == shown
        done, count = self._drawn[3:] if same else (0, -1)
        if count == envelope.count:
            return
        parts = -(-envelope.used // PART)
        if not same:
            self._curve.cut(parts)
        for part in range(done // PART, parts):
            self._curve.put(part, *self._scaled(envelope, part * PART, (part + 1) * PART))
        self._drawn = (*shown, envelope.count // envelope.width, envelope.count)

    def draw_marks(self) -> None:
        """Crosses for NaN and triangles for Inf at the top, triangles for zero at the foot of a log axis."""
        for flag, marks in self._marks.items():
            steps = self.envelope.flagged(flag) if flag != ZERO or self.scale is not linear else np.empty(0)
            if len(steps) != len(marks.steps) or not np.array_equal(steps, marks.steps):
                marks.show_at(steps)

    def marks_legend(self) -> str:
        """What the marks that stand in the plot mean, as rich text; empty without any."""
        told = [f"<span style='color:{theme.colors.bad}'>{sign}</span>" for flag, sign in _SIGNS.items() if self._flagged(flag)]
        if self.scale is not linear and self._flagged(ZERO):
            told.append("▼ 0: not on a log axis")
        return " &nbsp; ".join(told)

    def _flagged(self, flag: int) -> bool:
        return bool(self.envelope.flags & flag)

    def _find_range(self, first: float, last: float, above: float) -> tuple[float, float] | None:
        found = self.envelope.range(first, last, positive=self.scale is not linear)
        if found is None:
            return None
        low, high, usual = self.scale(np.array([*found, self.envelope.typical(0.95)]))
        return float(low), float(max(low, np.fmin(high, usual + above)))

    def _wants_close_look(self, first: float, last: float) -> bool:
        width = self.envelope.width
        return not (self._stateful or width == 1 or last - first > LONGEST_READ or (last - first) / width > 700)

    def _scaled(self, envelope: Envelope, first: int, last: int) -> tuple[np.ndarray, np.ndarray]:
        steps, values = envelope.curve(first, last)
        return steps, self.scale(values)


def joined(*spans: tuple[float, float] | None) -> tuple[float, float] | None:
    """What holds all of these; None where there is none."""
    there = [span for span in spans if span is not None]
    return (min(low for low, _ in there), max(high for _, high in there)) if there else None


def column(name: str) -> Read:
    return lambda history, start, stop: history.column(name, start, stop)
