"""A page of the right column with one scroll bar, in which nothing else scrolls."""

from __future__ import annotations

from PySide6.QtCore import QCoreApplication, QEvent, QPoint, Qt, QTimer
from PySide6.QtWidgets import QWidget

from gradstudio.gui.widgets.plain_grounds import scroll_area
from gradstudio.gui.widgets.rows import NO_MARGINS, in_column

ABOVE = 8  # px that stay free above a part that is scrolled to
LAID_OUT = 20  # ms after which new texts have their height


class ColumnPage(QWidget):
    def __init__(self, inside: QWidget, name: str) -> None:
        super().__init__()
        self.inside, self.area = inside, scroll_area(inside, name)
        in_column(self.area, of=self, margins=NO_MARGINS)

    def to_the_top(self) -> None:
        self.area.verticalScrollBar().setValue(0)

    def bring_into_view(self, part: QWidget) -> None:
        """Scroll so that a whole part is visible once it is laid out, or its beginning if it is too high. The topmost
        visible part is never cut."""
        QTimer.singleShot(LAID_OUT, part, lambda: self._scroll_to(part))

    def _scroll_to(self, part: QWidget) -> None:
        QCoreApplication.sendPostedEvents(None, QEvent.Type.LayoutRequest)  # where much else has kept Qt from it
        bar, room = self.area.verticalScrollBar(), self.area.viewport().height()
        top = self._top(part)
        if bar.value() <= top - ABOVE and top + part.height() <= bar.value() + room:
            return
        least = min(top, top + part.height() + ABOVE - room + ABOVE)  # the minimum that shows all of it
        tops = [self._top(each) for each in self._parts() if least <= self._top(each) <= top]
        bar.setValue(min(tops, default=top) - ABOVE)

    def _parts(self) -> list[QWidget]:
        # Not by layout.itemAt: PySide keeps such an item when Qt has deleted it, and whatever widget comes to its
        # address crashes when it is deleted.
        layout, direct = self.inside.layout(), Qt.FindChildOption.FindDirectChildrenOnly
        assert layout is not None
        parts = self.inside.findChildren(QWidget, options=direct)
        return [part for part in parts if part.isVisible() and layout.indexOf(part) >= 0]

    def _top(self, part: QWidget) -> int:
        return part.mapTo(self.inside, QPoint()).y()
