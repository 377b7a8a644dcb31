"""Keys of the lists of runs and branches, and their effects."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QEvent, Qt
from PySide6.QtGui import QAction, QKeyEvent, QKeySequence
from PySide6.QtWidgets import QListView

LIST_KEYS = {  # command: keys, effect
    "open": ("Enter", "Open it, or go to it"),
    "draw": ("Space", "Draw it over the plots"),
    "rename": ("F2", "Rename a branch"),
    "delete": ("Delete", "Delete it"),
    "undo": ("Ctrl+Z", "Undo deletion"),
}
_ALSO = {"Enter": "Return"}  # Qt tells the two Enter keys apart


def key(command: str) -> str:
    """Return the name of a command's key, for tooltips."""
    return LIST_KEYS[command][0]


def add_keys(view: QListView, calls: dict[str, Callable[[], object]]) -> None:
    """Let a list carry out these commands by their keys while it has the focus."""
    for command, call in calls.items():
        name = key(command)
        action = QAction(LIST_KEYS[command][1], view)
        action.setShortcuts([QKeySequence(each) for each in (name, _ALSO.get(name)) if each])
        action.setShortcutContext(Qt.ShortcutContext.WidgetShortcut)
        action.triggered.connect(lambda _=False, call=call: call())
        view.addAction(action)


def take_own_keys(event: QEvent, undo: Callable[[], object]) -> bool:
    """Handle keys in a list that are also in the menus of the window: Ctrl+Z undoes a deletion, Home goes to the first
    row. Return whether the event is handled."""
    if not isinstance(event, QKeyEvent):
        return False
    undoes = event.matches(QKeySequence.StandardKey.Undo)
    if event.type() == QEvent.Type.ShortcutOverride and (undoes or event.key() == Qt.Key.Key_Home):
        event.accept()  # Qt then sends a key press to the list instead of calling the menu's command
        return True
    if event.type() == QEvent.Type.KeyPress and undoes:
        undo()
        return True
    return False
