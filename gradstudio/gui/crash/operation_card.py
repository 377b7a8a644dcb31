"""One operation of a fatal step: its output and the gradient of that, as words and histograms."""

from __future__ import annotations

import numpy as np
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QFrame

from gradstudio.core.layer_sample import Histogram
from gradstudio.gui.plots.layer_histograms import HistogramPicture, describe
from gradstudio.gui.widgets.parts_label import PartsLabel
from gradstudio.gui.widgets.roles import role_label
from gradstudio.gui.widgets.rows import in_column, in_row
from gradstudio.session.files.crash_answers import Entries, StepOperation


class OperationCard(QFrame):
    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("card")
        self.title = role_label("", "title")
        self.title.setTextFormat(Qt.TextFormat.PlainText)
        self.values = HistogramPicture("Histogram: what it gave", "The entries of what the call gave.", "good")
        self.gradient = HistogramPicture(
            "Histogram: gradient", "The gradient of the loss by what the call gave.", "accent"
        )
        self.texts = PartsLabel("What it gave"), PartsLabel("Gradient")
        row = in_row(spacing=16)
        for text, picture in zip(self.texts, (self.values, self.gradient), strict=True):
            text.setProperty("role", "dim")
            row.addLayout(in_column(text, picture, spacing=1), 1)
        in_column(self.title, row, of=self, margins=(12, 8, 12, 6))
        self.hide()

    def show_operation(self, operation: StepOperation) -> None:
        where = f", {operation.line}" * bool(operation.line) + f", module {operation.module}" * bool(operation.module)
        self.title.setText(f"{operation.do}{where}")
        for name, text, picture, entries in (
            ("What it gave", self.texts[0], self.values, operation.entries),
            ("Gradient", self.texts[1], self.gradient, operation.gradient),
        ):
            histogram = _histogram(entries) if entries is not None else None
            picture.show_of(histogram)
            told = (entries.words or describe(histogram)) if entries is not None and histogram is not None else "none"
            text.say((name, told))
            text.setToolTip(told)
        self.show()

    def redraw(self) -> None:
        for picture in (self.values, self.gradient):
            picture.draw()


def _histogram(entries: Entries) -> Histogram:
    return Histogram(
        np.array(entries.counts), float(entries.least), float(entries.greatest),
        float(entries.mean), float(entries.std), float(entries.norm),
        entries.zeros, entries.nan + entries.inf, entries.size,
    )  # fmt: skip
