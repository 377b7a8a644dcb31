"""The common part of the lists of runs and of branches: the view, and the buttons below it."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QAbstractItemModel, QEvent, QItemSelectionModel, Qt, QTimer, Signal
from PySide6.QtGui import QHideEvent
from PySide6.QtWidgets import (
    QAbstractItemDelegate,
    QAbstractItemView,
    QLabel,
    QLineEdit,
    QListView,
    QPushButton,
    QWidget,
)

from gradstudio.gui.runs.run_painter import RunPainter
from gradstudio.gui.theme import theme
from gradstudio.gui.widgets.list_keys import add_keys, take_own_keys


class RunListView(QListView):
    """Rows painted by a RunPainter, with a text if there are none."""

    undo_asked = Signal()

    def __init__(self, model: QAbstractItemModel, painter: RunPainter, name: str, about: str, empty: str) -> None:
        super().__init__()
        self._painter = painter
        self.setObjectName("runs")
        self.setModel(model)
        self.setItemDelegate(painter)
        self.setVerticalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setEditTriggers(QAbstractItemView.EditTrigger.NoEditTriggers)
        self.setMouseTracking(True)
        self.setAccessibleName(name)
        self.setAccessibleDescription(about)
        self.setContextMenuPolicy(Qt.ContextMenuPolicy.CustomContextMenu)
        self.empty = QLabel(empty, self, textFormat=Qt.TextFormat.PlainText, wordWrap=True)
        self.empty.setProperty("role", "dim")
        self.empty.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        theme.apply_style(self, self._restyle)

    def add_keys(self, calls: dict[str, Callable[[], object]]) -> None:
        """Carry out these commands of LIST_KEYS by their keys."""
        add_keys(self, calls)

    def choose(self, row: int) -> None:
        """Select a row, if it exists."""
        if row >= 0:
            index = self.model().index(row, 0)
            self.selectionModel().setCurrentIndex(index, QItemSelectionModel.SelectionFlag.ClearAndSelect)

    def tick_current(self) -> None:
        """Tick the box of the current row, or untick it."""
        if self.currentIndex().isValid():
            self._painter.tick(self.model(), self.currentIndex())

    def show_empty(self, empty: bool, text: str) -> None:
        """Show or hide the text that replaces the rows."""
        self.empty.setText(text)
        self.empty.setVisible(empty)
        self._place_empty()

    def commitData(self, editor: QWidget) -> None:
        """Commit the edited text, once. Qt hides a finished editor; a second Enter, or one for a row that went away,
        comes after that, and Qt warns about it."""
        if not editor.isHidden():
            super().commitData(editor)

    def hideEvent(self, event: QHideEvent) -> None:
        """Discard a half-written name on a page that is hidden."""
        super().hideEvent(event)
        for editor in self.viewport().findChildren(QLineEdit):
            self.closeEditor(editor, QAbstractItemDelegate.EndEditHint.NoHint)

    def event(self, event: QEvent) -> bool:
        if take_own_keys(event, self.undo_asked.emit):
            return True
        done = super().event(event)
        if event.type() == QEvent.Type.Resize:
            self._place_empty()
        elif event.type() == QEvent.Type.StyleChange:  # its text is styled after it
            QTimer.singleShot(0, self, self._place_empty)
        return done

    def _place_empty(self) -> None:
        width = max(self.width() - 24, 0)
        self.empty.setGeometry(12, 12, width, self.empty.heightForWidth(width))

    def _restyle(self) -> None:
        self._painter.restyle()
        self.scheduleDelayedItemsLayout()
        self._place_empty()


def list_button(text: str, about: str, call: Callable[[], object]) -> QPushButton:
    """Return a button to place below a list; `about` is its tooltip."""
    button = QPushButton(text)
    button.setProperty("role", "remedy")
    button.setFocusPolicy(Qt.FocusPolicy.TabFocus)
    button.setToolTip(about)
    button.setAccessibleDescription(about)
    button.clicked.connect(lambda _=False: call())
    return button
