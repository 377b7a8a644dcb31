"""A small picture that changes seldom: it is drawn once for new content, and Qt shows it by itself."""

from __future__ import annotations

from PySide6.QtCore import QSize, Qt
from PySide6.QtGui import QPainter, QPixmap, QResizeEvent
from PySide6.QtWidgets import QLabel, QSizePolicy

from gradstudio.gui.theme import theme


class Picture(QLabel):
    """A picture as wide as its card, and `height` px high at normal text."""

    def __init__(self, name: str, height: int) -> None:
        super().__init__()
        self._height = height
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
        self.setAccessibleName(name)
        theme.changed.connect(self._fit)
        self._fit()

    def fit_height(self, height: int) -> None:
        """Make the picture this many px high at normal text, and redraw it."""
        self._height = height
        self._fit()

    def paint(self, painter: QPainter, width: float, height: float) -> None:
        """Draw the picture into this many pixels."""
        raise NotImplementedError

    def draw(self) -> None:
        """Redraw the picture."""
        scale = self.devicePixelRatioF()
        drawn = QPixmap(QSize(max(self.width(), 1), max(self.height(), 1)) * scale)
        drawn.setDevicePixelRatio(scale)
        drawn.fill(Qt.GlobalColor.transparent)
        with QPainter(drawn) as painter:
            painter.setFont(theme.font(0.8))
            self.paint(painter, self.width(), self.height())
        self.setPixmap(drawn)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self.draw()

    def _fit(self) -> None:
        self.setFixedHeight(round(self._height * theme.zoom))
        self.draw()
