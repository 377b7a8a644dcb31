"""The question where to write a file, and the initial folder of such questions. It does not block."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from PySide6.QtWidgets import QFileDialog

from gradstudio.gui import user_settings
from gradstudio.gui.services.context import Context
from gradstudio.gui.widgets import popups


def ask_where(context: Context, title: str, name: str, chosen: Callable[[str], object]) -> None:
    """Ask for the file to write, and call `chosen` with its path. It gets the suffix of `name`."""
    suffix = Path(name).suffix
    dialog = popups.file_dialog(context.parent, title, folder(), f"*{suffix}")
    dialog.setAcceptMode(QFileDialog.AcceptMode.AcceptSave)
    dialog.setDefaultSuffix(suffix[1:])
    dialog.selectFile(name)
    dialog.fileSelected.connect(remember)
    dialog.fileSelected.connect(chosen)
    dialog.open()


def folder() -> str:
    """Return the folder of the file that was chosen last."""
    return user_settings.FOLDER.get() or str(Path.home())


def remember(path: str) -> None:
    """Remember the folder of this file for the next dialog."""
    user_settings.FOLDER.set(str(Path(path).parent))
