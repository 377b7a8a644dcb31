"""The tabs at the top of the right column. Each stays in its place, whichever is chosen; a dot at a tab means that
something is to be done or seen there."""

from __future__ import annotations

from functools import partial

from PySide6.QtCore import QPointF, QSize, Qt, Signal
from PySide6.QtGui import QFont, QFontMetrics, QPainter, QPaintEvent
from PySide6.QtWidgets import QButtonGroup, QPushButton, QSizePolicy, QWidget

from gradstudio.gui.shell.pages import LARGE, MORE, PAGE_HELP, PAGES, Page
from gradstudio.gui.theme import theme
from gradstudio.gui.widgets import popups
from gradstudio.gui.widgets.rows import in_row

SIZE = 0.93  # of the text, relative to the window's
LINE = 2  # px of the line under the chosen tab
DOT = 3.0  # px; radius
ABOUT_MORE = "Shows gauges or memory here, or code or map in the middle"


class Tab(QPushButton):
    """One tab. `sign`: the theme role of its dot; "" for none."""

    def __init__(self, title: str, about: str) -> None:
        super().__init__(title)
        self._about, self.sign = about, ""
        self.setCheckable(True)
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Fixed)
        self.setToolTip(about)
        self.setAccessibleDescription(about)

    def show_sign(self, role: str, why: str = "") -> None:
        """Show a dot with its reason in words, or none."""
        if role != self.sign:
            self.sign = role
            self.setAccessibleName(f"{self.text()}, {why}" if why else self.text())
            self.update()

    def sizeHint(self) -> QSize:
        metrics = QFontMetrics(self._font(chosen=True))  # the wider one, so that nothing moves
        return QSize(metrics.horizontalAdvance(self.text()) + 8, metrics.height() + round(12 * theme.zoom))

    def minimumSizeHint(self) -> QSize:
        return self.sizeHint()

    def paintEvent(self, event: QPaintEvent) -> None:
        chosen, active = self.isChecked(), self.underMouse() or self.hasFocus()
        with QPainter(self) as painter:
            painter.setRenderHint(QPainter.RenderHint.Antialiasing)
            painter.setFont(self._font(chosen=chosen))
            painter.setPen(theme.color("accent" if chosen or active else "text"))
            painter.drawText(self.rect(), Qt.AlignmentFlag.AlignCenter, self.text())
            line = self.rect().adjusted(2, self.height() - LINE, -2, 0)
            if chosen or self.hasFocus():
                painter.fillRect(line, theme.color("accent" if chosen else "dim"))
            if self.sign:
                painter.setPen(Qt.PenStyle.NoPen)
                painter.setBrush(theme.color(self.sign))
                painter.drawEllipse(QPointF(self.width() - DOT, DOT + 3), DOT, DOT)

    def _font(self, *, chosen: bool) -> QFont:
        return theme.font(SIZE, QFont.Weight.DemiBold if chosen else QFont.Weight.Normal)


class PageTabs(QWidget):
    """`buttons`: the tab of each page; the pages behind More have that tab."""

    page_chosen = Signal(str)

    def __init__(self) -> None:
        super().__init__()
        self.buttons: dict[Page, Tab] = {}
        self.more = Tab("More", ABOUT_MORE)
        row = in_row(of=self, margins=(8, 4, 8, 0), spacing=0)
        group = QButtonGroup(self)
        tabs: list[Page] = [page for page in PAGES if page not in LARGE and page not in MORE]
        for page in tabs:
            tab = self.buttons[page] = Tab(PAGES[page], PAGE_HELP[page])
            tab.clicked.connect(partial(self.page_chosen.emit, page))
        for tab in (*self.buttons.values(), self.more):
            group.addButton(tab)
            row.addWidget(tab)
            row.addStretch(1)
        row.takeAt(row.count() - 1)
        self._page: Page = "diagnosis"
        self.more.clicked.connect(self._offer_more)
        theme.changed.connect(self._fit)

    def show_page(self, page: Page) -> None:
        self._page = page
        self.buttons.get(page, self.more).setChecked(True)

    def paintEvent(self, event: QPaintEvent) -> None:
        with QPainter(self) as painter:
            painter.fillRect(self.rect().adjusted(0, self.height() - 1, 0, 0), theme.color("line"))

    def _offer_more(self) -> None:
        """List the other pages; the tab of the visible page stays chosen until one is."""
        self.show_page(self._page)
        menu = popups.context_menu(self.more)
        large: list[Page] = [page for page in PAGES if page in LARGE]
        pages: list[Page] = [*MORE, *large]
        for page in pages:
            if page == large[0]:
                menu.addSeparator()
            action = menu.addAction(PAGES[page], partial(self.page_chosen.emit, page))
            action.setCheckable(page in MORE)
            action.setChecked(page == self._page)
            action.setToolTip(PAGE_HELP[page])
        menu.popup(self.more.mapToGlobal(self.more.rect().bottomLeft()))

    def _fit(self) -> None:
        for tab in (*self.buttons.values(), self.more):
            tab.updateGeometry()
            tab.update()
        self.update()
