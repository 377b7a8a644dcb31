"""Starting an exercise or an exam, and continuing its sheet: a worksheet, or the answer sheet beside an exam."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

from gradstudio.core import exam as exams
from gradstudio.core import exercise as exercises
from gradstudio.core import files
from gradstudio.core.assignment import AssignmentError
from gradstudio.core.exam import Exam
from gradstudio.core.exercise import Exercise
from gradstudio.gui.assignment.exercise_page import ExercisePage
from gradstudio.gui.assignment.exercises_page import ExercisesPage
from gradstudio.gui.assignment.making_dialog import MakingDialog
from gradstudio.gui.services import file_choice
from gradstudio.gui.services.context import Context
from gradstudio.gui.services.jobs import JobError
from gradstudio.gui.widgets import popups
from gradstudio.session.course import exam_taking, worksheet
from gradstudio.session.course.exam_taking import AnswerSheet, Attempt
from gradstudio.session.course.worksheet import LONGEST_NAME, Worksheet, seed_of

ANSWERS = ".answers.toml"  # suffix of the answer sheet beside an exam

Content = TypeVar("Content")


def ask_exam(context: Context) -> None:
    _ask(context, "Take an exam", "Exams (*.exam)", open_exam)


def ask_worksheet(context: Context) -> None:
    _ask(context, "Worksheet", "Worksheets (*.toml)", open_worksheet)


def open_exam(context: Context, path: Path) -> None:
    """Open an exam, and continue the answer sheet beside it if there is one."""
    context.files.read(path, partial(_read, _exam), partial(_take, context, path))


def open_worksheet(context: Context, path: Path) -> None:
    context.files.read(path, partial(_read, _worksheet), partial(_go_on, context, path))


def is_worksheet(path: Path) -> bool:
    """Return whether a file is a worksheet, and not a preset, which also ends in .toml."""
    try:
        worksheet.read(path)
    except AssignmentError:
        return False
    return True


def show_exercises(context: Context) -> None:
    """Show the open worksheet, or else the choice of bundled exercises."""
    if (sheet := _open_sheet(context)) is not None:
        sheet.show_large()
        return
    page = ExercisesPage()

    def has_begun(id: str, name: str) -> None:
        context.close_large()
        begin_exercise(context, id, name)

    page.begun.connect(has_begun)
    page.worksheet_asked.connect(lambda: ask_worksheet(context))
    context.show_large(page, "Exercises", page.deleteLater, alone=True)


def begin_exercise(context: Context, id: str, name: str) -> None:
    """Open a student's worksheet of an exercise: the one in progress, or else a new one."""
    path = files.user_worksheets() / f"{id}-{seed_of(name)}-{files.file_name(name)}.toml"
    sheet = Worksheet(schema=1, exercise=id, name=name, seed=seed_of(name))
    if path.exists():
        try:
            sheet = worksheet.read(path)
        except AssignmentError as fault:
            context.message.show_error(str(fault))
            return
    _show_sheet(context, ExercisePage(context, path, sheet, exercises.load(id), draft=True))


def begin_exam(context: Context, exam: Exam, name: str, sheet: AnswerSheet | None, path: Path) -> None:
    """Take an exam, or continue its answer sheet. `path`: where that is written."""
    from gradstudio.gui.assignment.exam_page import ExamPage  # pyqtgraph, for which the first paint does not wait

    if not 0 < len(name.strip()) <= LONGEST_NAME:
        context.message.show_error(f"The name has {len(name):,} characters; allowed: 1 to {LONGEST_NAME}.")
        return
    try:
        attempt = Attempt(exam, name.strip(), sheet)
    except AssignmentError as fault:
        context.message.show_error(f"{path}: {fault}")
        return
    pause(context)
    page = ExamPage(context, attempt, path)
    context.show_large(page, f"{exam.title} ({attempt.sheet.name})", page.put_away, alone=True)


def make_exam(context: Context) -> None:
    pause(context)
    MakingDialog(context).open()


def pause(context: Context) -> None:
    """Pause the current run: an exam trains its own runs."""
    if context.controls.possible.is_trained_here and context.controls.possible.playing:
        context.controls.run_or_pause()


def _ask(context: Context, title: str, kinds: str, open: Callable[[Context, Path], None]) -> None:
    dialog = popups.file_dialog(context.parent, title, file_choice.folder(), f"{kinds};;All files (*)")
    dialog.fileSelected.connect(file_choice.remember)
    dialog.fileSelected.connect(lambda path: open(context, Path(path)))
    dialog.open()


def _read(load: Callable[[Path], Content], path: Path) -> Content:
    try:
        return load(path)
    except AssignmentError as fault:
        raise JobError(str(fault)) from None


def _exam(path: Path) -> tuple[Exam, AnswerSheet | None]:
    sheet = path.with_suffix(ANSWERS)
    return exams.read(path), exam_taking.read(sheet) if sheet.exists() else None


def _worksheet(path: Path) -> tuple[Worksheet, Exercise]:
    sheet = worksheet.read(path)
    return sheet, exercises.load(sheet.exercise)


def _take(context: Context, path: Path, loaded: tuple[Exam, AnswerSheet | None]) -> None:
    context.controls.file_opened.emit(str(path))
    exam, sheet = loaded
    begin = partial(begin_exam, context, exam, sheet=sheet, path=path.with_suffix(ANSWERS))
    if sheet is not None:
        begin(sheet.name)
        return
    dialog = popups.input_dialog(context.parent, "Take an exam", "Your name, as the answer sheet has it")
    dialog.textValueSelected.connect(begin)
    dialog.open()


def _go_on(context: Context, path: Path, loaded: tuple[Worksheet, Exercise]) -> None:
    context.controls.file_opened.emit(str(path))
    _show_sheet(context, ExercisePage(context, path, *loaded))


def _open_sheet(context: Context) -> ExercisePage | None:
    """Return the open worksheet."""
    return next((page for page in context.parent.findChildren(ExercisePage) if not page.left), None)


def _show_sheet(context: Context, page: ExercisePage) -> None:
    """Show a worksheet in place of the open one."""
    if (before := _open_sheet(context)) is not None:
        before.put_away()

    def tell(run: str) -> None:
        if not page.isVisible():
            told = f"The worksheet has its run “{run}”."
            context.message.show_news(told, action=("Worksheet", partial(show_exercises, context)))

    page.run_done.connect(tell)
    page.show_large()
