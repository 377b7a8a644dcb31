"""Taking an exam: plots of its runs, and beside them the choice of a cause, tries and the fix. The values of covered
knobs appear nowhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtGui import QHideEvent, QKeyEvent, QShowEvent
from PySide6.QtWidgets import QWidget

from gradstudio.core import files
from gradstudio.core.assignment import LETTERS, AssignmentError
from gradstudio.core.exam import Exam
from gradstudio.core.knobs import KnobError
from gradstudio.core.text import percent, plural
from gradstudio.gui.assignment import exam_training
from gradstudio.gui.assignment.exam_answers import ExamAnswers
from gradstudio.gui.assignment.exam_plots import ExamPlots
from gradstudio.gui.services.context import Context
from gradstudio.gui.services.jobs import Task
from gradstudio.gui.widgets.rows import in_row
from gradstudio.session.course import exam_solution
from gradstudio.session.course.evidence import Evidence
from gradstudio.session.course.exam_taking import Attempt
from gradstudio.session.course.grading import Grade, Grader
from gradstudio.session.course.questions import ENDED
from gradstudio.session.record.run import Run

TICK = 33  # ms between two redraws


class ExamPage(QWidget):
    """Shows one attempt, and writes its sheet after each action. It begins with the unchanged run."""

    next_asked = Signal()  # another random exam is wanted
    ended = Signal()  # it is graded, or was given up

    def __init__(self, context: Context, attempt: Attempt, path: Path | None, number: int = 0) -> None:
        """`path`: where the sheet is written; None for a random exam, which has a `number` instead."""
        super().__init__()
        self._context, self.attempt, self._path, self._number = context, attempt, path, number
        self._runs: dict[int, Run] = {}
        self._training: Task | None = None
        self._texts: list[str] = []  # of the try that trains
        self._place = 0  # of the try that trains
        self._left = False  # it is closed
        self._not_written = ""  # why the sheet differs from the page
        self._grading: Task | None = None
        self.over = False  # it is graded, or was given up
        self.plots, self.answers = ExamPlots(), ExamAnswers(self.exam)
        self.verdict = self.answers.verdict
        in_row((self.plots, 1), self.answers, of=self, margins=(12, 0, 6, 12), spacing=14)
        self.setFocusProxy(self.answers)
        self._connect()
        self._timer = QTimer(self)
        self._timer.timeout.connect(self._tick)
        self._timer.setInterval(TICK)
        self._show_state()
        if not attempt.sheet.tries:
            self._begin(0, [], attempt.run([]))

    @property
    def exam(self) -> Exam:
        return self.attempt.exam

    @property
    def random(self) -> bool:
        """Whether the exam was drawn for this page alone, so that no sheet is stored."""
        return self._path is None

    @property
    def busy(self) -> bool:
        """Whether a run is training."""
        return self._training is not None

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Space:
            event.accept()  # otherwise the window would start the hidden run
        else:
            super().keyPressEvent(event)

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        if not self._left:
            self._timer.start()

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        self._timer.stop()  # a random exam that is continued later

    def put_away(self) -> None:
        """Cancel work in progress, and close. The finished tries are on the sheet."""
        self._left = True
        self._timer.stop()
        if self._grading is not None:
            self._grading.cancel()
        if self._training is not None:
            self._training.cancel()
            self._training = None
        self.deleteLater()

    # ---- the user's actions

    def _train_try(self) -> None:
        texts = self.answers.changes.texts
        with self._showing_errors():
            self._begin(len(self.attempt.sheet.tries), texts, self.attempt.run(texts))

    def _begin(self, place: int, texts: list[str], run: Run) -> None:
        self._place, self._texts = place, texts
        self._runs[place] = run
        train = partial(exam_training.train_for, self._context.simulator, run)
        self._training = self._context.jobs.start("", train, self._on_trained, self._not_trained)
        self._show_state()

    def _say_cause(self, place: int) -> None:
        with self._showing_errors():
            self.attempt.diagnose(LETTERS[place])
            self._keep()

    def _hand_in(self, place: int) -> None:
        """Hand in a try and grade it, grade the one that is handed in, or cancel its grading."""
        if self._grading is not None:
            self._grading.cancel()
            self.answers.hand_in.setEnabled(False)  # until it has stopped
            return
        before = self.attempt.sheet
        with self._showing_errors():
            if before.fix < 1:
                self.attempt.hand_in(place)
                self._keep()
            if self._not_written:
                self.attempt.sheet = before  # to be handed in again, once that is possible
                self._show_state()
            else:
                self._grade()

    def _give_up(self) -> None:
        self.over = True
        self.verdict.give_up(self.exam)
        self._offer_next(None)

    def _look_at(self, place: int) -> None:
        """Show a try. An earlier one is trained again first."""
        if 0 <= place < len(self.attempt.sheet.tries) and not self.busy and place not in self._runs:
            self._begin(place, self.attempt.sheet.knobs(place), self.attempt.again(place))
        self._show_state()

    @contextmanager
    def _showing_errors(self) -> Iterator[None]:
        """Show an error in this context."""
        try:
            yield
        except (KnobError, AssignmentError) as fault:
            self.answers.say_fault(str(fault))

    # ---- results

    def _tick(self) -> None:
        run = self._runs.get(self._place if self.busy else self.answers.chosen_try)
        self.plots.show_run(run)
        if self.busy and run is not None:
            self.answers.show_progress(len(run.history), run.experiment.run.steps)

    def _not_trained(self, task: Task) -> None:
        self._context.jobs.tell(task)
        if not self._left:
            self._training = None
            self._show_state()

    def _on_trained(self, run: Run) -> None:
        if self._left:
            return
        self._training = None
        if run.status in ENDED and self._place == len(self.attempt.sheet.tries):
            self.attempt.add_try(run, self._texts)
            self._keep()
            self.answers.choose_try(self._place)
        self._show_state()

    def _grade(self) -> None:
        """Train the fix with the other seeds, beside the window, and show the result."""
        self._grading = self._context.jobs.start(
            "Grading the exam", self._grade_now, self._show_grade, self._not_graded
        )
        self._show_state()

    def _not_graded(self, task: Task) -> None:
        self._context.jobs.tell(task)
        if not self._left:
            self._grading = None
            self._show_state()

    def _grade_now(self, task: Task) -> Grade:
        return Grader(exam_training.of_task(self._context.simulator, task)).grade(self.attempt.sheet, self.exam)

    def _show_grade(self, grade: Grade) -> None:
        if self._left:
            return
        self._grading, self.over = None, True
        self.verdict.show_grade(grade, self.exam)
        self._offer_next(grade)

    def _offer_next(self, grade: Grade | None) -> None:
        self._show_state()
        if self.random:
            self.verdict.offer_next(exam_solution.in_one_line(self._number, self.attempt.sheet, self.exam, grade))
        self.answers.show_verdict()
        self.ended.emit()

    def _keep(self) -> None:
        self._not_written = ""
        try:
            if self._path is not None:
                files.write_whole(self._path, self.attempt.sheet.to_toml())
        except OSError as fault:
            self._not_written = f"{self._path} was not written: {files.reason(fault)}"
        self._show_state()

    def _show_state(self) -> None:
        sheet, answers = self.attempt.sheet, self.answers
        answers.say_fault(self._not_written)
        answers.show_tries([_in_words(place, each, self.attempt) for place, each in enumerate(sheet.tries)])
        answers.show_state(
            sheet, busy=self.busy, grading=self._grading is not None, over=self.over, left=self.attempt.tries_left
        )
        answers.give_up.setVisible(self.random and not self.over and sheet.fix < 0)
        answers.budget.setText(self._next_step())
        answers.budget.setVisible(bool(answers.budget.text()))

    def _next_step(self) -> str:
        """Return what is left, and the next thing to do."""
        sheet, attempt = self.attempt.sheet, self.attempt
        if sheet.fix > 0 and self._path is not None:
            return f"The answer sheet is {self._path}; give it to your teacher."
        if self.over:
            return ""
        if sheet.fix > 0:
            return "Your fix is trained with the other seeds …"
        left = (
            f"{plural(attempt.tries_left, 'try is', 'tries are')} left; each may change "
            f"{plural(self.exam.changes, 'knob', 'knobs')}."
        )
        if self.random:
            left += f" A try is healed with {percent(exam_solution.healthy_accuracy(self.exam))} right or more."
        if not sheet.tries:
            return f"{left} First the run is trained as it stands."
        if not sheet.diagnosis:
            return f"{left} Say the cause, which you can see in the plots."
        if len(sheet.tries) > 1:
            again = ", or try again" if attempt.tries_left else ""
            return f"{left} Hand in the try that heals it{again}."
        return f"{left} Change the knobs that heal it, and train."

    def _connect(self) -> None:
        answers = self.answers
        answers.trained.connect(self._train_try)
        answers.diagnosed.connect(self._say_cause)
        answers.handed_in.connect(self._hand_in)
        answers.try_chosen.connect(self._look_at)
        answers.changes.changed.connect(self._show_state)
        answers.cause_chosen.connect(self._show_state)
        answers.give_up.clicked.connect(self._give_up)
        self.verdict.next_asked.connect(self.next_asked)


def _in_words(place: int, evidence: Evidence, attempt: Attempt) -> str:
    ended = {"finished": "finished", "nonfinite": f"diverged at step {evidence.nonfinite_step}"}.get(
        evidence.outcome, "failed"
    )
    right = f", {percent(evidence.accuracy)} right" if isinstance(evidence.accuracy, float) else ""
    changed = ", ".join(text.replace("=", " = ", 1) for text in attempt.sheet.knobs(place)) or "as it stands"
    return f"{place}. {changed}: {ended}{right}"
