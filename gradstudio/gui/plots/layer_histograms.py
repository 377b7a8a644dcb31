"""The histograms of one layer at one step: its weights, its gradient and its update, side by side."""

from __future__ import annotations

import math

import numpy as np
from PySide6.QtCore import QPointF, QRectF, Qt, Signal
from PySide6.QtGui import QPainter
from PySide6.QtWidgets import QFrame, QPushButton, QSpinBox

from gradstudio.core.layer_sample import BINS, PARTS, Histogram, LayerSample, Part
from gradstudio.core.text import number, percent
from gradstudio.gui.theme import theme
from gradstudio.gui.widgets.parts_label import PartsLabel
from gradstudio.gui.widgets.picture import Picture
from gradstudio.gui.widgets.roles import role_label
from gradstudio.gui.widgets.rows import in_column, in_row

HEIGHT = 96  # px
TITLES: dict[Part, str] = {"weights": "Weights", "gradient": "Gradient", "update": "Update"}
ABOUT: dict[Part, str] = {
    "weights": "The entries of the layer before the update of this step.",
    "gradient": "The entries of the gradient that the optimizer got in this step, after clipping.",
    "update": "The change of each entry in this step.",
}
ROLES: dict[Part, str] = {"weights": "good", "gradient": "accent", "update": "warning"}


class HistogramPicture(Picture):
    """The bars of one histogram from its smallest to its largest entry; their heights are on a log scale, so that
    single outliers are visible."""

    def __init__(self, name: str, about: str, role: str) -> None:
        """`role` is the colour of the bars."""
        self._role, self._shown = role, None
        super().__init__(name, HEIGHT)
        self.setToolTip(f"{about} The heights of the bars are on a log scale.")

    def show_of(self, histogram: Histogram | None) -> None:
        if histogram is not self._shown:
            self._shown = histogram
            self.setAccessibleDescription(describe(histogram) if histogram is not None else "not measured")
            self.draw()

    def paint(self, painter: QPainter, width: float, height: float) -> None:
        histogram, line = self._shown, painter.fontMetrics().height()
        foot = height - line - 3
        painter.setPen(theme.color("line"))
        painter.drawLine(QPointF(0, foot), QPointF(width, foot))
        if histogram is None or not math.isfinite(histogram.least):
            return
        heights = np.log1p(histogram.counts) / np.log1p(histogram.counts.max())
        across = width / BINS
        for place in np.flatnonzero(histogram.counts).tolist():
            high = max((foot - 3) * float(heights[place]), 1.0)
            bar = QRectF(place * across, foot - high, max(across - 0.5, 1), high)
            painter.fillRect(bar, theme.color(self._role, 190))
        painter.setPen(theme.color("dim"))
        if histogram.least < 0 < histogram.greatest:
            zero = width * -histogram.least / (histogram.greatest - histogram.least)
            painter.drawLine(QPointF(zero, 2), QPointF(zero, foot))
        below = QRectF(0, foot + 2, width, line)
        if histogram.least == histogram.greatest:
            painter.drawText(below, Qt.AlignmentFlag.AlignHCenter, number(histogram.least))
            return
        painter.drawText(below, Qt.AlignmentFlag.AlignLeft, number(histogram.least))
        painter.drawText(below, Qt.AlignmentFlag.AlignRight, number(histogram.greatest))


class LayerHistograms(QFrame):
    """The three pictures, their step, and the choice of another one."""

    step_asked = Signal(int)

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("card")
        title = role_label("Layer: entries at step", "title")
        self.step = QSpinBox()
        self.step.setObjectName("small")
        self.step.setAccessibleName("Step of the histograms")
        self.step.setToolTip("The step to look into; a click on a plot of this layer chooses it too")
        self.step.setGroupSeparatorShown(True)
        self.look = QPushButton("Look into step")
        self.look.setProperty("role", "small")
        self.look.setToolTip("Makes this step again from a snapshot, beside the run, and shows its entries")
        self.look.clicked.connect(self._ask)
        self.step.lineEdit().returnPressed.connect(self._ask)
        self.note = role_label("", "dim", wordWrap=True)
        head = in_row(title, self.step, self.look, (self.note, 1), margins=(10, 5, 12, 0), spacing=8)
        row = in_row(margins=(12, 2, 12, 4), spacing=16)
        self.pictures: dict[Part, HistogramPicture] = {}
        self.texts: dict[Part, PartsLabel] = {}
        for part in PARTS:
            name = f"Histogram: {TITLES[part].lower()}"
            self.pictures[part] = HistogramPicture(name, ABOUT[part], ROLES[part])
            self.texts[part] = PartsLabel(TITLES[part])
            self.texts[part].setProperty("role", "dim")
            self.texts[part].setToolTip(ABOUT[part])
            column = in_column(self.texts[part], self.pictures[part], spacing=1)
            row.addLayout(column, 1)
        in_column(head, row, of=self, margins=(1, 1, 1, 3), spacing=2)
        theme.apply_style(self, self._redraw)

    def reach(self, steps: int) -> None:
        """Offer the steps that the run has made, `steps` of them."""
        if self.step.maximum() != max(steps - 1, 0):
            self.step.setMaximum(max(steps - 1, 0))
        for widget in (self.step, self.look):
            if widget.isEnabled() != (steps > 0):
                widget.setEnabled(steps > 0)

    def say(self, note: str) -> None:
        if note != self.note.text():
            self.note.setText(note)

    def show_of(self, sample: LayerSample | None, layer: str) -> None:
        """Show the histograms of a layer; nothing if there is no sample."""
        histograms = sample.layers.get(layer) if sample is not None else None
        for part in PARTS:
            each = histograms[part] if histograms is not None else None
            self.pictures[part].show_of(each)
            self.texts[part].say((TITLES[part], *(_short(each) if each is not None else ())))
            self.texts[part].setToolTip(f"{ABOUT[part]}{f' {describe(each)}' if each is not None else ''}")

    def _ask(self) -> None:
        self.step_asked.emit(self.step.value())

    def _redraw(self) -> None:
        for picture in self.pictures.values():
            picture.draw()


def _short(histogram: Histogram) -> tuple[str, ...]:
    """Return the norm, and the most important other fact."""
    if histogram.zeros == histogram.size:
        return ("every entry is 0",)
    if histogram.nonfinite:
        return (f"{percent(histogram.nonfinite / histogram.size)} NaN or Inf",)
    beside = f"{percent(histogram.zeros / histogram.size)} zeros" if histogram.zeros else f"std {number(histogram.std)}"
    return f"norm {number(histogram.norm)}", beside


def describe(histogram: Histogram) -> str:
    """Return everything that a histogram shows, in words."""
    parts = [f"norm {number(histogram.norm)}"]
    if math.isfinite(histogram.std):
        parts.append(f"mean {number(histogram.mean)} · std {number(histogram.std)}")
    if histogram.zeros:
        parts.append(f"{histogram.zeros:,} of {histogram.size:,} are 0")
    if histogram.nonfinite:
        parts.append(f"{histogram.nonfinite:,} of {histogram.size:,} are NaN or Inf")
    return " · ".join(parts)
