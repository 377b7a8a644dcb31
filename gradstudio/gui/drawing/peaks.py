"""Where a curve leaves its plot at the top: a mark at the edge for each peak, and its value in words over the plot."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gradstudio.core.text import number
from gradstudio.gui.drawing.canvas import Canvas
from gradstudio.gui.drawing.label_strip import Tag
from gradstudio.gui.drawing.marks import Marks
from gradstudio.gui.drawing.series import Series
from gradstudio.gui.theme import theme

TOLD = 12  # peaks with words, the highest ones: there is no room for more
MARK = 8  # px


class Peak(NamedTuple):
    step: float
    value: float


class Peaks:
    """The peaks of one curve of a plot."""

    def __init__(self, canvas: Canvas) -> None:
        self.marks = Marks(canvas, "above", MARK, z=25, height=0.03)
        self._found: tuple = ()  # the inputs of the search
        self.tags: tuple[Tag, ...] = ()

    def restyle(self) -> None:
        self.marks.apply_style(None, theme.color("accent"))

    def find(self, series: Series, what: str, broke: int | None) -> None:
        """Find them in a curve, called `what` in their tooltips. Cheap if the curve stays in its plot. `broke` is the
        first non-finite step, whose words include the value before it."""
        top = series.canvas.box.viewRange()[1][1]
        asked = (series.envelope, series.envelope.count, top, series.scale, broke)
        if asked == self._found:
            return
        self._found = asked
        width = series.envelope.width
        peaks = [peak for peak in peaks_above(series, top) if broke is None or not broke - width <= peak.step <= broke]
        if len(peaks) or len(self.marks.steps):
            self.marks.show_at(np.array([peak.step for peak in peaks]))
        told = sorted(sorted(peaks, key=lambda peak: peak.value)[-TOLD:])
        about = "" if width == 1 else "about "
        self.tags = tuple(
            Tag(
                peak.step,
                (f"↑ {number(peak.value)}",),
                "accent",
                f"{what} {number(peak.value)} at {about}step {peak.step:,.0f}, above the top of the plot",
                centred=True,
            )
            for peak in told
        )


def peaks_above(series: Series, top: float) -> list[Peak]:
    """Return the maximum of each stretch of a curve above a position of the y axis."""
    envelope, index = series.envelope, series.index
    if not envelope.count or not series.scale(envelope.greatest[index : index + 1])[0] > top:
        return []
    _, highs, start, width = envelope.bins(index)
    above = np.concatenate([[False], series.scale(highs) > top, [False]])
    edges = np.flatnonzero(np.diff(above.astype(np.int8)))
    peaks = []
    for first, stop in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
        place = first + int(np.argmax(highs[first:stop]))
        peaks.append(Peak(start + place * width, float(highs[place])))
    return peaks
