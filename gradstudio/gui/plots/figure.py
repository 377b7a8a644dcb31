"""A plot as a picture of its own, with lines and letters drawn anew for it, and its data as a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import BinaryIO

from PySide6.QtCore import QBuffer, QByteArray, QIODevice, QPoint, QPointF, QRectF, QSizeF
from PySide6.QtGui import QImage, QPainter
from PySide6.QtSvg import QSvgGenerator

from gradstudio.core.files import Content
from gradstudio.core.history import BLOCK, History
from gradstudio.gui.plots.step_plot import StepPlot
from gradstudio.gui.theme import theme
from gradstudio.session.output import events_csv
from gradstudio.session.run import Run

SHARP = 2  # pixels of a picture for one of the window's

_COUNTS = ("step", "skipped", "nonfinite")


def image(plot: StepPlot) -> QImage:
    drawn = QImage(plot.size() * SHARP, QImage.Format.Format_RGB32)
    drawn.setDevicePixelRatio(SHARP)
    drawn.fill(theme.color("background"))
    with _drawn_anew(plot, SHARP):
        plot.render(drawn)
    return drawn


def png(drawn: QImage) -> bytes:
    data = QByteArray()
    buffer = QBuffer(data)
    buffer.open(QIODevice.OpenModeFlag.WriteOnly)
    drawn.save(buffer, "PNG")
    return data.data()


def svg(plot: StepPlot) -> bytes:
    """The frame around first, then what stands in it as a picture of its own, which is cut off at its edges: of a clip, Qt's generator
    writes nothing, or something else."""
    frames = plot.frames
    place = plot.box.sceneBoundingRect()
    corner = plot.widget.viewport().mapTo(plot, plot.widget.mapFromScene(place.topLeft()))
    with _drawn_anew(plot, 1):
        inside = _generated(plot, place.size(), lambda painter: plot.widget.scene().render(painter, QRectF(QPointF(), place.size()), place))
        for frame in frames:
            frame.hide()
        around = _generated(plot, QSizeF(plot.size()), lambda painter: plot.render(painter, QPoint()))
        for frame in frames:
            frame.show()
    wide, high = place.width(), place.height()
    sharp = ' style="image-rendering: pixelated"' if plot.shown_metric else ""
    nested = f'<svg x="{corner.x()}" y="{corner.y()}" width="{wide}" height="{high}" viewBox="0 0 {wide} {high}"{sharp}>{_inner(inside)}</svg>'
    around = around.replace(' version="1.2" baseProfile="tiny"', ' version="1.1"', 1)  # a profile that has no pictures in pictures
    end = around.rindex("</svg>")
    return (around[:end] + nested + around[end:]).encode()


def _generated(plot: StepPlot, size: QSizeF, draw: Callable[[QPainter], object]) -> str:
    data = QByteArray()
    buffer = QBuffer(data)
    buffer.open(QIODevice.OpenModeFlag.WriteOnly)
    generator = QSvgGenerator()
    generator.setOutputDevice(buffer)
    generator.setSize(size.toSize())
    generator.setViewBox(QRectF(QPointF(), size))
    generator.setResolution(plot.logicalDpiX())
    generator.setTitle(plot.title)
    painter = QPainter(generator)
    draw(painter)
    painter.end()
    buffer.close()
    return data.data().decode()


def _inner(text: str) -> str:
    """What stands between the tags of the outermost element."""
    return text[text.index(">", text.index("<svg")) + 1 : text.rindex("</svg>")]


def table(history: History, columns: tuple[str, ...], metric: str, file: BinaryIO) -> None:
    """These columns of the whole run, and this metric of every layer where one is named, a line a step. Floats read back bit for bit;
    NaN and Inf are spelled nan, inf, -inf."""
    count = len(history)
    names = ["step", *columns, *(_cell(layer.name) for layer in history.layers if metric)]
    file.write((",".join(names) + "\n").encode())
    for start in range(0, count, BLOCK):
        stop = min(start + BLOCK, count)
        cells = [_cells(name, history.column(name, start, stop).tolist()) for name in ("step", *columns)]
        if metric:
            cells += [[repr(value) for value in layer.tolist()] for layer in history.layer_metric(metric, start, stop).T]
        file.write("".join(",".join(row) + "\n" for row in zip(*cells, strict=True)).encode())


def data(plot: StepPlot, run: Run) -> Content:
    """The run's data that the plot is about: columns and layers, or what happened on the way."""
    if (own := plot.own_data()) is not None:
        return own
    if plot.columns or plot.shown_metric:
        return partial(table, run.history, plot.columns, plot.shown_metric)
    return events_csv(run)


@contextmanager
def _drawn_anew(plot: StepPlot, sharp: int) -> Iterator[None]:
    """While this lasts the plot is drawn as lines and letters, and not from the pictures that it keeps for the screen."""
    plot.draw_anew(sharp)
    try:
        yield
    finally:
        plot.draw_anew(0)


def _cells(name: str, values: list[float]) -> list[str]:
    return [str(int(value)) for value in values] if name in _COUNTS else [repr(value) for value in values]


def _cell(text: str) -> str:
    """A name that a spreadsheet takes neither for a formula nor for two cells."""
    text = text.replace('"', "'")
    text = "'" + text if text.startswith(("=", "+", "-", "@")) else text
    return f'"{text}"' if "," in text or "\n" in text else text
