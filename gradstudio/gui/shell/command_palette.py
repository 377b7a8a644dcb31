"""The command palette: one line that searches everything that the window can do, and a list of the matches.

It does not know its choices: gui/command_palette_choices.py creates them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from PySide6.QtCore import QEvent, QPoint, QSize, Qt, Signal
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import (
    QAbstractItemView,
    QApplication,
    QHeaderView,
    QLabel,
    QLineEdit,
    QTreeWidget,
    QTreeWidgetItem,
    QWidget,
)

from gradstudio.gui.theme import theme
from gradstudio.gui.widgets import popups
from gradstudio.gui.widgets.roles import role_label
from gradstudio.gui.widgets.rows import in_column

MOST_SHOWN = 60  # number of listed choices; more would not be read, and each costs time
SIZE = (840, 480)  # px at normal text
MARGIN = 60  # px of the window that stay visible above it
LONGEST = 200  # characters of the search text
_LIST_KEYS = {Qt.Key.Key_Up, Qt.Key.Key_Down, Qt.Key.Key_PageUp, Qt.Key.Key_PageDown}


@dataclass(frozen=True)
class Choice:
    """One thing that can be chosen."""

    kind: str  # command, knob, preset, run or help
    label: str
    call: Callable[[], object]
    keys: str = ""
    about: str = ""  # its tooltip, which is searched too
    possible: bool = True
    named: str = ""  # distinguishes it from others with the same label

    @property
    def name(self) -> str:
        """The name under which it is remembered after it was chosen."""
        return f"{self.kind}: {self.named or self.label}"


def best_matches(choices: Iterable[Choice], text: str) -> list[Choice]:
    """Return the choices that contain every word of a text, the best first: those whose label begins with the text,
    then those that contain every word in the label, then in the kind, then anywhere. Choices of equal rank keep their
    order."""
    words = text.casefold().split()
    ranked = [(rank, choice) for choice in choices if (rank := _rank(choice, words)) is not None]
    return [choice for _, choice in sorted(ranked, key=lambda each: each[0])]


def _rank(choice: Choice, words: Sequence[str]) -> int | None:
    label = choice.label.casefold()
    if label.startswith(" ".join(words)):
        return 0
    for rank, where in enumerate((label, f"{choice.kind} {label}", f"{choice.kind} {label} {choice.about.casefold()}")):
        if all(word in where for word in words):
            return rank + 1
    return None


class _Line(QLineEdit):
    """The search line. The keys that move through a list go to the list."""

    moved = Signal(QKeyEvent)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() in _LIST_KEYS:
            self.moved.emit(event)
        else:
            super().keyPressEvent(event)


class CommandPalette(popups.TemporaryDialog):
    """A frameless sheet, which closes when the window is used again. `latest`: names of the most recent choices, which
    come first while the search is empty; `chosen` is called with each."""

    def __init__(
        self, parent: QWidget, choices: Sequence[Choice], latest: Sequence[str] = (),
        chosen: Callable[[Choice], object] = lambda _: None,
    ) -> None:  # fmt: skip
        super().__init__(parent, "Find anything")
        self.setObjectName("palette")
        self.setWindowFlag(Qt.WindowType.FramelessWindowHint)
        self._choices, self._latest, self._tell = list(choices), list(latest), chosen
        self._shown: list[Choice] = []
        self.line = _Line()
        self.line.setMaxLength(LONGEST)
        self.line.setPlaceholderText("Find a command, knob, preset, run or gesture")
        self.line.setAccessibleName("Find anything")
        self.line.setAccessibleDescription("Type words, choose with Up and Down, and press Enter")
        self.list = QTreeWidget(columnCount=4)
        self.list.setAccessibleName("What was found")
        self.list.setAccessibleDescription("Enter or a click carries out the chosen line")
        self.list.setHeaderHidden(True)
        self.list.setRootIsDecorated(False)
        self.list.setUniformRowHeights(True)
        self.list.setEditTriggers(QAbstractItemView.EditTrigger.NoEditTriggers)
        self.list.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.list.setTextElideMode(Qt.TextElideMode.ElideMiddle)
        header = self.list.header()
        header.setStretchLastSection(False)
        header.setSectionResizeMode(QHeaderView.ResizeMode.ResizeToContents)
        header.setSectionResizeMode(1, QHeaderView.ResizeMode.Stretch)
        header.setMaximumSectionSize(round(SIZE[0] / 2 * theme.zoom))
        self.nothing: QLabel = role_label("Nothing has all of these words: try fewer.", "dim")
        in_column(self.line, self.nothing, self.list, of=self, margins=(10, 10, 10, 10))
        self.line.textChanged.connect(self._find)
        self.line.returnPressed.connect(self._choose)
        self.line.moved.connect(self.list.keyPressEvent)
        self.list.itemClicked.connect(self._choose)
        self.list.itemActivated.connect(self._choose)
        self._find()
        self._place(parent)
        self.line.setFocus()

    def _place(self, over: QWidget) -> None:
        """Move to the middle of the window, under its top."""
        room = over.size() - QSize(2 * MARGIN, 2 * MARGIN)
        self.resize((QSize(*SIZE) * theme.zoom).boundedTo(room))
        self.move(over.mapToGlobal(QPoint((over.width() - self.width()) // 2, MARGIN)))

    def changeEvent(self, event: QEvent) -> None:
        """Close when another window of the program is used: a frameless sheet has no button to close it."""
        super().changeEvent(event)
        if event.type() == QEvent.Type.ActivationChange and QApplication.activeWindow() is self.parentWidget():
            self.reject()

    def add(self, choices: Iterable[Choice]) -> None:
        """Add choices that took a while to read."""
        self._choices += choices
        self._find()

    @property
    def listed_choices(self) -> list[Choice]:
        """The listed choices, the best first."""
        return list(self._shown)

    def _find(self) -> None:
        self._shown = best_matches(self._in_order(), self.line.text())[:MOST_SHOWN]
        self.list.clear()
        for choice in self._shown:
            item = QTreeWidgetItem([choice.label, choice.about, choice.keys, choice.kind])
            item.setToolTip(0, choice.about or choice.label)
            item.setData(0, Qt.ItemDataRole.AccessibleTextRole, ", ".join(filter(None, (choice.label, choice.kind))))
            for column in range(4):
                if column or not choice.possible:
                    item.setForeground(column, theme.color("dim"))
            self.list.addTopLevelItem(item)
        if (first := self.list.topLevelItem(0)) is not None:
            self.list.setCurrentItem(first)
        self.nothing.setVisible(not self._shown)

    def _in_order(self) -> list[Choice]:
        """Return the choices, the most recent ones first while the search is empty."""
        if self.line.text().strip():
            return self._choices
        named = {choice.name: choice for choice in reversed(self._choices)}
        first = [named[name] for name in self._latest if name in named]
        return [*first, *(choice for choice in self._choices if choice not in first)]

    def _choose(self) -> None:
        """Carry out the chosen line once this dialog is gone: it may open another one."""
        row = self.list.indexOfTopLevelItem(self.list.currentItem()) if self._shown else -1
        if row >= 0 and self.isVisible():  # a double click activates what a click has chosen
            chosen = self._shown[row]
            self.accept()
            self._tell(chosen)
            chosen.call()
