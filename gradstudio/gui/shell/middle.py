"""The middle of the window: the plots, or one large page in their place."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QPushButton, QStackedWidget, QVBoxLayout, QWidget

from gradstudio.gui.theme import theme
from gradstudio.gui.widgets.roles import role_label
from gradstudio.gui.widgets.rows import in_row

ROUND = 7  # px of the corners, like those of a card


class LargePage(QWidget):
    """The frame of a large page: its title, the button that shows the plots again, and the page."""

    def __init__(self) -> None:
        super().__init__()
        self.title = role_label("", "title")
        self.title.setTextFormat(Qt.TextFormat.PlainText)
        self.back = QPushButton("Back to plots")
        self.back.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.back.setToolTip("Shows the plots again; the page keeps what it shows (Esc)")
        self.back.setAccessibleDescription(self.back.toolTip())
        self.pages = QStackedWidget()
        head = QWidget()
        in_row((self.title, 1), self.back, of=head, margins=(12, 8, 10, 6))
        column = QVBoxLayout(self)
        column.setContentsMargins(13, 11, 13, 9)  # like around the plots, and 1 px for the line
        column.setSpacing(0)
        column.addWidget(head)
        column.addWidget(self.pages, 1)
        theme.apply_style(head)

    def paintEvent(self, event: QPaintEvent) -> None:
        with QPainter(self) as painter:
            painter.setRenderHint(QPainter.RenderHint.Antialiasing)
            painter.setPen(theme.color("line"))
            painter.setBrush(theme.color("panel"))
            painter.drawRoundedRect(
                QRectF(self.rect().adjusted(12, 10, -12, -8)).adjusted(0.5, 0.5, -0.5, -0.5), ROUND, ROUND
            )


class Middle(QStackedWidget):
    """`page`: the visible large page; None while the plots are visible. A page that is put away stays as it is, hidden,
    until it is shown again; its creator deletes it once it is no longer needed."""

    def __init__(self) -> None:
        super().__init__()
        self.frame = LargePage()
        self._plots = QWidget()  # until there are plots
        self._put_away: Callable[[], object] | None = None
        self.addWidget(self._plots)
        self.addWidget(self.frame)
        self.frame.back.clicked.connect(self.show_plots)

    @property
    def page(self) -> QWidget | None:
        return self.frame.pages.currentWidget() if self.currentWidget() is self.frame else None

    def fill(self, plots: QWidget) -> None:
        """Add the plots, for which room was reserved."""
        self.insertWidget(0, plots)
        self.setCurrentIndex(0)
        self.removeWidget(self._plots)
        self._plots.deleteLater()
        self._plots = plots

    def keep(self, page: QWidget) -> None:
        """Keep a page that is shown later."""
        self.frame.pages.addWidget(page)

    def show_large(self, page: QWidget, title: str, put_away: Callable[[], object] | None = None) -> None:
        """Show a page in place of the plots, with the focus in it. `put_away` is called once it is no longer visible,
        for whatever reason."""
        if self.page is not page:
            self._leave()
        if self.frame.pages.indexOf(page) < 0:
            self.keep(page)
        self._put_away = put_away
        self.frame.title.setText(title)
        if not page.accessibleName():
            page.setAccessibleName(title)
        self.frame.pages.setCurrentWidget(page)
        self.setCurrentWidget(self.frame)
        page.setFocus()

    def show_plots(self) -> None:
        """Show the plots again."""
        if self.page is None:
            return
        focus = self.frame.isAncestorOf(self.focusWidget() or self)
        self.setCurrentWidget(self._plots)
        if focus:
            self._plots.setFocus()
        self._leave()

    def _leave(self) -> None:
        put_away, self._put_away = self._put_away, None
        if put_away is not None:
            put_away()
