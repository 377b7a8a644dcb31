"""Beginning an exercise, or going on with its worksheet."""

from __future__ import annotations

from pathlib import Path

from gradstudio.core import exercise as exercises
from gradstudio.core import files
from gradstudio.core.exercise import Exercise, ExerciseError
from gradstudio.gui.exercise.exercise_dialog import ExerciseDialog
from gradstudio.gui.exercise.exercises_page import ExercisesPage
from gradstudio.gui.services import file_choice
from gradstudio.gui.services.background_jobs import Unreadable
from gradstudio.gui.services.context import Context
from gradstudio.gui.widgets import popups
from gradstudio.session.course import worksheet
from gradstudio.session.course.worksheet import Worksheet, WorksheetError, seed_of


def show_exercises(context: Context) -> None:
    """Show the bundled exercises, to choose one and to begin."""
    page = ExercisesPage()

    def begun(id: str, name: str) -> None:
        context.close_large()
        begin(context, id, name)

    page.begun.connect(begun)
    page.worksheet_asked.connect(lambda: ask_worksheet(context))
    context.show_large(page, "Exercises", page.deleteLater, alone=True)


def begin(context: Context, id: str, name: str) -> None:
    """Open somebody's worksheet of an exercise: the one that was begun and is not handed in, or else a new one."""
    path = files.user_worksheets() / f"{id}-{seed_of(name)}-{files.file_name(name)}.toml"
    sheet = Worksheet(schema=1, exercise=id, name=name, seed=seed_of(name))
    if path.exists():
        try:
            sheet = worksheet.read(path)
        except WorksheetError as fault:
            context.message.show_error(str(fault))
            return
    ExerciseDialog(context, path, sheet, exercises.load(id), draft=True).show()


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


def _loaded(path: Path) -> tuple[Worksheet, Exercise]:
    try:
        sheet = worksheet.read(path)
        return sheet, exercises.load(sheet.exercise)
    except (WorksheetError, ExerciseError) as fault:
        raise Unreadable(str(fault)) from None
