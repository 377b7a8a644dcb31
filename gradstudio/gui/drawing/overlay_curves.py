"""The curves of overlays. They lie above the run and are laid out anew only when the view changes; Qt paints them from
pictures that it keeps, so they cost nothing while the run below trains."""

from __future__ import annotations

from collections.abc import Callable
from html import escape

import numpy as np
import pyqtgraph as pg
from PySide6.QtGui import QPainterPath, QPixmapCache
from PySide6.QtWidgets import QGraphicsItem, QGraphicsPathItem

from gradstudio.core.text import number, strong
from gradstudio.gui.drawing import usual_range
from gradstudio.gui.drawing.canvas import Canvas, Label
from gradstudio.gui.drawing.envelope import INF, NAN
from gradstudio.gui.drawing.marks import Marks
from gradstudio.gui.drawing.nan_marks import SIZE, SYMBOLS
from gradstudio.gui.drawing.overlay import LETTERS, MOST, Overlaid, Overlays, color, pen
from gradstudio.gui.theme import theme

CACHE = 128 * 1024  # kB: room for the pictures of six runs in several plots on a large screen

Scale = Callable[[np.ndarray], np.ndarray]


class OverlayLayer:
    """The overlaid curves of one plot: it draws the column `drawn` and reads values from the column `told`."""

    def __init__(self, canvas: Canvas, overlays: Overlays, drawn: str, told: str) -> None:
        self._canvas, self._overlays, self._column, self._told = canvas, overlays, drawn, told
        self._curves: dict[int, OverlayCurve] = {}
        self._view: tuple = ()  # for which the curves are laid out
        self._range: tuple = ()  # the last question for a range, and its answer
        QPixmapCache.setCacheLimit(max(QPixmapCache.cacheLimit(), CACHE))
        overlays.changed.connect(self._renew)
        overlays.grown.connect(self._renew)

    @property
    def columns(self) -> tuple[str, str]:
        """Names of the column that is drawn and of the one that is read."""
        return self._column, self._told

    def range(
        self, first: float, last: float, scale: Scale, *, least: float | None = None
    ) -> tuple[float, float] | None:
        """Return the range that the y axis needs, as Series.range does."""
        asked = (first, last, scale, least)
        if not self._range or self._range[0] != asked:
            spans = [span for overlaid in self._overlays.shown.values() if (span := self._span(overlaid, *asked))]
            found = (min(low for low, _ in spans), max(high for _, high in spans)) if spans else None
            self._range = (asked, found)
        return self._range[1]

    def settle(self, scale: Scale) -> None:
        """Lay the curves out for the ranges and the size of the plot, if these have changed."""
        if not self._curves and not self._overlays.places:
            return
        transform = self._canvas.data.transform()
        view = (transform.m11(), transform.m22(), transform.dx(), transform.dy(), self._canvas.size, scale)
        if view == self._view:
            return
        self._view = view
        shown = self._overlays.shown
        for place in self._curves.keys() - shown.keys():
            self._curves.pop(place).leave()
        for place, overlaid in shown.items():
            if place not in self._curves:
                self._curves[place] = OverlayCurve(self._canvas, place)
            steps, values = overlaid.rows(self._column)
            self._curves[place].lay_out(self._canvas.places.here(steps, overlaid.clock), values, scale)

    def restyle(self) -> None:
        for curve in self._curves.values():
            curve.restyle()

    def cached(self, cached: bool) -> None:
        """Let Qt keep pictures of the curves, or not, as while they are drawn into a file."""
        for curve in self._curves.values():
            curve.cached(cached)

    def reading(self, step: int) -> str:
        """Return the values at a step, each after its letter, as rich text."""
        told = []
        for place, overlaid in self._overlays.shown.items():
            value = overlaid.at(self._told, self._canvas.places.there(step, overlaid.clock))
            if value is not None:
                words = f"{strong(LETTERS[place])} {escape(number(value))}"
                told.append(f"<span style='color:{color(place).name()}'>{words}</span>")
        return " &nbsp;".join(told)

    def _renew(self) -> None:
        self._view, self._range = (), ()

    def _span(
        self, overlaid: Overlaid, first: float, last: float, scale: Scale, least: float | None
    ) -> tuple[float, float] | None:
        steps, values = overlaid.rows(self._column)
        places = self._canvas.places
        ends = (places.there(first, overlaid.clock), places.there(last, overlaid.clock) + 1)
        seen = scale(values[slice(*np.searchsorted(steps, ends))])
        seen = seen[np.isfinite(seen)]
        if not len(seen):
            return None
        low = float(seen.min())
        return low, float(seen.max()) if least is None else usual_range.top(seen, low, least)


