"""The curves of overlays. They are above the run and are laid out again only when the view changes; Qt paints them from
cached pictures, so they cost nothing while the run below trains."""

from __future__ import annotations

from collections.abc import Callable
from html import escape

import numpy as np
import pyqtgraph as pg
from PySide6.QtGui import QPainterPath, QPen, QPixmapCache
from PySide6.QtWidgets import QGraphicsItem, QGraphicsPathItem

from gradstudio.core.text import number, strong
from gradstudio.gui.drawing import usual_range
from gradstudio.gui.drawing.canvas import Canvas
from gradstudio.gui.drawing.envelope import INF, NAN
from gradstudio.gui.drawing.label_strip import Tag
from gradstudio.gui.drawing.marks import Marks
from gradstudio.gui.drawing.nan_marks import SIZE, SYMBOLS, TOP_EDGE
from gradstudio.gui.drawing.overlay import DASHES, NAMES, Overlaid, Overlays, color
from gradstudio.gui.drawing.usual_range import SpikeCut

CACHE = 128 * 1024  # kB: room for the pictures of six runs in several plots on a large screen

NONE = np.empty(0)

Scale = Callable[[np.ndarray], np.ndarray]


class OverlayLayer:
    """The overlaid curves of one plot: it draws the column `drawn` and reads values from the column `told`."""

    def __init__(self, canvas: Canvas, overlays: Overlays, drawn: str, told: str) -> None:
        self._canvas, self._overlays, self._column, self._told = canvas, overlays, drawn, told
        self._curves: dict[int, OverlayCurve] = {}
        self.tags: list[Tag] = []  # the name of each curve at its end
        self._view: tuple = ()  # for which the curves are laid out
        self._range: tuple = ()  # the last query for a range, and its answer
        QPixmapCache.setCacheLimit(max(QPixmapCache.cacheLimit(), CACHE))
        overlays.changed.connect(self._renew)
        overlays.grown.connect(self._renew)

    @property
    def columns(self) -> tuple[str, str]:
        """Names of the column that is drawn and of the one that is read."""
        return self._column, self._told

    def range(
        self, first: float, last: float, scale: Scale, *, cut: SpikeCut | None = None, beside: np.ndarray = NONE
    ) -> tuple[float, float] | None:
        """Return the range that the y axis needs, like Series.range. Spikes are determined among the values of an
        overlay and those `beside` it, of the run itself: of the parent perhaps only the explosion is drawn."""
        asked = (first, last, scale, cut, beside.tobytes())
        if not self._range or self._range[0] != asked:
            shown = self._overlays.by_place.values()
            spans = [span for each in shown if (span := self._span(each, first, last, scale, cut, beside))]
            visible_span = (min(low for low, _ in spans), max(high for _, high in spans)) if spans else None
            self._range = (asked, visible_span)
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
        shown = self._overlays.by_place
        for place in self._curves.keys() - shown.keys():
            self._curves.pop(place).leave()
        for place, overlaid in shown.items():
            if place not in self._curves:
                self._curves[place] = OverlayCurve(self._canvas, place)
            steps, values = overlaid.rows(self._column)
            self._curves[place].lay_out(self._canvas.places.here(steps, overlaid.clock), values, scale)

        def leaves(value: float) -> bool:
            """Return whether a value is above the top of the plot."""
            return bool(transform.m22() * scale(np.array([value]))[0] + transform.dy() < 0)

        self.tags = [_end_tag(place, each, self.columns, self._canvas, leaves) for place, each in shown.items()]

    def restyle(self) -> None:
        for curve in self._curves.values():
            curve.restyle()

    def set_cached(self, cached: bool) -> None:
        """Let Qt cache pictures of the curves, or not, for example while they are drawn into a file."""
        for curve in self._curves.values():
            curve.set_cached(cached)

    def reading(self, step: int) -> str:
        """Return the values at a step, each after its name, as rich text."""
        told = []
        for place, overlaid in self._overlays.by_place.items():
            value = overlaid.at(self._told, self._canvas.places.step_in_other_run(step, overlaid.clock))
            if value is not None:
                words = f"{strong(NAMES[place])} {escape(number(value))}"
                told.append(f"<span style='color:{color(place).name()}'>{words}</span>")
        return " &nbsp;".join(told)

    def _renew(self) -> None:
        self._view, self._range = (), ()

    def _span(
        self, overlaid: Overlaid, first: float, last: float, scale: Scale, cut: SpikeCut | None, beside: np.ndarray
    ) -> tuple[float, float] | None:
        steps, values = overlaid.rows(self._column)
        places = self._canvas.places
        ends = (places.step_in_other_run(first, overlaid.clock), places.step_in_other_run(last, overlaid.clock) + 1)
        seen = scale(values[slice(*np.searchsorted(steps, ends))])
        seen = seen[np.isfinite(seen)]
        if not len(seen):
            return None
        low = float(seen.min())
        if cut is None:
            return low, float(seen.max())
        both = np.concatenate((beside[np.isfinite(beside)], seen))
        return low, usual_range.top(both, float(both.min()), cut)


