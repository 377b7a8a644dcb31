"""Knobs, plots and the right side next to each other: which are shown, and how wide each was left."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QByteArray, QSettings, Qt
from PySide6.QtWidgets import QSplitter, QWidget

from gradstudio.gui.pages import PAGES, Page
from gradstudio.gui.theme import theme

if TYPE_CHECKING:
    from gradstudio.gui.side_panel import SidePanel

WIDTHS = (286, 800, 326)  # at first: knobs, plots, words
LEAST = (240, 420, 240)
SHARES: dict[Page, float] = {"code": 0.39, "runs": 0.27}  # of the width of all, for these at first


class Sides(QSplitter):
    def __init__(self, knobs: QWidget) -> None:
        super().__init__()
        self._knobs = knobs
        self._page: Page = "words"  # at first
        self._widths: dict[Page, int] = {}  # of the right side, as a person left them
        self.setHandleWidth(1)
        self.setChildrenCollapsible(False)
        panel = QWidget()
        panel.setObjectName("right")
        panel.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        for widget, least in zip((knobs, QWidget(), panel), LEAST, strict=True):
            widget.setMinimumWidth(least)
            self.addWidget(widget)
        self.setStretchFactor(1, 1)
        self.setSizes(list(WIDTHS))

    def fill(self, plots: QWidget, right: SidePanel) -> None:
        """Put these where there was room left for them."""
        self._right = right
        for place, widget in ((1, plots), (2, right)):
            room = self.widget(place)
            widget.setMinimumWidth(room.minimumWidth())
            self.replaceWidget(place, widget)
            room.deleteLater()
        self.setStretchFactor(1, 1)  # it is the widget's
        right.show_page(self._page)
        right.page_chosen.connect(self.show_page)

    def toggle_knobs(self) -> None:
        self._knobs.setVisible(not self._knobs.isVisible())

    def toggle_page(self, page: Page) -> None:
        """Show a page of the right side; where it stands already, hide the right side."""
        if self._right.isVisible() and self._right.page == page:
            self._right.hide()
            return
        self._right.show()
        self.show_page(page)

    def show_page(self, page: Page) -> None:
        """Turn the right side to a page, each in the width that it was left in."""
        if page == self._right.page:
            return
        left, middle, right = self.sizes()
        self._widths[self._right.page] = right
        self._right.show_page(page)
        width = self._widths.get(page) or max(WIDTHS[2], round(SHARES.get(page, 0) * self.width()))
        self.setSizes([left, max(middle + right - width, LEAST[1]), width])

    def reset(self) -> None:
        """As at first."""
        self._widths = {}
        self._knobs.show()
        self._right.show()
        self._right.show_page("words")
        self.setSizes(list(WIDTHS))

    def fit(self) -> None:
        """Give the sides the room that their text needs."""
        for place, least in ((0, LEAST[0]), (2, LEAST[2] + 10)):
            self.widget(place).setMinimumWidth(round(least * theme.zoom))

    def restore(self, settings: QSettings) -> None:
        """As they were left by the last window."""
        for page in PAGES:
            width = str(settings.value(f"width/{page}", ""))
            if width.isdecimal():
                self._widths[page] = int(width)
        self._page = next((known for known in PAGES if known == settings.value("page")), "words")
        state = settings.value("splitter")
        if isinstance(state, QByteArray):
            self.restoreState(state)

    def save(self, settings: QSettings) -> None:
        settings.setValue("splitter", self.saveState())
        settings.setValue("page", self._right.page)
        self._widths[self._right.page] = self.sizes()[2]
        for page, width in self._widths.items():
            settings.setValue(f"width/{page}", width)
