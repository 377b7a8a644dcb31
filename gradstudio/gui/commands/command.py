"""What a command of the window is, what else stands in a menu, and the table of all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from PySide6.QtGui import QKeySequence
from PySide6.QtWidgets import QAbstractButton, QMenu, QWidget

StandardKey = QKeySequence.StandardKey


@dataclass(frozen=True)
class Command:
    """A single command of the window."""

    id: str
    label: str
    call: Callable[[], object]
    keys: str | StandardKey = ""
    help: str = ""
    enabled: Callable[[], bool] = lambda: True  # evaluated when a menu opens; the keys always work
    checked: Callable[[], bool] | None = None  # for a choice among several
    more_keys: str = ""  # keys that the window handles itself, because a shortcut would take them from text fields

    @property
    def key_names(self) -> str:
        own = QKeySequence(self.keys).toString(QKeySequence.SequenceFormat.NativeText)
        return ", ".join(keys for keys in (self.more_keys, own) if keys)

    @property
    def tooltip(self) -> str:
        return f"{self.help or self.label} ({self.key_names})" if self.key_names else self.help


@dataclass(frozen=True)
class Dynamic:
    """Menu entries that are regenerated each time the menu opens."""

    fill: Callable[[QMenu], object]


@dataclass(frozen=True)
class Submenu:
    label: str
    entries: tuple[Entry, ...]


Entry = Command | Dynamic | Submenu | None  # None is a line between two groups
Menus = dict[str, tuple[Entry, ...]]


@dataclass(frozen=True)
class Table:
    """The menus by title, and the commands by id."""

    menus: Menus
    button_menus: Menus  # of the buttons of the top bar
    commands: dict[str, Command]

    def attach(self, button: QAbstractButton, command: str) -> None:
        """Connect a button to a command, with its tooltip."""
        button.clicked.connect(lambda _=False: self.commands[command].call())
        self.explain(button, command)

    def explain(self, widget: QWidget, command: str) -> None:
        """Give a widget the tooltip of a command that it carries out by other means."""
        widget.setToolTip(self.commands[command].tooltip)
        widget.setAccessibleDescription(self.commands[command].tooltip)

    def keys(self, *commands: str) -> str:
        return ", ".join(self.commands[command].key_names for command in commands)


def commands_of(entries: tuple[Entry, ...]) -> Iterator[Command]:
    for entry in entries:
        if isinstance(entry, Submenu):
            yield from commands_of(entry.entries)
        elif isinstance(entry, Command):
            yield entry