class OverlayCurve:
    """The curve of one slot in one plot: a path in pixels, and marks for NaN and Inf at the top edge, as they have no
    value."""

    def __init__(self, canvas: Canvas, place: int) -> None:
        self._canvas, self._place = canvas, place
        self._path = QGraphicsPathItem(canvas.frame)
        self._path.setZValue(14 + place / 10)
        self._marks = [Marks(canvas, SYMBOLS[flag], SIZE, z=29, height=TOP_EDGE) for flag in (NAN, INF)]
        self.set_cached(True)
        self.restyle()

    def restyle(self) -> None:
        self._path.setPen(QPen(color(self._place), 0))  # its dashes are gaps of the path
        for marks in self._marks:
            marks.apply_style(None, color(self._place))

    def set_cached(self, cached: bool) -> None:
        mode = QGraphicsItem.CacheMode
        self._path.setCacheMode(mode.DeviceCoordinateCache if cached else mode.NoCache)

    def leave(self) -> None:
        """Remove the curve from the plot."""
        for item in (self._path, *self._marks):
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
        across, down = dash(*_thin(across, down, width), DASHES[self._place], width)
        finite = np.isfinite(down)
        cached = self._path.cacheMode() != QGraphicsItem.CacheMode.NoCache
        # otherwise Qt keeps the old picture over a change of size, without what was outside of it
        self.set_cached(False)
        self.set_cached(cached)
        self._path.setPath(pg.arrayToQPath(across, down, connect="finite") if finite.any() else QPainterPath())


def _end_tag(
    place: int, overlaid: Overlaid, columns: tuple[str, str], canvas: Canvas, leaves: Callable[[float], bool]
) -> Tag:  # fmt: skip
    """Return the name of an overlay at the end of its curve. One that ends in NaN or Inf says since when; if the curve
    leaves the plot, how high it came."""
    (steps, values), told = overlaid.rows(columns[0]), overlaid.rows(columns[1])[1]
    finite = np.flatnonzero(np.isfinite(values))
    last = int(finite[-1]) if len(finite) else -1
    name, texts = NAMES[place], (NAMES[place],)
    highest = float(values[finite].max()) if len(finite) else 0.0
    high = number(float(told[np.isfinite(told)].max())) if len(finite) and leaves(highest) else ""
    if high:
        texts = (f"{name}: up to {high}", name)
    if last + 1 < len(values):
        broken, last = number(float(values[last + 1])), last + 1
        texts = (f"{name}: {broken} at step {int(steps[last]):,}", f"{name}: {broken}", name)
        texts = (f"{texts[0]}, after {high}", *texts) if high else texts
    step = float(canvas.places.here(float(steps[last]), overlaid.clock)) if len(steps) else 0.0
    return Tag(step, texts, place, overlaid.title, slides=True)


def dash(across: np.ndarray, down: np.ndarray, pattern: list[int], width: float) -> tuple[np.ndarray, np.ndarray]:
    """Return a curve in pixels with the gaps of a dash pattern, in pixels across: along a noisy curve itself, as Qt
    dashes it, the gaps would be anywhere and the dashes too short to see. Beyond the plot's width there are none."""
    if not len(across):
        return across, down
    period = np.cumsum(pattern)
    first, last = max(across[0], -period[-1]), min(across[-1], width + period[-1])
    grid = np.arange(np.floor(first), np.ceil(last) + 1)
    phase = np.searchsorted(period, grid % period[-1], "right")
    edges = grid[1:][np.diff(phase) != 0]  # where a dash or a gap begins
    whole = np.concatenate([across, edges])
    order = np.argsort(whole, kind="stable")
    whole, values = whole[order], np.concatenate([down, np.interp(edges, across, down)])[order]
    gap = np.searchsorted(period, whole % period[-1], "right") % 2 == 1
    starts = np.isin(whole, edges) & gap  # the end of a dash is drawn
    return whole, np.where(gap & ~starts, np.nan, values)


def _thin(across: np.ndarray, down: np.ndarray, width: float) -> tuple[np.ndarray, np.ndarray]:
    """Return only the minimum and the maximum of each pixel if many points share one; a pixel with nothing but NaN is a
    gap."""
    if len(across) <= 3 * max(width, 1):
        return across, down
    pixels = np.floor(across)
    starts = np.flatnonzero(np.diff(pixels, prepend=pixels[0] - 1))
    low, high = np.fmin.reduceat(down, starts), np.fmax.reduceat(down, starts)
    return np.repeat(pixels[starts], 2), np.stack([low, high], 1).ravel()
