"""The three columns of the window, knobs, plots and pages: which are shown, and how wide a person left them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from PySide6.QtCore import QSettings
from PySide6.QtGui import QPaintEvent
from PySide6.QtWidgets import QSplitter, QSplitterHandle, QWidget

from gradstudio.gui.shell.pages import PAGES, STORED_AS, Page
from gradstudio.gui.theme import theme
from gradstudio.gui.widgets import stored
from gradstudio.gui.widgets.plain_grounds import Ground

if TYPE_CHECKING:
    from gradstudio.gui.shell.side_panel import SidePanel

WIDTHS = (286, 800, 326)  # px at first: knobs, plots, pages
LEAST = (240, 420, 300)  # px
WIDEST = 10_000  # px
PROJECTED = 0.36  # share of the window that the card has on a projector
SHARES: dict[Page, float] = {
    "code": 0.39,
    "runs": 0.27,
    "map": 0.31,
}  # widths of these pages at first, as shares of the window


class _Handle(QSplitterHandle):
    """A handle that is not seen."""

    def paintEvent(self, event: QPaintEvent) -> None:
        pass


class Columns(QSplitter):
    def __init__(self, knobs: QWidget) -> None:
        super().__init__()
        self._knobs = knobs
        self._page: Page = "diagnosis"  # at first
        self._knobs_width = WIDTHS[0]  # px, when they were hidden
        self._widths: dict[Page, int] = {}  # px of the right column, as a person left each page
        self.setHandleWidth(1)
        self.setChildrenCollapsible(False)
        for widget, least in zip((knobs, QWidget(), Ground(line="left")), LEAST, strict=True):
            widget.setMinimumWidth(least)
            self.addWidget(widget)
        self.setStretchFactor(1, 1)
        self.setSizes(list(WIDTHS))

    def fill(self, plots: QWidget, right: SidePanel) -> None:
        """Put in the plots and the pages, for which there was room left."""
        self._right = right
        for place, widget in ((1, plots), (2, right)):
            room = self._at(place)
            widget.setMinimumWidth(room.minimumWidth())
            self.replaceWidget(place, widget)
            room.deleteLater()
        self.setStretchFactor(1, 1)  # Qt keeps it with the widget
        right.show_page(self._page)
        right.page_chosen.connect(self.show_page)

    def createHandle(self) -> QSplitterHandle:
        return _Handle(self.orientation(), self)

    def toggle_knobs(self, *, only_show: bool = False) -> None:
        if self._knobs.isVisible() and only_show:
            return
        if self._knobs.isVisible():
            self._knobs_width = self.sizes()[0]
        self._knobs.setVisible(not self._knobs.isVisible())

    def toggle_page(self, page: Page, *, only_show: bool = False) -> None:
        """Show a page of the right column; hide the column where it shows that page already."""
        if self._right.isVisible() and self._right.page == page and not only_show:
            self._right.hide()
            return
        self._right.show()
        self.show_page(page)

    def show_page(self, page: Page) -> None:
        """Show a page in the width that a person left it in."""
        if page == self._right.page:
            return
        left, middle, right = self.sizes()
        self._widths[self._right.page] = right
        self._right.show_page(page)
        width = self._widths.get(page) or max(WIDTHS[2], round(SHARES.get(page, 0) * self.width()))
        if not self._knobs.isVisible():  # Qt would keep that as their width, and show them in the least
            left = self._knobs_width
        self.setSizes([left, max(middle + right - width, LEAST[1]), width])

    def project(self) -> Callable[[], None]:
        """Show plots and page alone, the page without its buttons. The function that is returned puts all back, once
        the texts have their own size again."""
        left, right, page, sizes = self._knobs.isVisible(), self._right.isVisible(), self._right.page, self.sizes()

        def back() -> None:
            self._knobs.setVisible(left)
            self._right.segments.show()
            self._right.show_page(page)
            self._right.setVisible(right)
            self.fit()  # or the larger texts' least widths are still in force
            self.setSizes(sizes)

        self._knobs.hide()
        self._right.segments.hide()
        self._right.show()
        self._right.show_page("diagnosis")
        self.setSizes([0, round((1 - PROJECTED) * self.width()), round(PROJECTED * self.width())])
        return back

    def reset(self) -> None:
        """Show every column, as wide as at first."""
        self._widths = {}
        self._knobs.show()
        self._right.show()
        self._right.show_page("diagnosis")
        self.setSizes(list(WIDTHS))

    def fit(self) -> None:
        """Give the outer columns the room that their texts need."""
        for place, least in ((0, LEAST[0]), (2, LEAST[2])):
            self._at(place).setMinimumWidth(round(least * theme.zoom))

    def restore(self) -> None:
        """Show the columns as the last window left them."""
        for page, name in STORED_AS.items():
            if (width := stored.number(f"width/{name}", 0, WIDEST)) is not None:
                self._widths[page] = int(width)
        left = stored.choice("page", list(STORED_AS.values()))
        found: list[Page] = [page for page in PAGES if STORED_AS[page] == left]
        self._page = found[0] if found else "diagnosis"
        if (state := stored.state("splitter")) is not None:
            self.restoreState(state)

    def save(self, settings: QSettings) -> None:
        settings.setValue("splitter", self.saveState())
        settings.setValue("page", STORED_AS[self._right.page])
        self._widths[self._right.page] = self.sizes()[2]
        for page, width in self._widths.items():
            settings.setValue(f"width/{STORED_AS[page]}", width)

    def _at(self, place: int) -> QWidget:
        widget = self.widget(place)
        assert widget is not None
        return widget
