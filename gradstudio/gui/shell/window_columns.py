"""The three columns of the window, knobs, middle and pages: which are shown, and the user's widths."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from PySide6.QtGui import QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QSplitter, QSplitterHandle, QWidget

from gradstudio.gui import user_settings
from gradstudio.gui.shell.middle import Middle
from gradstudio.gui.shell.pages import LARGE, PAGES, STORED_AS, Page
from gradstudio.gui.theme import theme
from gradstudio.gui.widgets.plain_grounds import Ground

if TYPE_CHECKING:
    from gradstudio.gui.shell.side_panel import SidePanel

WIDTHS = (286, 800, 326)  # px at first: knobs, middle, pages
LEAST = (240, 420, 300)  # px
PROJECTED = 0.36  # share of the window for the card on a projector


class _Handle(QSplitterHandle):
    """An invisible handle."""

    def paintEvent(self, event: QPaintEvent) -> None:
        pass


class Columns(QSplitter):
    def __init__(self, knobs: QWidget) -> None:
        super().__init__()
        self._knobs = knobs
        self._page: Page = "diagnosis"  # of the right column at first
        self._large: Page | None = None  # in the middle at first
        self._squeezed_out = False  # whether the knobs were hidden for lack of room
        self.middle = Middle()
        self.setHandleWidth(1)
        self.setChildrenCollapsible(False)
        for widget, least in zip((knobs, self.middle, Ground(line="left")), LEAST, strict=True):
            widget.setMinimumWidth(least)
            self.addWidget(widget)
        self.setStretchFactor(1, 1)
        self.setSizes(list(WIDTHS))

    def fill(self, plots: QWidget, right: SidePanel) -> None:
        """Add the plots and the pages, for which room was reserved."""
        self._right, room = right, self._at(2)
        self.middle.fill(plots)
        for page in right.large.values():
            self.middle.keep(page)  # now: Tab reaches the right column last
        right.setMinimumWidth(room.minimumWidth())
        self.replaceWidget(2, right)
        room.deleteLater()
        for page in (self._page, self._large):
            if page is not None:
                self.show_page(page)
        right.page_chosen.connect(self.show_page)

    def createHandle(self) -> QSplitterHandle:
        return _Handle(self.orientation(), self)

    def toggle_knobs(self, *, only_show: bool = False) -> None:
        self._knobs.setVisible(only_show or not self._knobs.isVisible())
        if self._knobs.isVisible() and not self._roomy:
            self._right.hide()

    def toggle_page(self, page: Page, *, only_show: bool = False) -> None:
        """Show a page; if it is already visible, show the plots in its place, or no right column, unless
        `only_show`."""
        if not self.shows(page):
            self._right.setVisible(page not in LARGE or self._right.isVisible())
            if self._right.isVisible() and not self._roomy:
                self._knobs.hide()
            self.show_page(page)
        elif only_show:
            return
        elif page in LARGE:
            self.middle.show_plots()
        else:
            self._right.hide()

    @property
    def page(self) -> Page:
        """The page of the right column."""
        return self._right.page

    def show_page(self, page: Page) -> None:
        """Show a page in the middle or in the right column, whichever is its place."""
        if page in LARGE:
            self.middle.show_large(self._right.large[page], PAGES[page])
        else:
            self._right.show_page(page)

    @property
    def _large_on_view(self) -> Page | None:
        return next((page for page in LARGE if self.shows(page)), None)

    def shows(self, page: Page) -> bool:
        """Return whether a page is visible."""
        if page in LARGE:
            return self.middle.page is self._right.large[page]
        return self._right.isVisible() and self._right.page == page

    def project(self) -> Callable[[], None]:
        """Show only plots and page, the page without its buttons. The returned function restores everything, once the
        texts have their own size again."""
        left, right, page, sizes = self._knobs.isVisible(), self._right.isVisible(), self._right.page, self.sizes()
        large = self._large_on_view

        def back() -> None:
            self._knobs.setVisible(left)
            self._right.tabs.show()
            self._right.show_page(page)
            self._right.setVisible(right)
            self.fit()  # otherwise the minimum widths of the larger texts are still in force
            self.setSizes(sizes)
            if large is not None:
                self.show_page(large)

        self.middle.show_plots()
        self._knobs.hide()
        self._right.tabs.hide()
        self._right.show()
        self._right.show_page("diagnosis")
        self.setSizes([0, round((1 - PROJECTED) * self.width()), round(PROJECTED * self.width())])
        return back

    def leave_alone(self) -> Callable[[], None]:
        """Show only the middle column. The returned function restores the others."""
        left, right, sizes = self._knobs.isVisible(), self._right.isVisible(), self.sizes()

        def back() -> None:
            self._knobs.setVisible(left)
            self._right.setVisible(right)
            self.setSizes(sizes)

        self._knobs.hide()
        self._right.hide()
        return back

    def reset(self) -> None:
        """Show every column, with its initial width, and the plots."""
        self.middle.show_plots()
        self._knobs.show()
        self._right.show()
        self._right.show_page("diagnosis")
        self.setSizes(list(WIDTHS))

    def fit(self) -> None:
        """Give the outer columns the room that their texts need. If there is none for both, the knobs are hidden."""
        for place, least in ((0, LEAST[0]), (2, LEAST[2])):
            self._at(place).setMinimumWidth(round(least * theme.zoom))
        both = not self._knobs.isHidden() and not self._at(2).isHidden()
        if both and not self._roomy:
            self._squeezed_out = True
            self._knobs.hide()
        elif self._squeezed_out and self._roomy:
            self._squeezed_out = False
            self._knobs.show()

    @property
    def _roomy(self) -> bool:
        """Whether there is room for three columns."""
        return self.width() >= sum(LEAST) * theme.zoom

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self.fit()  # also at normal text: behind the gallery it had no width yet when it was styled

    def restore(self) -> None:
        """Restore the columns of the last window."""
        names: dict[str, Page] = {name: page for page, name in STORED_AS.items()}
        for kept in (user_settings.PAGE.get(), user_settings.LARGE_PAGE.get()):
            page = names.get(kept or "")  # an older window stored both in one
            if page in LARGE:
                self._large = page
            elif page is not None:
                self._page = page
        if (state := user_settings.SPLITTER.get()) is not None:
            self.restoreState(state)

    def save(self) -> None:
        user_settings.SPLITTER.set(self.saveState())
        user_settings.PAGE.set(STORED_AS[self._right.page])
        large = self._large_on_view
        user_settings.LARGE_PAGE.set(STORED_AS[large] if large else None)

    def _at(self, place: int) -> QWidget:
        widget = self.widget(place)
        assert widget is not None
        return widget
