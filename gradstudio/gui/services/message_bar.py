"""Messages over the foot of another widget, so that nothing moves. They never block.

News disappear by themselves; errors stay until they are closed (by the button or Escape) or replaced."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import QEvent, QObject, Qt, QTimer, QUrl
from PySide6.QtGui import QDesktopServices, QHideEvent, QKeySequence, QShortcut
from PySide6.QtWidgets import QApplication, QFrame, QLabel, QPushButton, QWidget

from gradstudio.core.text import LONGEST_LINE, brief, one_line
from gradstudio.gui.theme import theme
from gradstudio.gui.widgets.roles import set_styled
from gradstudio.gui.widgets.rows import in_row

LONGEST = 600  # letters of news: wrapping very long words takes Qt seconds
NEWS_STAY = 8000  # ms
OFFER_STAYS = 20_000  # ms, where there is something to do
Action = tuple[str, Callable[[], object]]  # label of a button, and its action
TITLE = 28  # px of the title of a plot


class MessageBar(QFrame):
    def __init__(self) -> None:
        super().__init__()
        self._over: QWidget | None = None
        self._at_foot: Callable[[str, Path], bool] = lambda *_: False
        self._instead: tuple[QWidget, ...] = ()  # pages that cover the other, each while it is visible
        self.setObjectName("message")
        self.text = QLabel(wordWrap=True, textFormat=Qt.TextFormat.PlainText)
        self.text.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.copy = QPushButton("Copy details")
        self.copy.setToolTip("Put the details of the message on the clipboard")
        self.copy.clicked.connect(lambda: QApplication.clipboard().setText(self._details))
        self.open = QPushButton("Open")
        self.open.clicked.connect(lambda: QDesktopServices.openUrl(QUrl.fromLocalFile(str(self._file))))
        close = QPushButton("Close")
        close.setAccessibleName("Close the message")
        close.setToolTip("Close the message (Esc)")
        close.clicked.connect(self.hide)
        QShortcut(QKeySequence(Qt.Key.Key_Escape), self, self.hide)
        self._details = ""
        self._file = Path()
        self._leaving = QTimer(self, singleShot=True)
        self._leaving.timeout.connect(self.hide)
        row = in_row((self.text, 1), of=self, margins=(14, 7, 10, 7))
        self.action = QPushButton("Undo")  # or another action offered by a message
        self._act: Callable[[], object] = self.hide
        self.action.clicked.connect(self._take_action)
        for button in (self.action, self.copy, self.open, close):
            row.addWidget(button)
        theme.apply_style(self)
        self.hide()

    def lay_over(self, over: QWidget, *instead: QWidget) -> None:
        """Show the messages over the foot of this widget from now on, and of one of `instead` while that is visible."""
        self._over, self._instead = over, instead
        self.setParent(over.parentWidget())
        for widget in (over, *instead):
            widget.installEventFilter(self)

    @property
    def message(self) -> str:
        """The visible message; empty if there is none."""
        return self.text.text() if self.isVisible() else ""

    def show_error(self, text: str, details: str = "", *, action: Action | None = None) -> None:
        self._show("bad", text, details, Path(), action)

    def show_news(self, text: str, file: Path | None = None, *, action: Action | None = None, stay: int = 0) -> None:
        """Show good news for `stay` ms, or for the usual time, with a button that opens `file` or one for `action`."""
        self._show("good", text, "", file or Path(), action)
        self._leaving.start(stay or (NEWS_STAY if action is None else OFFER_STAYS))

    def show_written(self, text: str, file: Path) -> None:
        """Show what was written at the foot of the window; over the plots if that is not visible."""
        if not self._at_foot(text, file):
            self.show_news(text, file)

    def leave_written(self, at_foot: Callable[[str, Path], bool]) -> None:
        """Delegate written files to `at_foot` from now on; it returns whether they are visible there."""
        self._at_foot = at_foot

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if watched in self._instead and event.type() in (QEvent.Type.Show, QEvent.Type.Hide) and not self.isHidden():
            self._move_to_page()
        if event.type() in (QEvent.Type.Move, QEvent.Type.Resize) and self.isVisible():
            self._place()
        return False

    def _move_to_page(self) -> None:
        """Move to the visible page, with the offered action: a widget that changes its parent is hidden."""
        page = next((page for page in self._instead if page.isVisible()), None)
        host = page or (self._over.parentWidget() if self._over is not None else None)
        if host is not None and host is not self.parentWidget():
            act = self._act
            self.setParent(host)
            self._act = act
            self.show()
        self._place()

    def _place(self) -> None:
        """Take the full width and the height that the text needs, from the foot upwards; the full height if only a part
        of the title would remain visible."""
        layout = self.layout()
        if self._over is None or layout is None:
            return
        page = next((page for page in self._instead if self.parentWidget() is page), None)
        place = self._over.geometry() if page is None else page.rect()
        height = layout.totalHeightForWidth(place.width())
        if 0 < place.height() - height < TITLE * theme.zoom:
            height = place.height()
        self.setGeometry(place.x(), place.bottom() + 1 - height, place.width(), height)
        self.raise_()

    def hideEvent(self, event: QHideEvent) -> None:
        """Release the offered action, unless the whole window is hidden: it may refer to a run."""
        super().hideEvent(event)
        if self.isHidden():
            self._act = self.hide

    def _take_action(self) -> None:
        act = self._act
        self.hide()
        act()

    def _show(self, tone: str, text: str, details: str, file: Path, action: Action | None = None) -> None:
        text = brief(one_line(text), LONGEST_LINE if tone == "bad" else LONGEST)
        self._leaving.stop()
        self.action.setVisible(action is not None)
        name, self._act = action or ("", self.hide)
        self.action.setText(name)
        set_styled(self, "tone", tone)
        self._details, self._file = details, file
        self.copy.setVisible(bool(details))
        self.open.setVisible(file != Path())
        self.open.setToolTip(f"Open {file}")
        self.action.setAccessibleDescription(text)
        self.text.setText(text)
        self.setAccessibleName(text)
        self.show()
        self._move_to_page()
