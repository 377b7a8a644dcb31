"""Filling in a worksheet: its runs are loaded with one click and ticked once they exist, its questions are answered,
and it is handed in."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtGui import QHideEvent
from PySide6.QtWidgets import (
    QComboBox,
    QFrame,
    QGridLayout,
    QHBoxLayout,
    QLabel,
    QLineEdit,
    QPlainTextEdit,
    QPushButton,
    QScrollArea,
    QVBoxLayout,
    QWidget,
)

from gradstudio.core import files
from gradstudio.core.assignment import AssignmentError
from gradstudio.core.exercise import Exercise, ExerciseRun, Question
from gradstudio.core.text import plural
from gradstudio.gui.services import file_choice
from gradstudio.gui.services.context import Context
from gradstudio.gui.services.message_bar import OFFER_STAYS
from gradstudio.gui.theme import theme
from gradstudio.gui.widgets.roles import role_label, set_role
from gradstudio.gui.widgets.rows import in_column
from gradstudio.session.course import worksheet
from gradstudio.session.course.worksheet import LONGEST_ANSWER, Worksheet, why_not

if TYPE_CHECKING:
    from gradstudio.session.library.store import Library
    from gradstudio.session.record.run import Run

LOOK = 500  # ms between two checks of the run that is shown
SIDE = 12  # px beside the page
ANSWER = 72  # px of a text graded by a teacher
NOT_YET = "not yet"

Answer = QComboBox | QLineEdit | QPlainTextEdit
HandedIn = tuple[Worksheet, dict[str, "Run"], dict[str, str]]  # with its runs, and their memory use


class ExercisePage(QWidget):
    """A page in the middle of the window. The worksheet is written soon after each change, and when the page is left;
    the page keeps its content."""

    run_done = Signal(str)  # name of a run that the exercise asks for

    def __init__(
        self, context: Context, path: Path, sheet: Worksheet, exercise: Exercise, *, draft: bool = False
    ) -> None:
        """`draft`: whether the user has not chosen the path, so that it is asked for when handing in."""
        super().__init__()
        self._draft = draft
        self._context, self.path, self.sheet, self.exercise = context, path, sheet, exercise
        self.states: dict[str, QLabel] = {}
        self.loads: dict[str, QPushButton] = {}
        self.answers: dict[str, Answer] = {}
        self.told, self.problem = role_label("", "dim"), role_label("", "error")
        self.hand_in, self.save, self.close_sheet = (
            QPushButton("Hand in"), QPushButton("Save as…"), QPushButton("Close worksheet")
        )  # fmt: skip
        self.left = False  # it is closed
        self._unwritten = True
        self._lay_out()
        self.setFocusProxy(next(iter(self.loads.values())))
        self._timer = QTimer(self)
        self._timer.timeout.connect(self._look)
        self._timer.start(LOOK)
        self._look()

    def show_large(self) -> None:
        """Show the page in place of the plots."""
        self._context.show_large(self, f"{self.exercise.title}: {self.sheet.name}")

    def put_away(self) -> None:
        """Write pending changes, and close the page."""
        self.left = True
        self._timer.stop()
        self._context.close_large()
        self.deleteLater()

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        if self._unwritten:
            self._keep(self.sheet)

    def take(self, name: str, text: str) -> None:
        """Store an answer."""
        text = text[:LONGEST_ANSWER]
        if self.sheet.answers.get(name, "") != text:
            answers = {**self.sheet.answers, name: text}
            self.sheet, self._unwritten = self.sheet.model_copy(update={"answers": answers, "handed_in": None}), True

    # ---- inside

    def _load(self, asked: ExerciseRun) -> None:
        """Load the initial knobs of a run of the exercise."""
        preset = asked.beginning()
        self._context.controls.load(preset.model_copy(update={"experiment": asked.starts_with(self.sheet.seed)}))
        self._context.message.show_news(_about(asked), stay=OFFER_STAYS)

    def _look(self) -> None:
        """Tick the run that is shown, if the exercise asks for it."""
        run = self._context.simulator.run
        for asked in self.exercise.run:
            if run.over and self.sheet.runs.get(asked.name) != run.id and not why_not(run, asked, self.sheet.seed):
                runs = {**self.sheet.runs, asked.name: run.id}
                self.sheet, self._unwritten = self.sheet.model_copy(update={"runs": runs, "handed_in": None}), True
                self.run_done.emit(asked.name)
        if self._unwritten:
            self._keep(self.sheet)
        for name, label in self.states.items():
            label.setText("✓" if self.sheet.runs.get(name) else NOT_YET)
            label.setAccessibleName(f"{name}: {'done' if self.sheet.runs.get(name) else NOT_YET}")
        missing = [asked.name for asked in self.exercise.run if not self.sheet.runs.get(asked.name)]
        for name, button in self.loads.items():
            set_role(button, "primary" if missing[:1] == [name] else "")
        self.hand_in.setEnabled(not missing)
        self.hand_in.setText("Hand in…" if self._draft else "Hand in")
        set_role(self.hand_in, "" if missing else "primary")
        self.hand_in.setToolTip(
            f"{plural(len(missing), 'run is', 'runs are')} missing"
            if missing
            else "Writes the worksheet with its curves"
        )

    def _ask_where(self, then: Callable[[], object] = lambda: None) -> None:
        """Ask for a new location of the worksheet, and write it there; `then` is called afterwards."""

        def chosen(path: str) -> None:
            draft, was_draft = self.path, self._draft
            self.path, self._draft = Path(path), False
            self._keep(self.sheet)
            with suppress(OSError):
                if was_draft and not self.problem.text() and not self.path.samefile(draft):
                    draft.unlink()
            self._look()
            then()

        file_choice.ask_where(self._context, "Worksheet", f"{self.exercise.id}.toml", chosen)

    def _ask_to_hand_in(self) -> None:
        self._ask_where(self._hand_in) if self._draft else self._hand_in()

    def _hand_in(self) -> None:
        """Add the records of its runs, and write the worksheet with its curves."""
        sheet, exercise = self.sheet, self.exercise

        def work(library: Library) -> HandedIn | str:
            try:
                return *worksheet.hand_in(library, sheet, exercise), worksheet.peaks(exercise, sheet.seed)
            except AssignmentError as fault:
                return str(fault)

        self.told.setText("Its runs are read from the library …")
        self.hand_in.setEnabled(False)
        self._context.library.ask(work, self._write)

    def _write(self, result: HandedIn | str) -> None:
        if self.left:
            return
        self.told.setText("")
        if isinstance(result, str):
            self.problem.setText(result)
            return
        done, runs, peaks = result
        self._keep(done)

        def draw(suffix: str) -> str | bytes:
            from gradstudio.session.files import report

            return report.worksheet(done, self.exercise, runs, peaks, suffix)

        for suffix in ("html", "pdf"):
            self._context.files.draw(partial(draw, suffix), str(self.path.with_suffix(f".{suffix}")))
        told = f"Handed in: give {self.path.name} to your teacher. Beside it the curves are written."
        self.told.setText(f"{told} {worksheet.unanswered_questions(done, self.exercise)}".strip())

    def _keep(self, sheet: Worksheet) -> None:
        self.sheet, self._unwritten = sheet, False
        try:
            files.write_whole(self.path, sheet.to_toml())
            self.problem.setText("")
        except OSError as fault:
            self.problem.setText(f"{self.path} was not written: {files.reason(fault)}")

    # ---- layout

    def _lay_out(self) -> None:
        inside, column = QWidget(), QVBoxLayout()
        inside.setLayout(column)
        column.addWidget(_text(self.exercise.text, "dim"))
        column.addWidget(
            _text(f"Your runs have the seed {self.sheet.seed}. Load one, press Run, and wait for its end.", "dim")
        )
        column.addWidget(_text("Runs", "title"))
        column.addLayout(self._runs())
        column.addWidget(_text("Questions", "title"))
        for place, question in enumerate(self.exercise.question, 1):
            column.addWidget(_text(f"{place}. {question.text}{question.where}"))
            column.addWidget(self._answer(f"q{place}", question))
        column.addStretch(1)
        around = QScrollArea()
        around.setWidget(inside)
        around.setWidgetResizable(True)
        around.setFrameShape(QFrame.Shape.NoFrame)
        around.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        around.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        for label in (self.told, self.problem):
            label.setWordWrap(True)
        foot = QHBoxLayout()
        foot.addWidget(self.told, 1)
        for button, does, about in (
            (self.close_sheet, self.put_away, "Closes the worksheet; “Do an exercise” goes on with it"),
            (self.save, self._ask_where, "Keeps the worksheet in a file from now on"),
            (self.hand_in, self._ask_to_hand_in, ""),
        ):
            button.clicked.connect(lambda _=False, does=does: does())
            button.setToolTip(about)
            foot.addWidget(button)
        in_column((around, 1), self.problem, foot, of=self, margins=(SIDE, 0, SIDE, SIDE))
        theme.apply_style(self)

    def _runs(self) -> QGridLayout:
        """Return a row for each requested run: its description, the button that loads it, and its progress."""
        rows = QGridLayout()
        rows.setColumnStretch(0, 1)
        for row, asked in enumerate(self.exercise.run):
            about = _about(asked)
            button, state = QPushButton("Load"), QLabel(NOT_YET)
            button.setAccessibleName(f"Load {asked.name}")
            button.setAccessibleDescription(about)
            button.setToolTip(about)
            button.clicked.connect(partial(self._load, asked))
            self.states[asked.name], self.loads[asked.name] = state, button
            rows.addWidget(_text(f"{asked.name}: {about}"), row, 0)
            rows.addWidget(button, row, 1)
            rows.addWidget(state, row, 2)
        return rows

    def _answer(self, name: str, question: Question) -> Answer:
        """Return the field of a question: a choice, a number or a text."""
        given = self.sheet.answers.get(name, "")
        if question.predict:
            box = QComboBox()
            box.addItem("")
            for letter, text in question.lettered_choices:
                box.addItem(f"{letter}. {text}", letter)
            box.setCurrentIndex(max(box.findData(given.strip().upper()), 0))
            box.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)
            box.currentIndexChanged.connect(lambda _: self.take(name, box.currentData() or ""))
            field: Answer = box
        elif question.explain:
            line = QLineEdit(given)
            line.setPlaceholderText(f"a number{f' in {question.explain.unit}' if question.explain.unit else ''}")
            line.editingFinished.connect(lambda: self.take(name, line.text()))
            field = line
        else:
            lines = QPlainTextEdit(given, tabChangesFocus=True, placeholderText="Your teacher reads this.")
            lines.setFixedHeight(ANSWER)
            lines.textChanged.connect(lambda: self.take(name, lines.toPlainText()))
            field = lines
        field.setAccessibleName(f"Answer {name[1:]}")
        field.setAccessibleDescription(question.text)
        self.answers[name] = field
        return field


def _about(asked: ExerciseRun) -> str:
    return asked.text + (f" In mid-run: {', '.join(asked.then)}." if asked.then else "")


def _text(text: str, role: str = "") -> QLabel:
    label = role_label(text, role)
    label.setWordWrap(True)
    label.setTextFormat(Qt.TextFormat.PlainText)
    return label
