"""The result of an exam: the points, the right answers, and what the best attempt would have needed."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QApplication, QFrame, QHBoxLayout, QLabel, QLineEdit, QPushButton, QVBoxLayout, QWidget

from gradstudio.core.exam import Exam
from gradstudio.gui.theme import theme
from gradstudio.gui.widgets.roles import role_label, set_role
from gradstudio.gui.widgets.rows import in_column
from gradstudio.session.course import exam_solution
from gradstudio.session.course.grading import DIAGNOSIS, Grade, GradedAnswer

LARGE = 1.7  # times the normal text size: the points


class ExamVerdict(QFrame):
    """Empty until `show_grade` or `give_up`. A random exam has a line to share and a next one."""

    next_asked = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("card")
        self.points = QLabel()
        self.answers: list[QLabel] = []
        self.line = QLineEdit()
        self.copy, self.next = QPushButton("Copy result"), QPushButton("Break another run")
        self._column = in_column(self.points, of=self, margins=(14, 12, 14, 12), spacing=8)
        self._lay_out_foot()
        theme.changed.connect(self._restyle)
        self.hide()

    @property
    def text(self) -> str:
        """The whole text of the verdict."""
        return "\n".join(label.text() for label in (self.points, *self.answers))

    def show_grade(self, grade: Grade, exam: Exam) -> None:
        """Show the points of each answer, and the solution."""
        self._begin(f"{grade.score} of {grade.most} points" if grade.verified else f"No points: {grade.reason}")
        for each in grade.answers:
            self._tell(_describe(each), "good" if each.points == each.question.points else "over")
        self._solve(exam, known=any(each.points == DIAGNOSIS for each in grade.answers[:1]))

    def give_up(self, exam: Exam) -> None:
        """Show the solution without points."""
        self._begin("Given up")
        self._solve(exam, known=False)

    def offer_next(self, line: str) -> None:
        """Offer a line to share, and the next random exam."""
        self.line.setText(line)
        self.line.setCursorPosition(0)
        self.foot.show()
        self.next.setFocus()

    def show_making(self, told: str) -> None:
        """Show the progress of making the next exam; "" while none is made."""
        self.making.setText(told)
        self.making.setVisible(bool(told))
        self.next.setEnabled(not told)
        set_role(self.next, "" if told else "primary")

    # ---- inside

    def _solve(self, exam: Exam, *, known: bool) -> None:
        """Show the solution; `known`: the cause was submitted."""
        answer = exam_solution.solution(exam)
        if not known:
            self._tell(f"The cause: {answer.cause}")
        if answer.broke:
            self._tell(f"What was set: {', '.join(answer.broke)}.")
        self._tell(f"The best would have needed {answer.best}")
        self.show()

    def _begin(self, points: str) -> None:
        self.points.setText(points)
        self._restyle()

    def _tell(self, text: str, role: str = "") -> None:
        label = role_label(text, role)
        label.setWordWrap(True)
        label.setTextFormat(Qt.TextFormat.PlainText)
        label.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self._column.insertWidget(self._column.count() - 1, label)
        self.answers.append(label)

    def _restyle(self) -> None:
        self.points.setFont(theme.font(LARGE))
        self.points.setWordWrap(True)

    def _copy(self) -> None:
        QApplication.clipboard().setText(self.line.text())
        self.copy.setText("Copied")

    def _lay_out_foot(self) -> None:
        self.line.setReadOnly(True)
        self.line.setAccessibleName("Result to pass on")
        self.line.setToolTip("One line to pass on; it does not tell the cause")
        self.copy.setToolTip("Puts this line on the clipboard")
        self.next.setToolTip("Makes another random run with a hidden fault, in some seconds")
        set_role(self.next, "primary")
        self.copy.clicked.connect(self._copy)
        self.next.clicked.connect(self.next_asked)
        self.foot = QWidget()
        rows = QVBoxLayout(self.foot)
        rows.setContentsMargins(0, 4, 0, 0)
        buttons = QHBoxLayout()
        for button in (self.copy, self.next):
            button.setAutoDefault(False)
            buttons.addWidget(button)
        self.making = role_label("", "dim")
        self.making.setWordWrap(True)
        for part in (self.line, self.making):
            rows.addWidget(part)
        rows.addLayout(buttons)
        self._column.addWidget(self.foot)
        self.foot.hide()


def _describe(each: GradedAnswer) -> str:
    full = each.points == each.question.points
    mark = "✓" if full else "✗"
    return f"{mark} {each.question.text}, {each.points} of {each.question.points}: {each.answer}"
