"""Beginning an exercise, or going on with its worksheet."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from PySide6.QtWidgets import QComboBox

from gradstudio.core import exercise as exercises
from gradstudio.core.exercise import Exercise, ExerciseError
from gradstudio.gui.exercise.exercise_dialog import ExerciseDialog
from gradstudio.gui.services import file_choice
from gradstudio.gui.services.background_jobs import Unreadable
from gradstudio.gui.services.context import Context
from gradstudio.gui.widgets import popups
from gradstudio.session.course import worksheet
from gradstudio.session.course.worksheet import LONGEST_NAME, Worksheet, WorksheetError, seed_of


def ask_exercise(context: Context) -> None:
    """Ask which of the bundled exercises to do."""
    titles = {f"{place}. {exercises.load(id).title}": id for place, id in enumerate(exercises.available(), 1)}
    dialog = popups.input_dialog(context.parent, "Do an exercise", "Exercise to do")
    dialog.setComboBoxItems(list(titles))
    if box := dialog.findChild(QComboBox):
        box.setAccessibleName("Exercise")
        box.setAccessibleDescription("Exercise: which of the bundled ones to do")
    dialog.textValueSelected.connect(lambda title: begin(context, titles[title]))
    dialog.open()


def begin(context: Context, id: str) -> None:
    """Ask whose worksheet it is and where it lies, and open it."""

    def named(name: str) -> None:
        if not 0 < len(name.strip()) <= LONGEST_NAME:
            context.message.show_error(f"The name has {len(name):,} characters; allowed: 1 to {LONGEST_NAME}.")
            return
        file_choice.ask_where(context, "Worksheet", f"{id}.toml", partial(_write, context, id, name.strip()))

    dialog = popups.input_dialog(context.parent, exercises.load(id).title, "Your name, as the worksheet has it")
    dialog.textValueSelected.connect(named)
    dialog.open()


def ask_worksheet(context: Context) -> None:
    dialog = popups.file_dialog(context.parent, "Worksheet", file_choice.folder(), "Worksheets (*.toml);;All files (*)")
    dialog.fileSelected.connect(file_choice.remember)
    dialog.fileSelected.connect(lambda path: open_worksheet(context, Path(path)))
    dialog.open()


def open_worksheet(context: Context, path: Path) -> None:
    def opened(found: tuple[Worksheet, Exercise]) -> None:
        context.controls.file_opened.emit(str(path))
        ExerciseDialog(context, path, *found).show()

    context.jobs.read(path, _loaded, opened)


def is_worksheet(path: Path) -> bool:
    """Return whether a file is a worksheet, and not a preset, which also ends in .toml."""
    try:
        worksheet.read(path)
    except WorksheetError:
        return False
    return True


def _write(context: Context, id: str, name: str, path: str) -> None:
    sheet = Worksheet(schema=1, exercise=id, name=name, seed=seed_of(name))
    ExerciseDialog(context, Path(path), sheet, exercises.load(id)).show()


def _loaded(path: Path) -> tuple[Worksheet, Exercise]:
    try:
        sheet = worksheet.read(path)
        return sheet, exercises.load(sheet.exercise)
    except (WorksheetError, ExerciseError) as fault:
        raise Unreadable(str(fault)) from None
