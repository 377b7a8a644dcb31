"""Overlays: the runs drawn over the one in the plots, each identified by its letter, its colour and its dash. Their
curves are in overlay_curves.py."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from PySide6.QtCore import QObject, QPointF, QSize, Qt, Signal
from PySide6.QtGui import QColor, QIcon, QPainter, QPen, QPixmap

from gradstudio.core.colors import SERIES_DARK, SERIES_LIGHT
from gradstudio.gui.drawing.places import Clock
from gradstudio.gui.theme import theme

if TYPE_CHECKING:
    from gradstudio.session.record.run import Run

MOST = 6  # overlays that the user chooses
# Reserved slots: the run that this one branched from, its twin, and its future with the best fix.
PARENT, TWIN, FUTURE = MOST, MOST + 1, MOST + 2
LETTERS = "ABCDEFPTN"  # for when there is no room for more
NAMES = (*LETTERS[:MOST], "parent", "twin", "future")
SAMPLE = QSize(26, 12)  # px of a line sample, as in a chip
# One for each slot, so that no overlay is identified by its colour alone.
DASHES = ([10, 4], [3, 3], [12, 4, 3, 4], [18, 5], [8, 3, 3, 3, 3, 3], [4, 7], [7, 4], [14, 3, 2, 3], [24, 3])


@dataclass(frozen=True, eq=False)
class Overlaid:
    """A run, or an external curve, to draw as an overlay. `columns` are steps, which grow, and values, by the name of
    the column."""

    id: str
    title: str
    tip: str  # rich text
    columns: dict[str, tuple[np.ndarray, np.ndarray]] = field(repr=False)
    run: Run | None = field(default=None, repr=False)  # None for an external curve
    clock: Clock | None = field(default=None, repr=False)  # the times of its steps, if known
    length: int = field(init=False)  # steps

    def __post_init__(self) -> None:
        ends = [int(steps[-1]) + 1 for steps, _ in self.columns.values() if len(steps)]
        object.__setattr__(self, "length", max(ends, default=0))

    def take(self, other: Overlaid) -> None:
        """Copy the rows of another one: the run has continued."""
        object.__setattr__(self, "columns", other.columns)
        object.__setattr__(self, "clock", other.clock)
        self.__post_init__()

    def at(self, column: str, step: float) -> float | None:
        """Return the value at a step, or the last one before it; None outside of the curve."""
        steps, values = self.rows(column)
        place = int(np.searchsorted(steps, step, "right")) - 1
        return float(values[place]) if place >= 0 and step <= steps[-1] else None

    def end(self, timed: bool) -> float:
        """Return the end of the curve, in steps or in seconds."""
        return self.clock.at(float(self.length)) if timed and self.clock is not None else float(self.length)

    def rows(self, column: str) -> tuple[np.ndarray, np.ndarray]:
        """Return the steps and values of a column; two empty arrays if there is none with this name."""
        return self.columns.get(column, _NOTHING)


class Overlays(QObject):
    """The overlays, each in a slot that has a letter, a colour and a dash; and the hidden ones."""

    changed = Signal()
    grown = Signal()  # a run that is still training has new rows

    def __init__(self) -> None:
        super().__init__()
        self.places: dict[int, Overlaid] = {}
        self.hidden: set[int] = set()
        self.timed = False  # whether the x axis is time, on which a curve without times has no position

    @property
    def full(self) -> bool:
        return all(place in self.places for place in range(MOST))

    @property
    def slots(self) -> dict[str, int]:
        """Slots by the id of the overlay."""
        return {overlaid.id: place for place, overlaid in self.places.items()}

    @property
    def by_place(self) -> dict[int, Overlaid]:
        return {place: overlaid for place, overlaid in sorted(self.places.items()) if self.shows(place)}

    def shows(self, place: int) -> bool:
        """Return whether the overlay in this slot is drawn."""
        return place not in self.hidden and not (self.timed and self.places[place].clock is None)

    @property
    def longest(self) -> float:
        """End of the longest visible overlay, in steps or in seconds."""
        return max((overlaid.end(self.timed) for overlaid in self.by_place.values()), default=0.0)

    def add(self, overlaid: Overlaid) -> None:
        """Add an overlay in the first free slot, unless it is there or all slots are taken."""
        if overlaid.id not in self.slots and not self.full:
            place = next(place for place in range(MOST) if place not in self.places)
            self.places[place] = overlaid
            self.changed.emit()

    def put(self, place: int, overlaid: Overlaid | None) -> None:
        """Put an overlay into this slot, or none, replacing the existing one."""
        if self.places.get(place) is not overlaid:
            self.places.pop(place, None)
            if overlaid is not None:
                self.places[place] = overlaid
            else:
                self.hidden.discard(place)
            self.changed.emit()

    def grow(self, place: int, overlaid: Overlaid) -> None:
        """Give the overlay in this slot the rows of `overlaid`."""
        self.places[place].take(overlaid)
        self.grown.emit()

    def move(self, run: str, place: int) -> None:
        """Move an overlay to another slot, and so to another colour; the one that is there takes its slot."""
        at = self.slots.get(run)
        if at is not None and at != place:
            swapped = {at: place, place: at}
            self.places = {swapped.get(old, old): overlaid for old, overlaid in self.places.items()}
            self.hidden = {swapped.get(old, old) for old in self.hidden}
            self.changed.emit()

    def remove(self, *ids: str) -> None:
        """Remove the overlays with these ids."""
        gone = [place for place, overlaid in self.places.items() if overlaid.id in ids]
        for place in gone:
            del self.places[place]
            self.hidden.discard(place)
        if gone:
            self.changed.emit()

    def toggle(self, place: int) -> None:
        """Hide the overlay in this slot, or show it again."""
        self.hidden ^= {place}
        self.changed.emit()


def color(place: int) -> QColor:
    """Return the colour of a slot."""
    if place >= MOST:
        return theme.color({PARENT: "dim", TWIN: "warning", FUTURE: "good"}[place])
    return QColor((SERIES_DARK if theme.dark else SERIES_LIGHT)[place])


def pen(place: int, width: float = 1.0) -> QPen:
    """Return the pen of a slot, with its colour and its dash."""
    drawn = QPen(color(place), width)
    drawn.setDashPattern(DASHES[place])
    drawn.setCapStyle(Qt.PenCapStyle.FlatCap)
    return drawn


def sample(place: int, shown: bool = True) -> QIcon:
    """Return a sample of the line of a slot."""
    drawn = QPixmap(SAMPLE * 2)
    drawn.setDevicePixelRatio(2)
    drawn.fill(Qt.GlobalColor.transparent)
    with QPainter(drawn) as painter:
        painter.setOpacity(1.0 if shown else 0.3)
        painter.setPen(pen(place, 2.0))
        painter.drawLine(QPointF(0, SAMPLE.height() / 2), QPointF(SAMPLE.width(), SAMPLE.height() / 2))
    return QIcon(drawn)


_NOTHING = (np.empty(0), np.empty(0))
