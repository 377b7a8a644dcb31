"""Asking for a file: to open a preset, to save the knobs as one, to export a run. None of them blocks."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QSettings
from PySide6.QtWidgets import QFileDialog, QInputDialog

if TYPE_CHECKING:
    from gradstudio.gui.window import Window


def open_preset(window: Window) -> None:
    def opened(path: str) -> None:
        remember(path)
        window.open_preset(Path(path))

    dialog = QFileDialog(window, "Open preset", folder(), "Presets (*.toml);;All files (*)")
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
    """Where to write one of the run's files: report.html, report.pdf, experiment.toml, train.py or metrics.csv."""
    run = window.simulator.run
    if not len(run.history) and name not in ("experiment.toml", "train.py"):
        window.message.show_error("There is nothing to export yet: press Run first.")
        return
    ask_where(window, f"Export {name}", f"{run.preset.id}-{name}", partial(window.errands.export, run, name))


def export_events(window: Window) -> None:
    """Into which folder to write the run's event file for TensorBoard."""
    run = window.simulator.run
    if not len(run.history):
        window.message.show_error("There is nothing to export yet: press Run first.")
        return
    dialog = QFileDialog(window, "Folder for TensorBoard", folder())
    dialog.setFileMode(QFileDialog.FileMode.Directory)
    dialog.setOption(QFileDialog.Option.ShowDirsOnly)
    dialog.fileSelected.connect(partial(window.errands.export_events, run))
    dialog.open()


def save_code(window: Window) -> None:
    """Where to write the program as the code panel shows it now."""
    text = window.side.code.text
    ask_where(window, "Save the program", f"{window.simulator.preset.id}-train.py", partial(window.errands.write, lambda: text))


def ask_where(window: Window, title: str, name: str, chosen: Callable[[str], object]) -> None:
    """Ask for the file to write, which gets the suffix of `name`."""
    suffix = Path(name).suffix
    dialog = QFileDialog(window, title, folder(), f"*{suffix}")
    dialog.setAcceptMode(QFileDialog.AcceptMode.AcceptSave)
    dialog.setDefaultSuffix(suffix[1:])
    dialog.selectFile(name)
    dialog.fileSelected.connect(remember)
    dialog.fileSelected.connect(chosen)
    dialog.open()


def folder() -> str:
    return str(QSettings().value("folder", str(Path.home())))


def remember(path: str) -> None:
    QSettings().setValue("folder", str(Path(path).parent))
