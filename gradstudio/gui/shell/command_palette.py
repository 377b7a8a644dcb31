"""The command palette: one line in which a person searches for whatever the window can do, and a list of what is found.

It knows nothing of what it offers: gui/palette_choices.py makes the choices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import (
    QAbstractItemView,
    QHeaderView,
    QLabel,
    QLineEdit,
    QTreeWidget,
    QTreeWidgetItem,
    QVBoxLayout,
    QWidget,
)

from gradstudio.gui.theme import theme
from gradstudio.gui.widgets import popups
from gradstudio.gui.widgets.roles import role_label

MOST_SHOWN = 60  # choices that are listed; nobody reads more, and each costs time
LONGEST = 200  # characters of what is searched for
_LIST_KEYS = {Qt.Key.Key_Up, Qt.Key.Key_Down, Qt.Key.Key_PageUp, Qt.Key.Key_PageDown}


@dataclass(frozen=True)
class Choice:
    """One thing that can be chosen."""

    kind: str  # command, knob, preset, run or help
    label: str
    call: Callable[[], object]
    keys: str = ""
    about: str = ""  # its tooltip, in which words are searched too
    possible: bool = True


def found(choices: Iterable[Choice], text: str) -> list[Choice]:
    """Return the choices that have every word of a text, the best first: those whose label begins with the text, then
    those that have every word in the label, then in the kind, then anywhere. Choices of one rank keep their order."""
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
    """The line of the search. The keys that move through a list go to the list."""

    moved = Signal(QKeyEvent)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() in _LIST_KEYS:
            self.moved.emit(event)
        else:
            super().keyPressEvent(event)


class CommandPalette(popups.TemporaryDialog):
    def __init__(self, parent: QWidget, choices: Sequence[Choice]) -> None:
        super().__init__(parent, "Find anything")
        self._choices = list(choices)
        self._shown: list[Choice] = []
        self.line = _Line()
        self.line.setMaxLength(LONGEST)
        self.line.setPlaceholderText("Find a command, knob, preset, run or gesture")
        self.line.setAccessibleName("Find anything")
        self.line.setAccessibleDescription("Type words, choose with Up and Down, and press Enter")
        self.list = QTreeWidget()
        self.list.setAccessibleName("What was found")
        self.list.setAccessibleDescription("Enter or a click carries out the chosen line")
        self.list.setColumnCount(3)
        self.list.setHeaderHidden(True)
        self.list.setRootIsDecorated(False)
        self.list.setUniformRowHeights(True)
        self.list.setEditTriggers(QAbstractItemView.EditTrigger.NoEditTriggers)
        self.list.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.list.setTextElideMode(Qt.TextElideMode.ElideMiddle)
        header = self.list.header()
        header.setStretchLastSection(False)
        for column, mode in enumerate((QHeaderView.ResizeMode.Stretch, *[QHeaderView.ResizeMode.ResizeToContents] * 2)):
            header.setSectionResizeMode(column, mode)
        self.nothing: QLabel = role_label("Nothing has all of these words: try fewer.", "dim")
        column = QVBoxLayout(self)
        for widget in (self.line, self.nothing, self.list):
            column.addWidget(widget)
        self.line.textChanged.connect(self._find)
        self.line.returnPressed.connect(self._choose)
        self.line.moved.connect(self.list.keyPressEvent)
        self.list.itemClicked.connect(self._choose)
        self.list.itemActivated.connect(self._choose)
        self._find()
        self.resize(round(640 * theme.zoom), round(440 * theme.zoom))
        self.line.setFocus()

    def add(self, choices: Iterable[Choice]) -> None:
        """Offer more, which took a while to read."""
        self._choices += choices
        self._find()

    @property
    def shown(self) -> list[Choice]:
        """The choices that are listed, the best first."""
        return list(self._shown)

    def _find(self) -> None:
        self._shown = found(self._choices, self.line.text())[:MOST_SHOWN]
        self.list.clear()
        for choice in self._shown:
            item = QTreeWidgetItem([choice.label, choice.keys, choice.kind])
            item.setToolTip(0, choice.about or choice.label)
            item.setData(0, Qt.ItemDataRole.AccessibleTextRole, ", ".join(filter(None, (choice.label, choice.kind))))
            for column in range(3):
                if column or not choice.possible:
                    item.setForeground(column, theme.color("dim"))
            self.list.addTopLevelItem(item)
        if (first := self.list.topLevelItem(0)) is not None:
            self.list.setCurrentItem(first)
        self.nothing.setVisible(not self._shown)

    def _choose(self) -> None:
        """Carry out the chosen line once this dialog is gone: what it does may open another one."""
        row = self.list.indexOfTopLevelItem(self.list.currentItem()) if self._shown else -1
        if row >= 0 and self.isVisible():  # a double click activates what a click has chosen
            chosen = self._shown[row]
            self.accept()
            chosen.call()