class OverlayCurve:
    """The curve of one place in one plot: a path in pixels, its letter at the end, and marks for NaN and Inf."""

    def __init__(self, canvas: Canvas, place: int) -> None:
        self._canvas, self._place = canvas, place
        self._path = QGraphicsPathItem(canvas.frame)
        self._path.setZValue(14 + place / 10)
        self._letter = Label(canvas, z=46)
        self._letter.setText(LETTERS[place])
        height = 0.12 + 0.07 * (place % MOST)
        self._marks = [Marks(canvas, SYMBOLS[flag], SIZE, z=31, height=height) for flag in (NAN, INF)]
        self.cached(True)
        self.restyle()

    def restyle(self) -> None:
        self._path.setPen(pen(self._place))
        self._letter.dress(color(self._place), theme.color("plot", 200), theme.font(0.8, theme.font().Weight.DemiBold))
        for marks in self._marks:
            marks.dress(None, color(self._place))

    def cached(self, cached: bool) -> None:
        mode = QGraphicsItem.CacheMode
        self._path.setCacheMode(mode.DeviceCoordinateCache if cached else mode.NoCache)

    def leave(self) -> None:
        """Remove the curve from the plot."""
        for item in (self._path, self._letter, *self._marks):
            item.scene().removeItem(item)

    def lay_out(self, steps: np.ndarray, values: np.ndarray, scale: Scale) -> None:
        for marks, is_marked in zip(self._marks, (np.isnan, np.isinf), strict=True):
            marks.show_at(steps[is_marked(values)])
        transform = self._canvas.data.transform()
        width, height = self._canvas.size
        across = self._canvas.across(steps)
        start, stop = np.searchsorted(across, (0.0, width))
        part = slice(max(int(start) - 1, 0), int(stop) + 1)
        across = across[part]
        with np.errstate(over="ignore", invalid="ignore"):
            down = np.clip(transform.m22() * scale(values[part]) + transform.dy(), -2 * height, 3 * height)
        across, down = _thinned(across, down, width)
        finite = np.isfinite(down)
        cached = self._path.cacheMode() != QGraphicsItem.CacheMode.NoCache
        self.cached(False)  # else Qt keeps the old picture over a change of size, without what was outside of it
        self.cached(cached)
        self._path.setPath(pg.arrayToQPath(across, down, connect="finite") if finite.any() else QPainterPath())
        self._place_letter(across[finite], down[finite], width, height)

    def _place_letter(self, across: np.ndarray, down: np.ndarray, width: float, height: float) -> None:
        inside = (across >= 0) & (across <= width - 12)
        self._letter.setVisible(bool(inside.any()))
        if inside.any():
            last = int(np.flatnonzero(inside)[-1])
            self._letter.place(float(across[last]) + 2, min(max(float(down[last]), 8), height - 8), (0, 0.5))


def _thinned(across: np.ndarray, down: np.ndarray, width: float) -> tuple[np.ndarray, np.ndarray]:
    """Return only the least and the greatest value of each pixel where many points share one; a pixel with nothing but
    NaN is a gap."""
    if len(across) <= 3 * max(width, 1):
        return across, down
    pixels = np.floor(across)
    starts = np.flatnonzero(np.diff(pixels, prepend=pixels[0] - 1))
    low, high = np.fmin.reduceat(down, starts), np.fmax.reduceat(down, starts)
    return np.repeat(pixels[starts], 2), np.stack([low, high], 1).ravel()
