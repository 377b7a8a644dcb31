"""A curve of a plot: which one of a source, how it is drawn, and the marks for what a line cannot show."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from PySide6.QtCore import Qt
from PySide6.QtGui import QPen

from gradstudio.core.history import History
from gradstudio.gui.plots.canvas import Canvas, Marks
from gradstudio.gui.plots.curve import Curve
from gradstudio.gui.plots.envelope import INF, NAN, ZERO, Envelope
from gradstudio.gui.plots.source import Source
from gradstudio.gui.theme import theme

Scale = Callable[[np.ndarray], np.ndarray]

_SIGNS = {NAN: "× NaN", INF: "▲ Inf"}
LONGEST_READ = 1 << 17  # rows read anew for a close look; beyond that the envelope serves
PART = 64  # bins of a curve that are drawn anew when one of them changes
LOG2_OF_10 = math.log2(10)


def log10(values: np.ndarray) -> np.ndarray:
    """log10, with a gap where there is none."""
    logs = np.empty(values.shape, values.dtype)
    logs.fill(np.nan)
    return np.log10(values, out=logs, where=values > 0)


def log2(values: np.ndarray) -> np.ndarray:
    return np.log2(values, out=np.full_like(values, np.nan), where=values > 0)


def linear(values: np.ndarray) -> np.ndarray:
    return values


class Series:
    """One curve. Gaps are left where values are not finite; the marks say what stood there."""

    def __init__(
        self, canvas: Canvas, source: Source, name: str, role: str, *, alpha: int = 255, dashed: bool = False, z: int = 10,
        marked: bool = True, stateful: bool = False,
    ) -> None:  # fmt: skip
        self.canvas, self.source, self._name = canvas, source, name
        self.index = source.names.index(name)
        self._stateful = stateful  # its values depend on those before, so that no part can be read anew
        self._role, self._alpha, self._dashed = role, alpha, dashed
        self.scale: Scale = linear
        self._curve = Curve(canvas, z)
        self._drawn: tuple = ()  # what the curve shows, and up to which bin it stays so
        self._extremes: tuple = ()  # least and greatest value when it was last asked
        self._marks: dict[int, Marks] = {}
        self._marked = False  # whether any of them may be shown
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

    @property
    def envelope(self) -> Envelope:
        return self.source.envelope

    def clear(self) -> None:
        self._curve.cut(0)
        self._drawn, self._extremes = (), ()
        for marks in self._marks.values():
            marks.show_at(np.empty(0))

    def range(self, first: float, last: float, *, above: float = math.inf) -> tuple[float, float] | None:
        """What the y axis must hold, in its own units; None where nothing can be drawn. Whatever stands more than `above`
        over nearly all of the curve runs out of the plot, so that an explosion does not flatten what led up to it."""
        found = self.envelope.range(first, last, positive=self.scale is not linear, curve=self.index)
        if found is None:
            return None
        low, high, usual = self.scale(np.array([*found, self.envelope.typical(0.95, self.index)])).tolist()
        return low, max(low, min(high, usual + above))

    def outgrew(self) -> bool:
        """Whether a value has come since it was last asked that the y axis does not hold."""
        envelope = self.source.envelope
        extremes = (envelope.least[self.index], envelope.greatest[self.index])
        if extremes == self._extremes:
            return False
        self._extremes = extremes
        (low, high), held = self.scale(np.array(extremes)).tolist(), self.canvas.box.viewRange()[1]
        return not (held[0] <= low and high <= held[1])

    def draw(self, history: History, first: float, last: float) -> None:
        """Draw what has changed since the last call."""
        envelope = self.envelope
        if self._wants_close_look(first, last):
            start, stop = max(int(first) - 1, 0), min(int(last) + 2, envelope.count)
            if self._drawn != (start, stop, self.scale):
                self._drawn = (start, stop, self.scale)
                close = Envelope(start=start)
                close.append(self.source.read(self._name, history, start, stop)[None])
                self._curve.cut(1)
                self._put(0, close, 0, 0, close.used)
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
            self._put(part, envelope, self.index, part * PART, (part + 1) * PART)
        self._drawn = (*shown, envelope.count // envelope.width, envelope.count)

    def draw_marks(self) -> None:
        """Crosses for NaN and triangles for Inf at the top, triangles for zero at the foot of a log axis."""
        if not self.envelope.flags[self.index] and not self._marked:
            return
        self._marked = bool(self.envelope.flags[self.index])
        for flag, marks in self._marks.items():
            steps = self.envelope.flagged(flag, self.index) if flag != ZERO or self.scale is not linear else np.empty(0)
            if len(steps) != len(marks.steps) or not np.array_equal(steps, marks.steps):
                marks.show_at(steps)

    def marks_legend(self) -> str:
        """What the marks that stand in the plot mean, as rich text; empty without any."""
        told = [f"<span style='color:{theme.colors.bad}'>{sign}</span>" for flag, sign in _SIGNS.items() if self._flagged(flag)]
        if self.scale is not linear and self._flagged(ZERO):
            told.append("▼ 0: not on a log axis")
        return " &nbsp; ".join(told)

    def _flagged(self, flag: int) -> bool:
        return bool(self.envelope.flags[self.index] & flag)

    def _wants_close_look(self, first: float, last: float) -> bool:
        width = self.envelope.width
        return not (self._stateful or width == 1 or last - first > LONGEST_READ or (last - first) / width > 700)

    def _put(self, part: int, envelope: Envelope, curve: int, first: int, last: int) -> None:
        log = self.scale is not linear
        steps, values = envelope.curve(curve, first, last, log=log)
        if self.scale is log2:
            values = values * LOG2_OF_10
        self._curve.put(part, steps, values, whole=envelope.whole(curve, positive=log))


def joined(*spans: tuple[float, float] | None) -> tuple[float, float] | None:
    """What holds all of these; None where there is none."""
    there = [span for span in spans if span is not None]
    return (min(low for low, _ in there), max(high for _, high in there)) if there else None
