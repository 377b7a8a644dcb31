"""Runs drawn over the one that the plots show. They are over, so that each is laid out anew only when the view changes, and then
painted by Qt from a picture that it keeps: they cost nothing while the run below them goes on."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from html import escape
from typing import Any

import numpy as np
import pyqtgraph as pg
from PySide6.QtCore import QObject, Qt, Signal
from PySide6.QtGui import QColor, QPainterPath, QPen, QPixmapCache
from PySide6.QtWidgets import QGraphicsItem, QGraphicsPathItem

from gradstudio.core.colors import SERIES_DARK, SERIES_LIGHT
from gradstudio.core.text import number
from gradstudio.gui.plots.canvas import Canvas, Label, Marks
from gradstudio.gui.theme import theme

MOST = 6  # that a person chooses
PARENT, TWIN = MOST, MOST + 1  # places of their own: what the run branched from, and what goes beside it
LETTERS = "ABCDEFPT"
# One a place, so that none is told by its colour alone.
DASHES = ([7, 3], [2, 2], [8, 3, 2, 3], [12, 4], [6, 2, 2, 2, 2, 2], [3, 5], [5, 3], [9, 2, 1, 2])
CACHE = 128 * 1024  # kB of pictures that Qt keeps, so that those of six runs in several plots on a large screen have room

Scale = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True, eq=False)
class Overlaid:
    """A run, or a curve from elsewhere, to be drawn over. `columns`: steps, which grow, and values, by the name of the column."""

    id: str
    title: str
    tip: str  # a rich text
    columns: dict[str, tuple[np.ndarray, np.ndarray]] = field(repr=False)
    run: Any = field(default=None, repr=False)  # the Run, where it is one
    length: int = field(init=False)

    def __post_init__(self) -> None:
        ends = [int(steps[-1]) + 1 for steps, _ in self.columns.values() if len(steps)]
        object.__setattr__(self, "length", max(ends, default=0))

    def take(self, other: Overlaid) -> None:
        """Have its rows."""
        object.__setattr__(self, "columns", other.columns)
        self.__post_init__()

    def at(self, column: str, step: int) -> float | None:
        """Its value at a step, or the last one before it; None outside of the curve."""
        steps, values = self.columns.get(column, _NOTHING)
        place = int(np.searchsorted(steps, step, "right")) - 1
        return float(values[place]) if place >= 0 and step <= steps[-1] else None


class Overlays(QObject):
    """What is drawn over, each in a place of its own, which has a letter, a colour and a dash; and what of it is hidden just now."""

    changed = Signal()
    grown = Signal()  # one that still goes on has more to show

    def __init__(self) -> None:
        super().__init__()
        self.places: dict[int, Overlaid] = {}
        self.hidden: set[int] = set()

    @property
    def full(self) -> bool:
        return all(place in self.places for place in range(MOST))

    @property
    def slots(self) -> dict[str, int]:
        """The place of each, by its id."""
        return {overlaid.id: place for place, overlaid in self.places.items()}

    @property
    def shown(self) -> dict[int, Overlaid]:
        return {place: overlaid for place, overlaid in sorted(self.places.items()) if place not in self.hidden}

    @property
    def longest(self) -> int:
        """Steps."""
        return max((overlaid.length for overlaid in self.shown.values()), default=0)

    def add(self, overlaid: Overlaid) -> None:
        """Draw it over, in the first free place."""
        if overlaid.id not in self.slots and not self.full:
            place = next(place for place in range(MOST) if place not in self.places)
            self.places[place] = overlaid
            self.changed.emit()

    def put(self, place: int, overlaid: Overlaid | None) -> None:
        """Draw it over in this place, and nothing else there."""
        if self.places.get(place) is not overlaid:
            self.places.pop(place, None)
            if overlaid is not None:
                self.places[place] = overlaid
            else:
                self.hidden.discard(place)
            self.changed.emit()

    def grow(self, place: int, overlaid: Overlaid) -> None:
        """What is in this place goes on: as `overlaid`, from now on."""
        self.places[place].take(overlaid)
        self.grown.emit()

    def move(self, run: str, place: int) -> None:
        """Give it another place, and so another colour; what was there takes its own."""
        at = self.slots.get(run)
        if at is not None and at != place:
            swapped = {at: place, place: at}
            self.places = {swapped.get(old, old): overlaid for old, overlaid in self.places.items()}
            self.hidden = {swapped.get(old, old) for old in self.hidden}
            self.changed.emit()

    def remove(self, *ids: str) -> None:
        gone = [place for place, overlaid in self.places.items() if overlaid.id in ids]
        for place in gone:
            del self.places[place]
            self.hidden.discard(place)
        if gone:
            self.changed.emit()

    def toggle(self, place: int) -> None:
        """Hide it, or show it again."""
        self.hidden ^= {place}
        self.changed.emit()


def color(place: int) -> QColor:
    if place >= MOST:
        return theme.color("dim" if place == PARENT else "warning")
    return QColor((SERIES_DARK if theme.dark else SERIES_LIGHT)[place])


def pen(place: int, width: float = 1.0) -> QPen:
    drawn = QPen(color(place), width)
    drawn.setDashPattern(DASHES[place])
    drawn.setCapStyle(Qt.PenCapStyle.FlatCap)
    return drawn


class OverlayLayer:
    """One plot's curves of what is drawn over it: of the column `drawn`, told by the column `told`."""

    def __init__(self, canvas: Canvas, overlays: Overlays, drawn: str, told: str) -> None:
        self._canvas, self._overlays, self._column, self._told = canvas, overlays, drawn, told
        self._curves: dict[int, _Drawn] = {}
        self._view: tuple = ()  # what is laid out
        self._range: tuple = ()  # what was asked for, and what was found
        QPixmapCache.setCacheLimit(max(QPixmapCache.cacheLimit(), CACHE))
        overlays.changed.connect(self._renew)
        overlays.grown.connect(self._renew)

    @property
    def columns(self) -> tuple[str, str]:
        """What it draws and what it tells."""
        return self._column, self._told

    def range(self, first: float, last: float, scale: Scale, *, above: float = math.inf) -> tuple[float, float] | None:
        """What the y axis must hold, in its own units, as for a plot's own series."""
        asked = (first, last, scale, above)
        if not self._range or self._range[0] != asked:
            spans = [span for overlaid in self._overlays.shown.values() if (span := self._span(overlaid, *asked))]
            found = (min(low for low, _ in spans), max(high for _, high in spans)) if spans else None
            self._range = (asked, found)
        return self._range[1]

    def settle(self, scale: Scale) -> None:
        """Lay the curves out for the ranges and the size as they are; nothing where these have not changed."""
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
                self._curves[place] = _Drawn(self._canvas, place)
            self._curves[place].lay_out(*overlaid.columns.get(self._column, _NOTHING), scale)

    def restyle(self) -> None:
        for curve in self._curves.values():
            curve.restyle()

    def cached(self, cached: bool) -> None:
        """Whether Qt may keep pictures of the curves: not while they are drawn into a file."""
        for curve in self._curves.values():
            curve.cached(cached)

    def reading(self, step: int) -> str:
        """The values at a step, each behind its letter, as rich text."""
        told = []
        for place, overlaid in self._overlays.shown.items():
            value = overlaid.at(self._told, step)
            if value is not None:
                told.append(f"<span style='color:{color(place).name()}'><b>{LETTERS[place]}</b> {escape(number(value))}</span>")
        return " &nbsp;".join(told)

    def _renew(self) -> None:
        self._view, self._range = (), ()

    def _span(self, overlaid: Overlaid, first: float, last: float, scale: Scale, above: float) -> tuple[float, float] | None:
        steps, values = overlaid.columns.get(self._column, _NOTHING)
        seen = scale(values[slice(*np.searchsorted(steps, (first, last + 1)))])
        seen = seen[np.isfinite(seen)]
        if not len(seen):
            return None
        usual = float(np.partition(seen, int(0.95 * (len(seen) - 1)))[int(0.95 * (len(seen) - 1))])
        return float(seen.min()), max(float(seen.min()), min(float(seen.max()), usual + above))


