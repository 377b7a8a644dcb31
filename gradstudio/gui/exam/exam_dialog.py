"""Taking an exam: plots of its runs, the choice of a cause, tries and the fix. Values of covered knobs are nowhere."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from PySide6.QtCore import Qt, QTimer
from PySide6.QtGui import QCloseEvent
from PySide6.QtWidgets import (
    QHBoxLayout,
    QLabel,
    QListWidget,
    QListWidgetItem,
    QPushButton,
    QVBoxLayout,
    QWidget,
)

from gradstudio.core import files
from gradstudio.core.exam import LETTERS, Exam
from gradstudio.core.experiment import KNOBS
from gradstudio.core.knobs import KnobError
from gradstudio.core.text import percent, plural, strong
from gradstudio.gui.exam import whole_runs
from gradstudio.gui.exam.changes_editor import ChangesEditor
from gradstudio.gui.exam.exam_plots import ExamPlots
from gradstudio.gui.services.context import Context
from gradstudio.gui.services.tasks import Task
from gradstudio.gui.widgets.popups import TemporaryDialog
from gradstudio.session.course import exam_making, exam_taking
from gradstudio.session.course.exam_taking import Attempt
from gradstudio.session.course.grading import Grade
from gradstudio.session.course.worksheet import Evidence, WorksheetError
from gradstudio.session.record.run import Run
from gradstudio.session.running.worker import Stop, Worker

TICK = 33  # ms between two pictures
PATIENCE = 1.0  # seconds for a step to end when the dialog closes
SIDE = 400  # px of the column beside the plots
CAUSES = 150  # px of their list, at least


class ExamDialog(TemporaryDialog):
    """Holds one attempt, and writes its sheet after each thing that was done."""

    def __init__(self, context: Context, attempt: Attempt, path: Path) -> None:
        super().__init__(context.parent, f"{attempt.exam.title} — GradStudio")
        self._context, self.attempt, self._path = context, attempt, path
        self._runs: dict[int, Run] = {}
        self._worker: Worker | None = None
        self._texts: list[str] = []  # of the try that trains
        self._place = 0  # of the try that trains
        self._left = False  # it is closed
        self._not_written = ""  # why the sheet is not as it is here
        self._grading: Task | None = None
        self._was_graded = False
        self.plots = ExamPlots()
        self.about, self.budget, self.problem, self.verdict = QLabel(), QLabel(), QLabel(), QLabel()
        self.causes, self.tries = QListWidget(), QListWidget()
        self.changes = ChangesEditor(
            [name for name in KNOBS if not self.exam.is_locked(name)], KNOBS.__getitem__,
            lambda name: KNOBS[name].default,  # which says nothing of the value in force
            self.exam.allowed,
        )  # fmt: skip
        self.diagnose, self.train, self.hand_in = (
            QPushButton("This is the cause"), QPushButton("Train it as it stands"), QPushButton("Hand in this try")
        )  # fmt: skip
        self._trying: tuple[QWidget, ...] = ()
        self._lay_out()
        self._connect()
        self._show_state()
        self._timer = QTimer(self)
        self._timer.timeout.connect(self._tick)
        self._timer.start(TICK)
        self.finished.connect(self._leave)

    @property
    def exam(self) -> Exam:
        return self.attempt.exam

    @property
    def busy(self) -> bool:
        """Whether a run trains."""
        return self._worker is not None

    # ---- what a person does

    def _train_try(self) -> None:
        texts = self.changes.texts if self.attempt.sheet.tries else []
        try:
            run = self.attempt.run(texts)
        except KnobError as fault:
            self.problem.setText(str(fault))
            return
        self._texts, self._place = texts, len(self.attempt.sheet.tries)
        self._begin(run)

    def _begin(self, run: Run) -> None:
        self._runs[self._place] = run
        self._worker = Worker(run)
        self._worker.start()
        self._show_state()

    def _say_cause(self) -> None:
        row = self.causes.currentRow()
        try:
            self.attempt.diagnose(LETTERS[row] if row >= 0 else "")
        except WorksheetError as fault:
            self.problem.setText("Choose one of the causes first." if row < 0 else str(fault))
            return
        self._keep()

    def _hand_in(self) -> None:
        """Hand in the chosen try and grade it, grade the one that is handed in, or leave off grading it."""
        if self._grading is not None:
            self._grading.cancel()
            self.hand_in.setEnabled(False)  # until it has left off
            return
        if self.attempt.sheet.fix > 0:
            self._grade()
            return
        before = self.attempt.sheet
        try:
            self.attempt.hand_in(self.tries.currentRow())
        except WorksheetError as fault:
            text = str(fault)
            self.problem.setText(text[0].upper() + text[1:] + ".")
            return
        self._keep()
        if self._not_written:
            self.attempt.sheet = before  # to be handed in again, once it can be
            self._show_state()
            return
        self._grade()

    def _look_at(self, place: int) -> None:
        """Show a try. One of an earlier day is trained again first."""
        if place < 0 or self.busy or place in self._runs:
            return
        self._place, self._texts = place, self.attempt.sheet.knobs(place)
        self._begin(exam_making.of_seed(self.exam, self.exam.allowed(self._texts)))

    # ---- what comes of it

    def _tick(self) -> None:
        self._follow()
        if self._grading is not None and self._grading.over:  # it was cancelled, or it failed
            self._grading = None
            self.verdict.setText("")
            self._show_state()
        row = self.tries.currentRow()
        place = self._place if self.busy else row
        self.plots.show_run(self._runs.get(place))

    def _follow(self) -> None:
        worker = self._worker
        if worker is None or worker.is_alive():
            return
        self._worker, run = None, worker.record
        if run.status not in ("finished", "nonfinite", "failed"):
            return
        if self._place == len(self.attempt.sheet.tries):
            self.attempt.made(run, self._texts)
            self._keep()
            self.tries.setCurrentRow(self._place)
        self._show_state()

    def _grade(self) -> None:
        """Train the fix with the other seeds, beside the window, and say what came of it."""
        self.verdict.setText("Your fix is trained with the other seeds …")
        self._grading = task = self._context.tasks.begin("Grading the exam")
        self._show_state()
        self._context.jobs.read(self._path, partial(self._graded, task), self._show_grade, task)

    def _graded(self, task: Task, _: Path) -> Grade:
        def train(run: Run) -> None:
            whole_runs.train(run, lambda: task.cancelled)
            task.check()

        return exam_taking.grade(self.attempt.sheet, self.exam, train)

    def _show_grade(self, grade: Grade) -> None:
        if self._left:
            return
        self._grading, self._was_graded = None, True
        lines = [strong(f"{grade.score} of {grade.most} points") + ("" if grade.verified else f": {grade.reason}")]
        for each in grade.answers:
            right = "" if each.points == each.question.points else f"<br>Right: {each.right}"
            lines.append(f"{each.question.text}, {each.points} of {each.question.points}: {each.answer}{right}")
        self.verdict.setText("<p>" + "</p><p>".join(lines) + "</p>")
        self._show_state()

    def _keep(self) -> None:
        try:
            files.write_whole(self._path, self.attempt.sheet.to_toml())
            self._not_written = ""
        except OSError as fault:
            self._not_written = f"{self._path} was not written: {files.reason(fault)}"
        self._show_state()

    def _show_state(self) -> None:
        sheet, exam = self.attempt.sheet, self.exam
        self.problem.setText(self._not_written)
        handed_in, looked = sheet.fix > 0, bool(sheet.tries)
        said = f" Your diagnosis is {sheet.diagnosis}." if sheet.diagnosis else ""
        self.budget.setText(
            f"The answer sheet is {self._path}; give it to your teacher." if handed_in
            else f"{plural(self.attempt.left, 'try is', 'tries are')} left; each may change "
            f"{plural(exam.changes, 'knob', 'knobs')}.{said} {self._next_step()}"
        )  # fmt: skip
        self.train.setText(
            "Training …" if self.busy else "Train with these changes" if looked else "Train it as it stands"
        )
        self.train.setEnabled(not self.busy and not handed_in and (not looked or bool(self.changes.texts)))
        self.diagnose.setEnabled(looked and not sheet.diagnosis)
        self.causes.setEnabled(not sheet.diagnosis)
        self.changes.allow(looked and not handed_in)
        self._show_handing_in(handed_in)
        self._fill(self.tries, [_told(place, each, self.attempt) for place, each in enumerate(sheet.tries)])
        self.verdict.setVisible(bool(self.verdict.text()))
        for part in self._trying:
            part.setVisible(not handed_in)  # the verdict needs the room

    def _show_handing_in(self, handed_in: bool) -> None:
        sheet, grading = self.attempt.sheet, self._grading is not None
        ready = handed_in or (len(sheet.tries) > 1 and bool(sheet.diagnosis))
        self.hand_in.setText(
            "Hand in this try" if not handed_in else "Cancel grading" if grading
            else "Graded" if self._was_graded else "Grade it"
        )  # fmt: skip
        self.hand_in.setEnabled(grading or (ready and not self.busy and not self._was_graded))

    def _next_step(self) -> str:
        """Return what is to be done next, as a sentence."""
        if self.busy:
            return "Wait for the end of this run."
        if not self.attempt.sheet.tries:
            return "First train it as it stands."
        if not self.attempt.sheet.diagnosis:
            return "Choose the cause; the first answer counts."
        if len(self.attempt.sheet.tries) > 1:
            return "Choose the try that heals it and hand it in" + (", or try again." if self.attempt.left else ".")
        return "Change the knobs that heal it, and train."

    @staticmethod
    def _fill(shown: QListWidget, texts: list[str]) -> None:
        row, had = shown.currentRow(), [shown.item(place).text() for place in range(shown.count())]
        if texts == had:
            return
        shown.clear()
        shown.addItems(texts)
        shown.setCurrentRow(min(row, len(texts) - 1) if row >= 0 else len(texts) - 1)

    def closeEvent(self, event: QCloseEvent) -> None:
        self._leave()
        super().closeEvent(event)

    def _leave(self, _: int = 0) -> None:
        """End the training; the tries that have ended are on the sheet."""
        self._left = True
        self._timer.stop()
        if self._grading is not None:
            self._grading.cancel()
        if self._worker is not None:
            self._worker.send(Stop(leaving=True))
            self._worker.join(PATIENCE)
            self._worker = None

    # ---- how it is laid out

    def _lay_out(self) -> None:
        exam = self.exam
        self.about.setText(exam.text)
        for label in (self.about, self.budget, self.problem, self.verdict):
            label.setWordWrap(True)
            label.setTextFormat(Qt.TextFormat.RichText if label is self.verdict else Qt.TextFormat.PlainText)
        self.problem.setProperty("role", "error")
        self.about.setProperty("role", "dim")
        for place, text in enumerate(exam.choices):
            self.causes.addItem(QListWidgetItem(f"{LETTERS[place]}. {text}"))
        self.causes.setCurrentRow(-1)
        self.causes.setMinimumHeight(CAUSES)
        for listed, name, about in (
            (self.causes, "Causes", "The causes to choose from"),
            (self.tries, "Tries", "The runs that were made; the one that is chosen is shown"),
        ):
            listed.setAccessibleName(name)
            listed.setAccessibleDescription(about)
            listed.setWordWrap(True)
        self.changes.name_parts(
            "Knob to change", "Every knob but the locked ones; what it is set to is covered",
            "The knobs that the next try changes",
        )  # fmt: skip
        side = QVBoxLayout()
        side.setSpacing(6)
        heading = _heading("What the next try changes")
        for part, share in (
            (self.about, 0), (_heading("What is the cause?"), 0), (self.causes, 6), (self.diagnose, 0),
            (heading, 0), (self.changes, 3), (self.train, 0),
            (_heading("Tries"), 0), (self.tries, 5), (self.hand_in, 0), (self.verdict, 0), (self.budget, 0),
            (self.problem, 0),
        ):  # fmt: skip
            side.addWidget(part, share)
        self._trying = (heading, self.changes, self.train)
        beside = QWidget()
        beside.setLayout(side)
        beside.setFixedWidth(SIDE)
        whole = QHBoxLayout(self)
        whole.addWidget(self.plots, 1)
        whole.addWidget(beside)
        room = self._context.parent.size()
        self.resize(max(min(room.width() - 40, 1400), 900), max(min(room.height() - 40, 900), 600))

    def _connect(self) -> None:
        self.train.clicked.connect(self._train_try)
        self.diagnose.clicked.connect(self._say_cause)
        self.hand_in.clicked.connect(self._hand_in)
        self.changes.changed.connect(self._show_state)
        self.changes.wrong.connect(self.problem.setText)
        self.tries.currentRowChanged.connect(self._look_at)
        for button in (self.train, self.diagnose, self.hand_in):
            button.setAutoDefault(False)


def _heading(text: str) -> QLabel:
    label = QLabel(text)
    label.setProperty("role", "title")
    return label


def _told(place: int, made: Evidence, attempt: Attempt) -> str:
    ended = {"finished": "finished", "nonfinite": f"diverged at step {made.nonfinite_step}"}.get(made.outcome, "failed")
    right = f", {percent(made.accuracy)} right" if isinstance(made.accuracy, float) else ""
    changed = ", ".join(attempt.sheet.knobs(place)) or "as it stands"
    return f"{place}. {changed}: {ended}{right}"
