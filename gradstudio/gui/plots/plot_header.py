"""The line over a plot: its title, and the legend or the values at the cursor."""

from __future__ import annotations

from functools import lru_cache

from PySide6.QtCore import Qt
from PySide6.QtGui import QFont, QTextDocument
from PySide6.QtWidgets import QHBoxLayout, QLabel, QSizePolicy


class Legend(QLabel):
    """Rich text that uses the given room."""

    def __init__(self) -> None:
        super().__init__()
        self.setProperty("role", "dim")
        self.setTextFormat(Qt.TextFormat.RichText)
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred)
        self.setAlignment(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)

    def fits(self, text: str) -> bool:
        """Return whether there is room for a rich text."""
        return _width(text, self.font().toString()) <= self.width()

    def first_that_fits(self, *texts: str) -> str:
        """Return the first of these rich texts that fits; otherwise the last, which is the shortest."""
        return next((text for text in texts[:-1] if self.fits(text)), texts[-1])


class PlotHeader(QHBoxLayout):
    """Title on the left, legend on the right."""

    def __init__(self, title: str, about: str) -> None:
        super().__init__()
        self.title, self.legend = QLabel(title), Legend()
        self.title.setProperty("role", "title")
        self.title.setToolTip(about)
        self.setContentsMargins(10, 5, 12, 0)
        self.addWidget(self.title)
        self.addSpacing(10)
        self.addWidget(self.legend, 1)
        self.fits, self.first_that_fits = self.legend.fits, self.legend.first_that_fits

    def say(self, text: str, more: str = "") -> None:
        """Show a rich text, followed by more if there is room for both."""
        self.legend.setText(" &nbsp;".join(filter(None, (text, more))))
        if text and more and self.legend.sizeHint().width() > self.legend.width():
            self.legend.setText(text)


@lru_cache(maxsize=64)  # most legends stay the same
def _width(text: str, font: str) -> float:
    """Return the width of a rich text in a font, given as a Qt string."""
    named, document = QFont(), QTextDocument()
    named.fromString(font)
    document.setDefaultFont(named)
    document.setHtml(text)
    return document.idealWidth()
