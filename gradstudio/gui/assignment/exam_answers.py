"""The column beside the plots of an exam: the questions, from top to bottom, with the next step highlighted."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QButtonGroup, QLabel, QListWidget, QPushButton, QScrollArea, QWidget

from gradstudio.core.assignment import LETTERS
from gradstudio.core.exam import Exam
from gradstudio.core.experiment import KNOBS
from gradstudio.core.text import plural
from gradstudio.gui.assignment.changes_editor import ChangesEditor
from gradstudio.gui.assignment.exam_verdict import ExamVerdict
from gradstudio.gui.theme import theme
from gradstudio.gui.widgets.choice import Choice
from gradstudio.gui.widgets.plain_grounds import scroll_area
from gradstudio.gui.widgets.roles import role_label, set_role
from gradstudio.gui.widgets.rows import NO_MARGINS, in_column
from gradstudio.session.course.exam_taking import AnswerSheet

WIDTH = 380  # px of the column at normal text


class ExamAnswers(QWidget):
    """Shows the answers so far, and emits new ones."""

    cause_chosen = Signal()  # not yet submitted
    diagnosed = Signal(int)  # index of the cause
    trained = Signal()  # a try with the changes
    try_chosen = Signal(int)
    handed_in = Signal(int)  # index of the try

    def __init__(self, exam: Exam) -> None:
        super().__init__()
        self._exam = exam
        self.about, self.budget = role_label(exam.text, "dim"), role_label("", "dim")
        self.problem = role_label("", "error")
        self.once = role_label("The first answer counts.", "dim")
        self.said = QLabel()
        self.causes = [Choice(f"{LETTERS[place]}. {text}") for place, text in enumerate(exam.choices)]
        self._group = QButtonGroup(self)
        self.changes = ChangesEditor(
            [name for name in KNOBS if not exam.is_locked(name)], KNOBS.__getitem__,
            lambda name: KNOBS[name].default,  # which does not show the value in force
            exam.parse_changes,
        )  # fmt: skip
        self.tries = _Tries()
        self.diagnose, self.train, self.hand_in = QPushButton("This is the cause"), QPushButton(), QPushButton()
        self.give_up = QPushButton("Show the answer")
        self.verdict = ExamVerdict()
        self._heads = [role_label(text, "title") for text in ("What is the cause?", "What heals it?", "Tries")]
        self.setFocusProxy(self.causes[0])
        self._lay_out()
        self._connect()
        theme.changed.connect(self._fit)
        self._fit()

    @property
    def chosen_cause(self) -> int:
        """Index of the chosen cause, -1 without one."""
        return self._group.checkedId()

    @property
    def chosen_try(self) -> int:
        return self.tries.currentRow()

    def choose_try(self, place: int) -> None:
        self.tries.setCurrentRow(place)

    def say_fault(self, text: str) -> None:
        """Show an error; "" for none."""
        self.problem.setText(text)
        self.problem.setVisible(bool(text))

    def show_progress(self, step: int, steps: int) -> None:
        """Show the progress of the training run."""
        self.train.setText(f"Training, step {step:,} of {steps:,} …")

    def show_tries(self, texts: list[str]) -> None:
        self.tries.fill(texts)

    def show_verdict(self) -> None:
        """Scroll to the result."""
        self.area.verticalScrollBar().setValue(0)

    def show_state(self, sheet: AnswerSheet, *, busy: bool, grading: bool, over: bool, left: int) -> None:
        """Show the answers, and enable what is possible now. `left`: number of tries left."""
        handed_in, looked, texts = sheet.fix > 0 or over, bool(sheet.tries), self.changes.texts
        diagnosed = bool(sheet.diagnosis)
        for part in (*self.causes, self.once, self.diagnose):
            part.setVisible(not diagnosed and not over)
        self.said.setVisible(diagnosed and not over)
        for part in (self.about, self._heads[0]):
            part.setVisible(not over)
        if diagnosed:
            self.said.setText(f"You said: {self.causes[LETTERS.index(sheet.diagnosis)].accessibleName()}")
        self.diagnose.setEnabled(looked and self.chosen_cause >= 0)
        tried = any(set(texts) == set(sheet.knobs(place)) for place in range(len(sheet.tries)))
        for part in (self._heads[1], self.changes, self.train):
            part.setVisible(not handed_in)
        self.changes.setEnabled(looked and bool(left))
        self.train.setEnabled(not busy and looked and bool(texts) and not tried and bool(left))
        if not busy:
            self.train.setText(f"Train with {plural(len(texts), 'change', 'changes')}" if texts else "Train")
        self._show_handing_in(sheet, busy=busy, grading=grading, over=over)
        self._show_next(sheet, pending=self.train.isEnabled(), waiting=busy or grading)

    # ---- inside

    def _show_handing_in(self, sheet: AnswerSheet, *, busy: bool, grading: bool, over: bool) -> None:
        place = self.chosen_try
        self.hand_in.setVisible(not over and len(sheet.tries) > 1)
        if grading:
            self.hand_in.setText("Cancel grading")
        elif sheet.fix > 0:
            self.hand_in.setText("Grade it")
        else:
            self.hand_in.setText(f"Hand in try {place}" if place > 0 else "Hand in a try")
        can = place > 0 and bool(sheet.diagnosis)
        self.hand_in.setEnabled(grading or (not busy and (sheet.fix > 0 or can)))
        self.hand_in.setToolTip(
            "Say the cause first" if not sheet.diagnosis else
            "Choose a try with a change" if place <= 0 else
            "Trains this try again with the other seeds, and gives the points"
        )  # fmt: skip

    def _show_next(self, sheet: AnswerSheet, *, pending: bool, waiting: bool) -> None:
        """Highlight only the next step, and nothing while a run trains."""
        heals = self.chosen_try > 0 and sheet.tries[self.chosen_try].outcome == "finished"
        if not sheet.diagnosis and (self.chosen_cause >= 0 or not pending):
            step = self.diagnose
        elif pending or not heals:
            step = self.train
        else:
            step = self.hand_in
        for button in (self.diagnose, self.train, self.hand_in):
            set_role(button, "primary" if button is step and button.isEnabled() and not waiting else "")

    def _connect(self) -> None:
        self._group.idClicked.connect(lambda _: self.cause_chosen.emit())
        self.diagnose.clicked.connect(lambda: self.diagnosed.emit(self.chosen_cause))
        self.train.clicked.connect(self.trained)
        self.hand_in.clicked.connect(lambda: self.handed_in.emit(self.chosen_try))
        self.tries.currentRowChanged.connect(self.try_chosen)
        self.changes.wrong.connect(self.say_fault)

    def _fit(self) -> None:
        self.setFixedWidth(round(WIDTH * theme.zoom))

    def _lay_out(self) -> None:
        for label in (self.about, self.budget, self.problem, self.said):
            label.setWordWrap(True)
            label.setTextFormat(Qt.TextFormat.PlainText)
        self.changes.name_parts("Knob to change", "every knob but the locked ones; what it is set to is covered")
        self.tries.setAccessibleName("Tries")
        self.tries.setAccessibleDescription("The runs that were made; the one that is chosen is shown")
        self.diagnose.setToolTip("Takes down your answer; the first one counts")
        self.train.setToolTip("Trains the run again with these changes, which takes one of your tries")
        self.give_up.setProperty("role", "flat")
        self.give_up.setToolTip("Ends the game, and shows the cause and a fix")
        inside = QWidget()
        column = in_column(of=inside, margins=(0, 0, 10, 8), spacing=7)
        cause, heal, tries = self._heads
        for place, choice in enumerate(self.causes):
            choice.setToolTip("A cause to choose; nothing is said before you press the button below")
            self._group.addButton(choice, place)
        for part in (self.verdict, self.about, self.budget, self.problem, cause, self.once, *self.causes, self.said,
                     self.diagnose, heal, self.changes, self.train, tries, self.tries, self.hand_in):  # fmt: skip
            column.addWidget(part)
        for head in self._heads:
            head.setContentsMargins(0, 8, 0, 0)
        column.addWidget(self.give_up, 0, Qt.AlignmentFlag.AlignLeft)
        column.addStretch(1)
        self.area: QScrollArea = scroll_area(inside, "Questions of the exam")
        in_column(self.area, of=self, margins=NO_MARGINS)
        theme.apply_style(inside)


class _Tries(QListWidget):
    """A list as high as its rows."""

    def __init__(self) -> None:
        super().__init__()
        self.setWordWrap(True)
        self.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)

    def fill(self, texts: list[str]) -> None:
        row, had = self.currentRow(), [self.item(place).text() for place in range(self.count())]
        if texts == had:
            return
        self.blockSignals(True)
        self.clear()
        self.addItems(texts)
        self.setCurrentRow(min(row, len(texts) - 1) if row >= 0 else len(texts) - 1)
        self.blockSignals(False)
        self._fit()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit()

    def _fit(self) -> None:
        rows = sum(self.sizeHintForRow(row) for row in range(self.count()))
        self.setFixedHeight(max(rows, self.fontMetrics().height()) + 2 * self.frameWidth() + 4)
