"""Menus generated from the table of commands (gui/commands/), and nothing else."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtGui import QAction, QActionGroup, QKeySequence
from PySide6.QtWidgets import QMainWindow, QMenu, QMenuBar, QPushButton

from gradstudio.gui.commands.command import Command, Dynamic, Entry, Submenu, Table

Actions = dict[str, QAction]


def build(window: QMainWindow, table: Table, buttons: dict[str, QPushButton]) -> None:
    """Fill the menu bar of a window, and the menus of buttons by their names in the table."""
    actions = {command.id: _action(window, command) for command in table.commands.values()}
    for title, entries in table.menus.items():
        _build(_add_menu(window.menuBar(), title), entries, actions)
    for name, button in buttons.items():
        _build(button.menu(), table.button_menus[name], actions)


def _add_menu(into: QMenuBar | QMenu, title: str) -> QMenu:
    """Return a new menu, created here: PySide considers one that Qt created deleted once it was accessed as the menu of
    an action that Python has released since, and its slots raise from then on."""
    menu = QMenu(title, into)
    into.addMenu(menu)
    return menu


def _action(window: QMainWindow, command: Command) -> QAction:
    """Return the action of a command: one for all menus, so that its keys are not ambiguous."""
    action = QAction(command.label + (f" ({command.more_keys})" if command.more_keys else ""), window)
    action.setShortcut(QKeySequence(command.keys))
    action.setToolTip(command.help)
    action.setCheckable(command.checked is not None)
    action.triggered.connect(lambda _=False: command.call())
    window.addAction(action)  # its keys work before the menu is filled: some are filled when they are opened
    return action


def _build(menu: QMenu, entries: Sequence[Entry], actions: Actions) -> None:
    menu.setToolTipsVisible(True)
    if any(isinstance(entry, Dynamic) for entry in entries):
        menu.addAction("…")  # some systems hide an empty menu, and filling it now would delay the first paint
        menu.aboutToShow.connect(lambda: _refill(menu, entries, actions))
    else:
        _fill(menu, entries, actions)
    commands = [entry for entry in entries if isinstance(entry, Command)]
    menu.aboutToShow.connect(lambda: _show_state(commands, actions))
    menu.aboutToHide.connect(lambda: _enable(commands, actions))


def _refill(menu: QMenu, entries: Sequence[Entry], actions: Actions) -> None:
    """Refill a menu. It releases its own actions by itself, but keeps their groups."""
    menu.clear()
    for group in menu.findChildren(QActionGroup):
        group.deleteLater()
    _fill(menu, entries, actions)


def _fill(menu: QMenu, entries: Sequence[Entry], actions: Actions) -> None:
    for entry in entries:
        match entry:
            case Command():
                menu.addAction(actions[entry.id])
            case Submenu():
                _build(_add_menu(menu, entry.label), entry.entries, actions)
            case Dynamic():
                entry.fill(menu)
            case None:
                menu.addSeparator()


def _show_state(commands: Sequence[Command], actions: Actions) -> None:
    for command in commands:
        actions[command.id].setEnabled(command.enabled())
        if command.checked is not None:
            actions[command.id].setChecked(command.checked())


def _enable(commands: Sequence[Command], actions: Actions) -> None:
    """Enable the keys again; pressing one when it is not possible shows why."""
    for command in commands:
        actions[command.id].setEnabled(True)
