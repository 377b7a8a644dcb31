"""The state of the run in one line, at a fixed place of the top bar."""

from __future__ import annotations

from PySide6.QtCore import QRectF, QSize, Qt
from PySide6.QtGui import QFont, QFontMetrics, QPainter, QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from gradstudio.gui.theme import theme
from gradstudio.session.words.outcome_words import Tone

SEPARATOR = " · "  # after the state itself
WIDEST = 420  # px
SIDES = 44  # px for the dot and the round ends


class StatePill(QWidget):
    """The state of the run, with a dot in its colour. Its position and width do not depend on the text; the rest of a
    long text is in the tooltip. The branch is named at the foot of the window."""

    def __init__(self) -> None:
        super().__init__()
        self._role: Tone = "dim"
        self._text = ""
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Preferred)
        self.setMinimumWidth(72)

    def show_state(self, tone: Tone, text: str) -> None:
        if (tone, text) != (self._role, self._text):
            self._role, self._text = tone, text
            self.setAccessibleName(text)
            self.setToolTip(text)
            self.update()

    def sizeHint(self) -> QSize:
        return QSize(380, 28)

    def paintEvent(self, event: QPaintEvent) -> None:
        with QPainter(self) as painter:
            painter.setRenderHint(QPainter.RenderHint.Antialiasing)
            painter.setFont(theme.font(1.0, QFont.Weight.DemiBold))
            width, height = min(self.width(), WIDEST * theme.zoom), painter.fontMetrics().height() + 9
            pill = QRectF((self.width() - width) / 2, (self.height() - height) / 2, width, height)
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(theme.color(self._role, 28))
            painter.drawRoundedRect(pill, height / 2, height / 2)
            painter.setBrush(theme.color(self._role))
            painter.drawEllipse(QRectF(pill.left() + 13, pill.center().y() - 4, 8, 8))
            painter.setPen(theme.color("text" if self._role == "dim" else self._role))
            text = shorten(self._text, painter.fontMetrics(), round(width) - SIDES)
            painter.drawText(pill.adjusted(28, 0, -10, 0), Qt.AlignmentFlag.AlignVCenter, text)


def shorten(text: str, metrics: QFontMetrics, room: int) -> str:
    """Return the part of a state that fits in one line: without the branch, or the most informative part."""
    state = text.partition(SEPARATOR)[0]
    parts = (state, state.partition(": ")[0], state.partition(" since ")[0], state.partition(" of ")[0].rstrip(","))
    shown = next((part for part in parts if metrics.horizontalAdvance(part) <= room), parts[1])
    if shown != state and state.startswith("Diverged: ") and " at step " in state:
        step = f"Diverged at step {state.rpartition(' at step ')[2]}"
        shown = step if metrics.horizontalAdvance(step) <= room else shown
    return metrics.elidedText(shown, Qt.TextElideMode.ElideRight, room)
