"""Opening an exam, whose answer sheet lies beside it, making one of the knobs as they are set, and showing either."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from gradstudio.core import exam as exams
from gradstudio.core.exam import Exam, ExamError
from gradstudio.gui.exam.making_dialog import MakingDialog
from gradstudio.gui.services import file_choice
from gradstudio.gui.services.background_jobs import Unreadable
from gradstudio.gui.services.context import Context
from gradstudio.gui.widgets import popups
from gradstudio.session.course import exam_taking
from gradstudio.session.course.exam_taking import AnswerSheet, Attempt
from gradstudio.session.course.worksheet import LONGEST_NAME, WorksheetError

Loaded = tuple[Exam, AnswerSheet | None, Path]


def ask_exam(context: Context) -> None:
    """Ask which exam to take."""
    dialog = popups.file_dialog(context.parent, "Take an exam", file_choice.folder(), "Exams (*.exam);;All files (*)")
    dialog.fileSelected.connect(file_choice.remember)
    dialog.fileSelected.connect(lambda path: open_exam(context, Path(path)))
    dialog.open()


def open_exam(context: Context, path: Path) -> None:
    """Open an exam, and go on with the answer sheet beside it where there is one."""
    context.jobs.read(path, _loaded, partial(_take, context, path))


def make_exam(context: Context) -> None:
    pause(context)
    MakingDialog(context).open()


def pause(context: Context) -> None:
    """Let the run that goes wait: an exam trains runs of its own."""
    if context.controls.led_here and context.controls.playing:
        context.controls.run_or_pause()


def _loaded(path: Path) -> Loaded:
    try:
        sheet = path.with_suffix(".answers.toml")
        return exams.read(path), exam_taking.read(sheet) if sheet.exists() else None, sheet
    except (ExamError, WorksheetError) as fault:
        raise Unreadable(str(fault)) from None


def _take(context: Context, opened: Path, loaded: Loaded) -> None:
    context.controls.file_opened.emit(str(opened))
    exam, sheet, path = loaded
    if sheet is not None:
        begin(context, exam, sheet.name, sheet, path)
        return
    dialog = popups.input_dialog(context.parent, "Take an exam", "Your name, as the answer sheet has it")
    dialog.textValueSelected.connect(lambda name: begin(context, exam, name, None, path))
    dialog.open()


def begin(context: Context, exam: Exam, name: str, sheet: AnswerSheet | None, path: Path) -> None:
    from gradstudio.gui.exam.exam_page import ExamPage  # pyqtgraph, for which the first paint does not wait

    if not 0 < len(name.strip()) <= LONGEST_NAME:
        context.message.show_error(f"The name has {len(name):,} characters; allowed: 1 to {LONGEST_NAME}.")
        return
    try:
        attempt = Attempt(exam, name.strip(), sheet)
    except WorksheetError as fault:
        context.message.show_error(f"{path}: {fault}")
        return
    pause(context)
    page = ExamPage(context, attempt, path)

    def put_away() -> None:
        page.leave()
        page.deleteLater()

    context.show_large(page, f"{exam.title} ({attempt.sheet.name})", put_away, alone=True)
