"""The presets that are there, as a menu."""

from __future__ import annotations

from PySide6.QtWidgets import QMenu

from gradstudio.core import presets
from gradstudio.gui.services.context import Context


def fill(menu: QMenu, context: Context) -> None:
    """List every preset; one that cannot be read says why when it is chosen."""
    for path in presets.available():
        try:
            preset = presets.read(path)
        except presets.PresetError as fault:
            action = menu.addAction(
                f"{path.stem}: cannot be read", lambda text=str(fault): context.message.show_error(text)
            )
            action.setToolTip(str(fault))
            continue
        action = menu.addAction(preset.title, lambda path=path: context.controls.open_preset(path))
        action.setToolTip(preset.summary)
        action.setCheckable(True)
        action.setChecked(preset.path == context.simulator.preset.path)
    if why := presets.why_not_seen():
        action = menu.addAction("Your own presets cannot be read", lambda: context.message.show_error(why))
        action.setToolTip(why)
