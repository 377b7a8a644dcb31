"""Asking for a file: to open a preset, to save the knobs as one, to export a run. None of them blocks."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QSettings
from PySide6.QtWidgets import QFileDialog, QInputDialog

if TYPE_CHECKING:
    from gradstudio.gui.window import Window


def open_preset(window: Window) -> None:
    def opened(path: str) -> None:
        _remember(path)
        window.open_preset(Path(path))

    dialog = QFileDialog(window, "Open preset", _folder(), "Presets (*.toml);;All files (*)")
    dialog.fileSelected.connect(opened)
    dialog.open()


def save_preset(window: Window) -> None:
    dialog = QInputDialog(window)
    dialog.setWindowTitle("Save knobs as preset")
    dialog.setLabelText("Name of the preset")
    preset = window.simulator.preset
    dialog.setTextValue("" if preset.bundled else preset.title)
    dialog.textValueSelected.connect(window.save_preset_as)
    dialog.open()


def export(window: Window, name: str) -> None:
    """Where to write one of the run's files: report.html, report.pdf, experiment.toml or metrics.csv."""
    run = window.simulator.run
    if not len(run.history) and name != "experiment.toml":
        window.message.show_error("There is nothing to export yet: press Run first.")
        return
    suffix = Path(name).suffix
    dialog = QFileDialog(window, f"Export {name}", _folder(), f"*{suffix}")
    dialog.setAcceptMode(QFileDialog.AcceptMode.AcceptSave)
    dialog.setDefaultSuffix(suffix[1:])
    dialog.selectFile(f"{run.preset.id}-{name}")
    dialog.fileSelected.connect(_remember)
    dialog.fileSelected.connect(partial(window.export_to, name))
    dialog.open()


def _folder() -> str:
    return str(QSettings().value("folder", str(Path.home())))


def _remember(path: str) -> None:
    QSettings().setValue("folder", str(Path(path).parent))
