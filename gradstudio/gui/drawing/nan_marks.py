"""The marks of a curve for values that a line cannot show: a cross for NaN and a triangle for Inf at the top, and a
triangle for zero at the foot of a log axis."""

from __future__ import annotations

import numpy as np

from gradstudio.gui.drawing.canvas import Canvas
from gradstudio.gui.drawing.envelope import INF, NAN, ZERO, Envelope
from gradstudio.gui.drawing.marks import Marks
from gradstudio.gui.theme import theme

SYMBOLS = {NAN: "cross", INF: "up", ZERO: "down"}
SIZE = 9  # px
TOP_EDGE = 0.04  # of the plot's height from its top: the position of a mark without a value
_SIGNS = {NAN: "× NaN", INF: "▲ Inf"}


class NanMarks:
    """The marks of one curve."""

    def __init__(self, canvas: Canvas, z: float) -> None:
        heights = {ZERO: 1 - TOP_EDGE}
        self.of = {
            flag: Marks(canvas, name, SIZE, z, height=heights.get(flag, TOP_EDGE)) for flag, name in SYMBOLS.items()
        }
        self._shown = False  # whether there may be any

    def apply_style(self) -> None:
        for flag, marks in self.of.items():
            marks.apply_style(None, theme.color("dim" if flag == ZERO else "bad"))

    def clear(self) -> None:
        for marks in self.of.values():
            marks.show_at(np.empty(0))

    def draw(self, envelope: Envelope, curve: int, *, log: bool) -> None:
        """Show the marks of a curve of the envelope; zero has one only if the axis is `log`."""
        if not envelope.flags[curve] and not self._shown:
            return
        self._shown = bool(envelope.flags[curve])
        for flag, marks in self.of.items():
            steps = envelope.first_steps(flag, curve) if flag != ZERO or log else np.empty(0)
            if len(steps) != len(marks.steps) or not np.array_equal(steps, marks.steps):
                marks.show_at(steps)


def legend(flags: int, *, log: bool) -> str:
    """Return what the marks for these flags mean, as rich text; empty if there are none."""
    texts = [f"<span style='color:{theme.colors.bad}'>{sign}</span>" for flag, sign in _SIGNS.items() if flags & flag]
    if log and flags & ZERO:
        texts.append("▼ 0: not on a log axis")
    return " &nbsp; ".join(texts)
