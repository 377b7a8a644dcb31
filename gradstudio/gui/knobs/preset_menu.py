"""The available presets, as a menu with a sub-menu for each group."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QMenu

from gradstudio.core import presets
from gradstudio.gui.services.context import Context

GROUP = "presets of a group"


def fill(menu: QMenu, context: Context) -> None:
    """List every preset, those of a group in its sub-menu; one that cannot be read says why when it is chosen."""
    for old in menu.findChildren(QMenu, GROUP, Qt.FindChildOption.FindDirectChildrenOnly):
        old.setObjectName("")
        old.deleteLater()  # QMenu.clear leaves sub-menus
    listed: list[tuple[Path, presets.Preset]] = []
    unreadable: list[tuple[Path, str]] = []
    for path in presets.available():
        try:
            listed.append((path, presets.read(path)))
        except presets.PresetError as fault:
            unreadable.append((path, str(fault)))
    for group in presets.GROUPS:
        members = [(path, preset) for path, preset in listed if preset.group == group]
        if members:
            _add(_submenu(menu, group) if group else menu, members, context)
    for path, fault in unreadable:
        action = menu.addAction(f"{path.stem}: cannot be read", lambda text=fault: context.message.show_error(text))
        action.setToolTip(fault)
    if why := presets.why_unreachable():
        action = menu.addAction("Your own presets cannot be read", lambda: context.message.show_error(why))
        action.setToolTip(why)


def _submenu(menu: QMenu, group: str) -> QMenu:
    added = QMenu(group.capitalize(), menu)  # created here, for the reason given in shell/menus.py
    menu.addMenu(added)
    added.setObjectName(GROUP)
    added.setToolTipsVisible(True)
    return added


def _add(menu: QMenu, members: list[tuple[Path, presets.Preset]], context: Context) -> None:
    """Add presets to a menu, with a check mark at the open one."""
    for path, preset in members:
        action = menu.addAction(preset.title, lambda path=path: context.controls.open_preset(path))
        action.setToolTip(preset.summary)
        action.setCheckable(True)
        action.setChecked(preset.path == context.simulator.preset.path)
