"""Cards under headings, as many side by side as there is room for, with arrow-key navigation."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QPoint, QRect, QSize, Qt
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QLabel, QWidget

from gradstudio.gui.theme import theme
from gradstudio.gui.widgets.card import Card

GAP = 12  # px between cards
SIDE = 24  # px beside them
MOST = 6  # side by side: on a wide screen the cards are larger
TALLER = 0.3  # px of the height for each px that a card is wider
AHEAD = {Qt.Key.Key_Right: (1, 0), Qt.Key.Key_Left: (-1, 0), Qt.Key.Key_Down: (0, 1), Qt.Key.Key_Up: (0, -1)}


class CardWall(QWidget):
    def __init__(self) -> None:
        super().__init__()
        self.order: list[Card] = []  # in display order
        self._sections: list[tuple[QLabel, Sequence[Card]]] = []
        self._headings: dict[str, QLabel] = {}
        theme.changed.connect(self._place)

    def arrange(self, sections: Sequence[tuple[str, Sequence[Card]]], every: Sequence[Card]) -> None:
        """Show these cards under these headings, and hide all others."""
        self.order = [card for _, cards in sections for card in cards]
        shown = set(map(id, self.order))
        for heading, _ in self._sections:
            heading.hide()
        self._sections = [(self._heading(name), cards) for name, cards in sections]
        for card in every:
            if id(card) not in shown:
                card.hide()
        self._place()
        for heading, cards in self._sections:
            heading.setVisible(bool(heading.text()))
            for card in cards:
                card.show()
        for before, after in zip(self.order, self.order[1:], strict=False):
            self.setTabOrder(before, after)

    def move_focus(self, key: Qt.Key) -> Card | None:
        """Give the focus to the card beside, above or below the focused one; return it, None without cards."""
        aside, down = AHEAD[key]
        shown = [card for card in self.order if card.isVisible()]
        if not shown:
            return None
        focused = next((card for card in shown if card.hasFocus()), None)
        if focused is None:
            wanted = shown[0]
        elif aside:
            wanted = shown[min(max(shown.index(focused) + aside, 0), len(shown) - 1)]
        else:
            wanted = _nearest(focused, shown, down)
        wanted.setFocus(Qt.FocusReason.TabFocusReason)
        return wanted

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._place()

    def _heading(self, name: str) -> QLabel:
        if name not in self._headings:
            label = self._headings[name] = QLabel(name.upper(), self)
            label.setProperty("role", "heading")
            theme.apply_style(label)
        return self._headings[name]

    def _size(self) -> tuple[QSize, int]:
        """Return the size of a card, and how many are side by side."""
        least = self.order[0].sizeHint() if self.order else QSize(1, 1)
        room = self.width() - 2 * SIDE + GAP
        across = min(max(room // (least.width() + GAP), 1), MOST)
        width = max(room // across - GAP, least.width())
        taller = round(TALLER * (width - least.width())) if self.order and self.order[0].picture_height else 0
        return QSize(width, least.height() + taller), across

    def _place(self) -> None:
        (size, across), down = self._size(), 4
        for heading, cards in self._sections:
            if heading.text():
                height = heading.sizeHint().height()
                heading.setGeometry(QRect(QPoint(SIDE, down + 6), QSize(self.width() - 2 * SIDE, height)))
                down += height + 14
            for place, card in enumerate(cards):
                line, column = divmod(place, across)
                at = QPoint(SIDE + column * (size.width() + GAP), down + line * (size.height() + GAP))
                card.setGeometry(QRect(at, size))
            down += -(-len(cards) // across) * (size.height() + GAP) + 4
        self.setMinimumHeight(down + GAP)


def _nearest(focused: Card, shown: Sequence[Card], down: int) -> Card:
    """Return the nearest card of the next line up or down, or the same one if there is no such line."""
    here = focused.geometry().center()
    beyond = [card for card in shown if (card.y() - focused.y()) * down > 0]
    if not beyond:
        return focused
    line = min(beyond, key=lambda card: abs(card.y() - focused.y())).y()
    return min(
        (card for card in beyond if card.y() == line), key=lambda card: abs(card.geometry().center().x() - here.x())
    )