class _Drawn:
    """The curve of one place in one plot: a path in pixels, its letter at the end, and marks for NaN and Inf."""

    def __init__(self, canvas: Canvas, place: int) -> None:
        self._canvas, self._place = canvas, place
        self._path = QGraphicsPathItem(canvas.frame)
        self._path.setZValue(14 + place / 10)
        self._letter = Label(canvas, z=46)
        self._letter.setText(LETTERS[place])
        self._marks = [Marks(canvas, symbol, 9, z=31, height=0.12 + 0.07 * (place % MOST)) for symbol in ("x", "t1")]
        self.cached(True)
        self.restyle()

    def restyle(self) -> None:
        self._path.setPen(pen(self._place))
        self._letter.dress(color(self._place), theme.color("plot", 200), theme.font(0.8, theme.font().Weight.Bold))
        for marks in self._marks:
            marks.dress(None, color(self._place))

    def cached(self, cached: bool) -> None:
        mode = QGraphicsItem.CacheMode
        self._path.setCacheMode(mode.DeviceCoordinateCache if cached else mode.NoCache)

    def leave(self) -> None:
        for item in (self._path, self._letter, *self._marks):
            item.scene().removeItem(item)

    def lay_out(self, steps: np.ndarray, values: np.ndarray, scale: Scale) -> None:
        for marks, odd in zip(self._marks, (np.isnan, np.isinf), strict=True):
            marks.show_at(steps[odd(values)])
        transform = self._canvas.data.transform()
        width, height = self._canvas.size
        first, last = -transform.dx() / transform.m11(), (width - transform.dx()) / transform.m11()
        start, stop = np.searchsorted(steps, (first, last))
        part = slice(max(int(start) - 1, 0), int(stop) + 1)
        across = transform.m11() * steps[part] + transform.dx()
        with np.errstate(over="ignore", invalid="ignore"):
            down = np.clip(transform.m22() * scale(values[part]) + transform.dy(), -2 * height, 3 * height)
        across, down = _extremes(across, down, width)
        finite = np.isfinite(down)
        cached = self._path.cacheMode() != QGraphicsItem.CacheMode.NoCache
        self.cached(False)  # a picture that Qt keeps over a change of size may stay without what was outside of the old one
        self.cached(cached)
        self._path.setPath(pg.arrayToQPath(across, down, connect="finite") if finite.any() else QPainterPath())
        self._place_letter(across[finite], down[finite], width, height)

    def _place_letter(self, across: np.ndarray, down: np.ndarray, width: float, height: float) -> None:
        inside = (across >= 0) & (across <= width - 12)
        self._letter.setVisible(bool(inside.any()))
        if inside.any():
            last = int(np.flatnonzero(inside)[-1])
            self._letter.place(float(across[last]) + 2, min(max(float(down[last]), 8), height - 8), (0, 0.5))


def _extremes(across: np.ndarray, down: np.ndarray, width: float) -> tuple[np.ndarray, np.ndarray]:
    """The least and the greatest value of each pixel where many fall on one; a pixel that has none but NaN is a gap."""
    if len(across) <= 3 * max(width, 1):
        return across, down
    pixels = np.floor(across)
    starts = np.flatnonzero(np.diff(pixels, prepend=pixels[0] - 1))
    low, high = np.fmin.reduceat(down, starts), np.fmax.reduceat(down, starts)
    return np.repeat(pixels[starts], 2), np.stack([low, high], 1).ravel()


_NOTHING = (np.empty(0), np.empty(0))
