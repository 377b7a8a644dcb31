"""Every undocumented name of pyqtgraph in use, and the fallback if one is gone.

Each shortcut is tried once, when it is first needed. If it fails, plots are drawn through pyqtgraph's public API:
slower, with the same picture. One line reports it, in the log and in `gradstudio doctor`."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any

import numpy as np
import pyqtgraph as pg
from pyqtgraph import functions
from PySide6.QtCore import QPointF
from PySide6.QtGui import QPainter, QPicture, QPixmap, QPolygonF
from PySide6.QtWidgets import QGraphicsScene, QGraphicsView

NAMES = (
    "picture", "generateDrawSpecs", "drawPicture",  # of an axis
    "create_qpolygonf", "ndarray_from_qpolygonf",  # of pyqtgraph.functions
    "viewRangeChanged", "viewStateChanged",  # of a plot and its view
)  # fmt: skip

notices: list[str] = []  # one line for each shortcut that does not work here


def works(instead: str, attempt: Callable[[], bool]) -> bool:
    """Try a shortcut and return whether it works. `instead` describes the fallback."""
    try:
        fault = "" if attempt() else "it behaves otherwise"
    except Exception as raised:  # a changed library can raise anything
        fault = str(raised)
    notice = f"pyqtgraph {pg.__version__} is not as expected ({fault}): {instead}"
    if fault and notice not in notices:
        notices.append(notice)
        logging.getLogger(__name__).warning(notice)
    return not fault


def private(owner: object, name: str) -> Any:
    """Return one of NAMES; AttributeError if it is gone."""
    return getattr(owner, name)


# ---- an axis drawn once into a picture, not in Python at every frame


@cache
def axes_are_pictures() -> bool:
    """Return whether an axis can be drawn once and shown as a picture until it changes."""
    return works("axes are painted anew in every frame, which is slower", _try_axis)


def is_stale(axis: pg.AxisItem) -> bool:
    """Return whether an axis has changed since `mark_drawn`: pyqtgraph then drops its picture."""
    return private(axis, "picture") is None


def mark_drawn(axis: pg.AxisItem) -> None:
    axis.picture = QPicture()  # never shown


def draw_axis(axis: pg.AxisItem, painter: QPainter) -> bool:
    """Draw an axis in its current state; return whether there is anything to draw."""
    specs = private(axis, "generateDrawSpecs")(painter)
    if specs is not None:
        private(axis, "drawPicture")(painter, *specs)
    return specs is not None


def _try_axis() -> bool:
    view, axis, picture = QGraphicsView(), pg.AxisItem("left"), QPixmap(60, 60)
    view.setScene(QGraphicsScene(view))
    view.scene().addItem(axis)  # without a view it would have nothing to draw
    axis.resize(40, 50)
    with QPainter(picture) as painter:
        drawn = draw_axis(axis, painter)
    mark_drawn(axis)
    kept = not is_stale(axis)
    axis.setRange(0.0, 2.0)
    return drawn and kept and is_stale(axis)


# ---- a path filled from an array without a copy in Python


@lru_cache(maxsize=256)
def polygon(points: int) -> tuple[QPolygonF, np.ndarray] | None:
    """Return a polygon with this many points and its coordinates, (points, 2), which are refilled each time: resizing
    it would release the interpreter lock. None if pyqtgraph returns no such array."""
    return _new_polygon(points) if polygons_are_arrays() else None


@cache
def polygons_are_arrays() -> bool:
    return works("curves are converted point by point, which is slower", _try_polygon)


def _new_polygon(points: int) -> tuple[QPolygonF, np.ndarray]:
    made = private(functions, "create_qpolygonf")(points)
    return made, private(functions, "ndarray_from_qpolygonf")(made)


def _try_polygon() -> bool:
    made, places = _new_polygon(2)
    places[:] = [[1.0, 2.0], [3.0, 4.0]]
    return made.size() == 2 and made.at(1) == QPointF(3.0, 4.0)


# ---- signals that are forwarded from object to object, without listeners


def cut_relays(view: pg.PlotWidget) -> None:
    """Disconnect the signals that pyqtgraph forwards in Python: each of them releases the interpreter lock."""
    works("every move of a plot is handed on in Python, which is slower", lambda: _cut(view))


def _cut(view: pg.PlotWidget) -> bool:
    plot = view.getPlotItem()
    assert plot is not None
    box = plot.getViewBox()
    plot.sigRangeChanged.disconnect(private(view, "viewRangeChanged"))
    box.sigStateChanged.disconnect(private(plot, "viewStateChanged"))
    for name in ("sigRangeChanged", "sigXRangeChanged", "sigYRangeChanged"):
        getattr(box, name).disconnect(getattr(plot, name))
    return True


def try_all() -> list[str]:
    """Try every shortcut and return the notices. It needs a QApplication."""
    cut_relays(pg.PlotWidget())
    axes_are_pictures()
    polygon(2)
    return notices
