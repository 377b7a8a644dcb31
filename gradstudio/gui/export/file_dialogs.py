"""Dialogs that ask for a file: to open a preset, to save one, to export a run. None of them blocks."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from PySide6.QtWidgets import QFileDialog

from gradstudio.gui.services import file_choice
from gradstudio.gui.services.context import Context
from gradstudio.gui.services.file_jobs import CRASH, LOGS
from gradstudio.gui.widgets import popups
from gradstudio.session.record.run import Run

OTHERS = (*LOGS, CRASH)  # files that are not presets
NOTHING_YET = "There is nothing to export yet: press Run first."


def open_preset(context: Context) -> None:
    """Ask which preset to load."""

    def on_opened(path: str) -> None:
        file_choice.remember(path)
        if path.endswith(OTHERS):
            context.controls.file_asked.emit(path)
        else:
            context.controls.open_preset(Path(path))

    others = " ".join(f"*{suffix}" for suffix in OTHERS)
    kinds = f"Presets, studio files, logs, crash files (*.toml *.py {others});;All files (*)"
    dialog = popups.file_dialog(context.parent, "Open preset", file_choice.folder(), kinds)
    dialog.fileSelected.connect(on_opened)
    dialog.open()


def save_preset(context: Context) -> None:
    """Ask for the title under which the knobs are saved as a preset."""
    dialog = popups.input_dialog(context.parent, "Save knobs as preset", "Name of the preset")
    preset = context.simulator.preset
    dialog.setTextValue("" if preset.bundled else preset.title)
    dialog.textValueSelected.connect(context.controls.save_preset_as)
    dialog.open()


def export(context: Context, name: str) -> None:
    """Ask where to write one of the run's files: report.html, report.pdf, experiment.toml, train.py or metrics.csv."""
    run = context.simulator.run
    if not len(run.history) and name not in ("experiment.toml", "train.py"):
        context.message.show_error(NOTHING_YET)
        return
    file_choice.ask_where(context, f"Export {name}", f"{run.preset.id}-{name}", partial(_write, context, run, name))


def _write(context: Context, run: Run, name: str, path: str) -> None:
    family, tried = context.simulator.family, context.controls.trials
    line: list[Run] = []
    while (run_before := family.parent(line[0] if line else run)) is not None:
        line.insert(0, run_before)
    fixes = {tried.tried.id: list(tried.trials)} if tried is not None else {}
    context.files.export(run, name, path, line, fixes)


def export_events(context: Context) -> None:
    """Ask for the folder into which the run's event file for TensorBoard is written."""
    run = context.simulator.run
    if not len(run.history):
        context.message.show_error(NOTHING_YET)
        return
    dialog = popups.file_dialog(context.parent, "Folder for TensorBoard", file_choice.folder())
    dialog.setFileMode(QFileDialog.FileMode.Directory)
    dialog.setOption(QFileDialog.Option.ShowDirsOnly)
    dialog.fileSelected.connect(partial(context.files.export_events, run))
    dialog.open()


def save_code(context: Context, program: str) -> None:
    """Ask where to write the program as the page Code shows it."""
    name = f"{context.simulator.preset.id}-train.py"
    file_choice.ask_where(context, "Save program", name, partial(context.files.write_program, lambda: program))
