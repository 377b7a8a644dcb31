"""A curve of a plot: its source, scale and colour, with the marks for NaN and Inf."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from PySide6.QtCore import Qt
from PySide6.QtGui import QPen

from gradstudio.core.history import History
from gradstudio.gui.drawing import nan_marks, usual_range
from gradstudio.gui.drawing.canvas import Canvas
from gradstudio.gui.drawing.curve import Curve
from gradstudio.gui.drawing.curve_source import Source
from gradstudio.gui.drawing.envelope import Envelope
from gradstudio.gui.drawing.nan_marks import NanMarks
from gradstudio.gui.drawing.usual_range import SpikeCut
from gradstudio.gui.theme import theme

Scale = Callable[[np.ndarray], np.ndarray]

LONGEST_READ = 1 << 17  # rows reread for a close view; beyond that the envelope is used
PART = 64  # bins of a curve that are redrawn when one of them changes
LOG2_OF_10 = math.log2(10)


def log10(values: np.ndarray) -> np.ndarray:
    """Return log10, with a gap where it is undefined."""
    logs = np.empty(values.shape, values.dtype)
    logs.fill(np.nan)
    return np.log10(values, out=logs, where=values > 0)


def log2(values: np.ndarray) -> np.ndarray:
    """Return log2, with a gap where it is undefined."""
    return np.log2(values, out=np.full_like(values, np.nan), where=values > 0)


def linear(values: np.ndarray) -> np.ndarray:
    return values


class Series:
    """One curve. A non-finite value is a gap with a mark that shows its kind. A `stateful` one depends on all values
    before, so that no part of it can be reread."""

    def __init__(
        self, canvas: Canvas, source: Source, name: str, role: str, *, alpha: int = 255, dashed: bool = False,
        z: int = 10, marked: bool = True, stateful: bool = False,
    ) -> None:  # fmt: skip
        self.canvas, self.source, self._name = canvas, source, name
        self.index = source.names.index(name)
        self._stateful = stateful
        self._role, self._alpha, self._dashed = role, alpha, dashed
        self.scale: Scale = linear
        self.curve = Curve(canvas, z)
        self._drawn: tuple = ()  # the content of the curve, and the bin up to which that stays
        self._extremes: tuple = ()  # minimum and maximum at the last query
        self.marks = NanMarks(canvas, z + 20) if marked else None
        self.restyle()

    def restyle(self) -> None:
        style = Qt.PenStyle.DashLine if self._dashed else Qt.PenStyle.SolidLine
        width = 0 if self._dashed or self._alpha < 255 else theme.curve_width  # a wide pen takes seven times as long
        pen = QPen(theme.color(self._role, self._alpha), self.canvas.sharp or width, style)
        pen.setCosmetic(True)
        self.curve.apply_style(pen)
        if self.marks is not None:
            self.marks.apply_style()

    @property
    def envelope(self) -> Envelope:
        return self.source.envelope

    def clear(self) -> None:
        self.curve.cut(0)
        self._drawn, self._extremes = (), ()
        if self.marks is not None:
            self.marks.clear()

    def range(self, first: float, last: float, *, cut: SpikeCut | None = None) -> tuple[float, float] | None:
        """Return the range that the y axis needs, in its own units; None if nothing can be drawn. With a `cut`, spikes
        far above the rest of the curve may leave the plot."""
        span = self.envelope.range(first, last, positive=self._log, curve=self.index)
        if span is None:
            return None
        low, high = self.scale(np.array(span)).tolist()
        if cut is None:
            return low, high
        return low, max(low, usual_range.top(self.highs, low, cut))

    @property
    def highs(self) -> np.ndarray:
        """The maximum of every bin, in the units of the y axis."""
        return self.scale(self.envelope.bins(self.index)[1])

    def outgrew(self) -> bool:
        """Return whether a value outside of the y axis has come since the last call."""
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
                self.curve.cut(1)
                self._put(0, close, 0, 0, close.used)
            return
        shown = (envelope, envelope.width, self.scale)
        same = self._drawn[:3] == shown
        done, count = self._drawn[3:] if same else (0, -1)
        if count == envelope.count:
            return
        parts = -(-envelope.used // PART)
        if not same:
            self.curve.cut(parts)
        for part in range(done // PART, parts):
            self._put(part, envelope, self.index, part * PART, (part + 1) * PART)
        self._drawn = (*shown, envelope.count // envelope.width, envelope.count)

    def draw_marks(self) -> None:
        if self.marks is not None:
            self.marks.draw(self.envelope, self.index, log=self._log)

    def marks_legend(self) -> str:
        """Return what the marks in the plot mean, as rich text; empty if there are none."""
        return nan_marks.legend(int(self.envelope.flags[self.index]), log=self._log)

    @property
    def _log(self) -> bool:
        return self.scale is not linear

    def _wants_close_look(self, first: float, last: float) -> bool:
        width = self.envelope.width
        return not (self._stateful or width == 1 or last - first > LONGEST_READ or (last - first) / width > 700)

    def _put(self, part: int, envelope: Envelope, curve: int, first: int, last: int) -> None:
        log = self._log
        steps, values = envelope.curve(curve, first, last, log=log)
        if self.scale is log2:
            values = values * LOG2_OF_10
        self.curve.put(part, steps, values, whole=envelope.whole(curve, positive=log))


def union(*spans: tuple[float, float] | None) -> tuple[float, float] | None:
    """Return the range that contains all of these; None if there is none."""
    there = [span for span in spans if span is not None]
    return (min(low for low, _ in there), max(high for _, high in there)) if there else None
