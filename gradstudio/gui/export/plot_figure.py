"""A plot as a figure (PNG or SVG), with lines and letters drawn for it, and the data of a plot as CSV."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import BinaryIO

from PySide6.QtCore import QBuffer, QByteArray, QIODevice, QPoint, QPointF, QRectF, QSizeF
from PySide6.QtGui import QImage, QImageWriter, QPainter
from PySide6.QtSvg import QSvgGenerator

from gradstudio.core.files import Content
from gradstudio.core.history import History
from gradstudio.gui.plots.step_plot import StepPlot
from gradstudio.gui.theme import theme
from gradstudio.session.files import csv_table
from gradstudio.session.files.run_files import events_csv
from gradstudio.session.record.run import Run

SHARP = 2  # pixels of a figure per screen pixel


def image(plot: StepPlot) -> QImage:
    """Return the plot as a picture, sharper than on the screen."""
    drawn = QImage(plot.size() * SHARP, QImage.Format.Format_RGB32)
    drawn.setDevicePixelRatio(SHARP)
    drawn.fill(theme.color("background"))
    with _drawing_as_vectors(plot, SHARP):
        plot.render(drawn)
    return drawn


def png(drawn: QImage) -> bytes:
    """Return a picture as a PNG file."""
    data = QByteArray()
    buffer = QBuffer(data)
    buffer.open(QIODevice.OpenModeFlag.WriteOnly)
    QImageWriter(buffer, QByteArray(b"png")).write(drawn)
    return bytes(data.data())


def svg(plot: StepPlot) -> bytes:
    """Return the plot as an SVG file. The inside of the axes is a nested svg element, which clips it at its edges: Qt's
    generator writes a clip wrongly or not at all."""
    frames = plot.frames
    place = plot.box.sceneBoundingRect()
    corner = plot.widget.viewport().mapTo(plot, plot.widget.mapFromScene(place.topLeft()))
    with _drawing_as_vectors(plot, 1):
        inside = _svg(
            plot,
            place.size(),
            lambda painter: plot.widget.scene().render(painter, QRectF(QPointF(), place.size()), place),
        )
        for frame in frames:
            frame.hide()
        around = _svg(plot, QSizeF(plot.size()), lambda painter: plot.render(painter, QPoint()))
        for frame in frames:
            frame.show()
    wide, high = place.width(), place.height()
    sharp = ' style="image-rendering: pixelated"' if plot.pixelated else ""
    nested = (
        f'<svg x="{corner.x()}" y="{corner.y()}" width="{wide}" height="{high}" viewBox="0 0 {wide} '
        f'{high}"{sharp}>{_inner(inside)}</svg>'
    )
    around = around.replace(' version="1.2" baseProfile="tiny"', ' version="1.1"', 1)  # a profile without nested images
    end = around.rindex("</svg>")
    return (around[:end] + nested + around[end:]).encode()


def _svg(plot: StepPlot, size: QSizeF, draw: Callable[[QPainter], object]) -> str:
    data = QByteArray()
    buffer = QBuffer(data)
    buffer.open(QIODevice.OpenModeFlag.WriteOnly)
    generator = QSvgGenerator()
    generator.setOutputDevice(buffer)
    generator.setSize(size.toSize())
    generator.setViewBox(QRectF(QPointF(), size))
    generator.setResolution(plot.logicalDpiX())
    generator.setTitle(plot.title)
    with QPainter(generator) as painter:
        draw(painter)
    buffer.close()
    return bytes(data.data()).decode()


def _inner(text: str) -> str:
    """Return the content of the outermost element."""
    return text[text.index(">", text.index("<svg")) + 1 : text.rindex("</svg>")]


def table(history: History, columns: tuple[str, ...], metric: str, file: BinaryIO) -> None:
    """Write these columns of the whole run, a line for each step, and if a metric is named its value for every layer.
    Floats read back bit for bit; NaN and Inf are written nan, inf, -inf."""

    def read(start: int, stop: int) -> list[list[str]]:
        cells = [csv_table.column(name, history.column(name, start, stop)) for name in ("step", *columns)]
        layers = history.layer_metric(metric, start, stop).T if metric else ()
        return cells + [csv_table.floats(layer) for layer in layers]

    names = ["step", *columns, *(layer.name for layer in history.layers if metric)]
    csv_table.write_columns(file, names, 0, len(history), read)


def data(plot: StepPlot, run: Run) -> Content:
    """Return the data of the plot as CSV: its columns, its metric of every layer, or else the events of the run."""
    if (own := plot.own_data()) is not None:
        return own
    if plot.columns or plot.shown_metric:
        return partial(table, run.history, plot.columns, plot.shown_metric)
    return events_csv(run)


@contextmanager
def _drawing_as_vectors(plot: StepPlot, sharp: int) -> Iterator[None]:
    """Draw the plot as lines and letters in this context, not from its cached screen pictures."""
    plot.draw_as_vectors(sharp)
    try:
        yield
    finally:
        plot.draw_as_vectors(0)
