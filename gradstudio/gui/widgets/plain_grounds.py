"""Backgrounds and lines that paint themselves. They need no style sheet, so that the widgets on them can be styled in
parts (gui/styled_parts.py)."""

from __future__ import annotations

from typing import Literal

from PySide6.QtCore import QRect, Qt
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QScrollArea, QWidget

from gradstudio.gui.theme import theme


class Ground(QWidget):
    """The background of a column of the window, with a line at one side of it."""

    def __init__(self, line: Literal["left", "right"]) -> None:
        super().__init__()
        self._line = line

    def paintEvent(self, event: QPaintEvent) -> None:
        line = QRect(0 if self._line == "left" else self.width() - 1, 0, 1, self.height())
        with QPainter(self) as painter:
            painter.fillRect(event.rect(), theme.color("panel"))
            painter.fillRect(line, theme.color("line"))


class Rule(QWidget):
    """A line between two parts of a column."""

    def __init__(self) -> None:
        super().__init__()
        self.setFixedHeight(1)

    def paintEvent(self, event: QPaintEvent) -> None:
        with QPainter(self) as painter:
            painter.fillRect(event.rect(), theme.color("line"))


def scroll_area(inside: QWidget, name: str) -> QScrollArea:
    """Return an area without a background that scrolls up and down; `name` is for screen readers."""
    area = QScrollArea()
    area.setWidgetResizable(True)
    area.setWidget(inside)
    area.setFrameShape(QScrollArea.Shape.NoFrame)
    area.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
    area.setAccessibleName(name)
    area.setAccessibleDescription("Up, Down, Page up and Page down scroll it")
    area.setFocusPolicy(Qt.FocusPolicy.TabFocus)
    for clear in (inside, area.viewport()):
        clear.setAutoFillBackground(False)
    theme.apply_style(area.verticalScrollBar())
    return area
