"""Sheets of A4 paper, filled from the top down. All lengths are in points, from the upper left corner."""

from __future__ import annotations

from typing import Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_pdf import FigureCanvasPdf
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import PathPatch, Rectangle
from matplotlib.path import Path

from gradstudio.session.files.report.palette import LIGHT
from gradstudio.session.files.report.typesetting import font, wrap

INCH = 72.0
PAGE = (595.28, 841.89)
MARGIN = 48.0
_FOOT = 52.0  # kept free for the page number


class Sheets:
    """The pages so far; the last of them has room below the height `y`."""

    def __init__(self) -> None:
        self.pages: list[Figure] = []
        self.y = 0.0
        self._begin()

    def room(self, height: float) -> bool:
        """Begin a new page if this height does not fit, and return whether it did."""
        if self.y + height <= PAGE[1] - _FOOT or self.y == MARGIN:
            return False
        self._begin()
        return True

    def skip(self, height: float) -> None:
        self.y += height

    def line(self, text: str, *, size: float, bold: bool = False, colour: str = LIGHT["text"]) -> None:
        """Write one line that is short enough."""
        self.room(1.2 * size)
        self.text(MARGIN, self.y + size, text, size=size, bold=bold, colour=colour)
        self.skip(1.2 * size)

    def paragraph(self, text: str, *, size: float = 9, bold: bool = False, colour: str = LIGHT["text"]) -> None:
        """Write text over the full width, on several pages if needed."""
        for line in wrap(text, size, PAGE[0] - 2 * MARGIN, bold=bold):
            self.room(1.5 * size)
            self.text(MARGIN, self.y + size, line, size=size, bold=bold, colour=colour)
            self.skip(1.5 * size)

    def text(
        self,
        x: float,
        y: float,
        text: str,
        *,
        size: float,
        bold: bool = False,
        mono: bool = False,
        colour: str = LIGHT["text"],
        align: Literal["left", "right"] = "left",
    ) -> None:
        """Write text with its baseline at y."""
        if text.strip():
            self.pages[-1].text(
                *_place(x, y),
                text,
                fontsize=size,
                fontproperties=_font(size, bold, mono),
                color=colour,
                ha=align,
                va="baseline",
            )

    def axes(self, x: float, y: float, width: float, height: float) -> Axes:
        left, bottom = _place(x, y + height)
        return self.pages[-1].add_axes((left, bottom, width / PAGE[0], height / PAGE[1]))

    def bar(self, x: float, y: float, width: float, height: float, colour: str) -> None:
        figure = self.pages[-1]
        figure.add_artist(
            Rectangle(
                _place(x, y + height),
                width / PAGE[0],
                height / PAGE[1],
                color=colour,
                linewidth=0,
                transform=figure.transFigure,
            )
        )

    def stroke(self, x: float, y: float, width: float, colour: str, dashes: tuple[float, ...]) -> None:
        """Draw a line as in a figure."""
        figure = self.pages[-1]
        (left, height), (right, _) = _place(x, y), _place(x + width, y)
        line = Line2D([left, right], [height, height], color=colour, linewidth=1.2, transform=figure.transFigure)
        if dashes:
            line.set_dashes(dashes)
        figure.add_artist(line)

    def outline(self, x: float, y: float, points: np.ndarray, codes: np.ndarray, scale: float) -> None:
        """Fill a path whose lower left corner is at (x, y), with `scale` points of the page for one of its own."""
        figure = self.pages[-1]
        path = Path((points - points.min(axis=0)) * scale / INCH + (x / INCH, (PAGE[1] - y) / INCH), codes)
        figure.add_artist(PathPatch(path, facecolor=LIGHT["text"], linewidth=0, transform=figure.dpi_scale_trans))

    def rule(self, y: float) -> None:
        figure = self.pages[-1]
        (left, height), (right, _) = _place(MARGIN, y), _place(PAGE[0] - MARGIN, y)
        figure.add_artist(
            Line2D([left, right], [height, height], color=LIGHT["grid"], linewidth=0.7, transform=figure.transFigure)
        )

    def number(self, what: str) -> None:
        """Write the footer of every page. Call this last."""
        for index, figure in enumerate(self.pages, 1):
            for x, text, align in (
                (MARGIN, what[:90], "left"),
                (PAGE[0] - MARGIN, f"{index} / {len(self.pages)}", "right"),
            ):
                figure.text(
                    *_place(x, PAGE[1] - 28),
                    text,
                    fontproperties=_font(7.5),
                    color=LIGHT["dim"],
                    ha=align,
                    va="baseline",
                )

    def _begin(self) -> None:
        figure = Figure(figsize=(PAGE[0] / INCH, PAGE[1] / INCH), facecolor="white", dpi=200)
        FigureCanvasPdf(figure)
        self.pages.append(figure)
        self.y = MARGIN


def _place(x: float, y: float) -> tuple[float, float]:
    return x / PAGE[0], 1 - y / PAGE[1]


def _font(size: float, bold: bool = False, mono: bool = False):
    properties = font(bold, mono).copy()
    properties.set_size(size)
    return properties
