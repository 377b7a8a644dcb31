"""What a person must know now, laid over the foot of a widget so that nothing moves. It never blocks.

News leave by themselves, errors stay until they are closed (by the button or Escape) or replaced.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import QEvent, QObject, Qt, QTimer, QUrl
from PySide6.QtGui import QDesktopServices, QKeySequence, QShortcut
from PySide6.QtWidgets import QApplication, QFrame, QHBoxLayout, QLabel, QPushButton, QWidget

from gradstudio.gui.theme import theme

NEWS_STAY = 8000  # ms
Action = tuple[str, Callable[[], object]]  # what a button says and does
TITLE = 28  # px that the title of a plot takes


class MessageBar(QFrame):
    def __init__(self, over: QWidget) -> None:
        super().__init__(over.parentWidget())
        self._over = over
        over.installEventFilter(self)
        self.setObjectName("message")
        self.text = QLabel()
        self.text.setWordWrap(True)
        self.text.setTextFormat(Qt.TextFormat.PlainText)
        self.text.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.copy = QPushButton("Copy details")
        self.copy.clicked.connect(lambda: QApplication.clipboard().setText(self._details))
        self.open = QPushButton("Open")
        self.open.clicked.connect(lambda: QDesktopServices.openUrl(QUrl.fromLocalFile(str(self._file))))
        close = QPushButton("Close")
        close.setAccessibleName("Close the message")
        close.clicked.connect(self.hide)
        QShortcut(QKeySequence(Qt.Key.Key_Escape), self, self.hide)
        self._details = ""
        self._file = Path()
        self._leaving = QTimer(self)
        self._leaving.setSingleShot(True)
        self._leaving.timeout.connect(self.hide)
        row = QHBoxLayout(self)
        row.setContentsMargins(14, 7, 10, 7)
        row.addWidget(self.text, 1)
        self.action = QPushButton("Undo")  # or whatever else can be done about it
        self._act: Callable[[], object] = self.hide
        self.action.clicked.connect(self._take_action)
        for button in (self.action, self.copy, self.open, close):
            row.addWidget(button)
        self.hide()

    def show_error(self, text: str, details: str = "") -> None:
        self._show("bad", text, details, Path())

    def show_news(self, text: str, file: Path | None = None, *, action: Action | None = None, stay: int = NEWS_STAY) -> None:
        """Something went well; `file` can be opened from here, or `action` be taken, for `stay` ms."""
        self._show("good", text, "", file or Path(), action)
        self._leaving.start(stay)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() in (QEvent.Type.Move, QEvent.Type.Resize) and self.isVisible():
            self._place()
        return False

    def _place(self) -> None:
        """Over the whole width and as much of the height as the text needs, from the foot upwards; over all of it where only a part
        of the title would be left."""
        place = self._over.geometry()
        height = self.layout().totalHeightForWidth(place.width())
        if 0 < place.height() - height < TITLE * theme.zoom:
            height = place.height()
        self.setGeometry(place.x(), place.bottom() + 1 - height, place.width(), height)
        self.raise_()

    def _take_action(self) -> None:
        self.hide()
        self._act()

    def _show(self, tone: str, text: str, details: str, file: Path, action: Action | None = None) -> None:
        self._leaving.stop()
        self.action.setVisible(action is not None)
        if action is not None:
            name, self._act = action
            self.action.setText(name)
        self.setProperty("tone", tone)
        self.style().unpolish(self)
        self.style().polish(self)
        self._details, self._file = details, file
        self.copy.setVisible(bool(details))
        self.open.setVisible(file != Path())
        self.text.setText(text)
        self.setAccessibleName(text)
        self.show()
        self._place()
