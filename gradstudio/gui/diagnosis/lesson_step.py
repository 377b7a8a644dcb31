"""One step of a lesson on the page Diagnosis: its text, its formula, its question with the answer, its hint."""

from __future__ import annotations

from html import escape

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QButtonGroup, QLabel, QLineEdit, QPushButton, QRadioButton, QWidget

from gradstudio.core.lesson import LessonStep
from gradstudio.gui.diagnosis.formula import FormulaPicture, Formulas
from gradstudio.gui.theme import theme
from gradstudio.gui.widgets.choice import Choice
from gradstudio.gui.widgets.rows import NO_MARGINS, in_column, in_row
from gradstudio.session.course.lesson_progress import StepResult

MARKS = {"open": "○", "done": "✓", "answered": "?", "right": "✓", "wrong": "✗", "skipped": "–"}
SAID = {
    "open": "To do", "done": "Done", "answered": "Answered", "right": "Right", "wrong": "Not as expected",
    "skipped": "Left out",
}  # fmt: skip
TOO_LATE = "This run has begun. Press Restart to answer first, or leave the question out."
NOT_YET = "To answer, let the run that this is about come to its end."


class LessonStepRow(QWidget):
    """A step; the user's input is emitted."""

    predicted = Signal(int)  # index of a choice
    explained = Signal(str)  # the text typed
    left_out = Signal()

    def __init__(self, step: LessonStep, formulas: Formulas) -> None:
        super().__init__()
        self.step = step
        self.text = _label(step.text)
        self.note, self.fault = _label(""), _label("")
        self.hint_text, self.hint = _label(step.hint), _flat("Hint", "Shows a hint")
        self.skip = _flat("Leave out", "Goes on without an answer, and shows the right one where it is known")
        self.formula = FormulaPicture(step.formula, formulas) if step.formula else None
        self.paper = _label("")
        self.paper.setTextFormat(Qt.TextFormat.RichText)  # a link; its parts are escaped
        self.choices: list[QRadioButton] = []
        self.answer, self.check = QLineEdit(), QPushButton("Check")
        self._column = in_column(self.text, of=self, margins=NO_MARGINS, spacing=5)
        if self.formula:
            self._column.addWidget(self.formula)
        self._ask()
        buttons = in_row(self.hint, self.skip, 1, spacing=4)
        for part in (self.fault, self.note, self.paper):
            self._column.addWidget(part)
        self._column.addLayout(buttons)
        self._column.addWidget(self.hint_text)
        self.hint_text.hide()
        self.hint.clicked.connect(self._show_hint)
        self.skip.clicked.connect(self.left_out)

    def show_state(self, passed: StepResult, *, current: bool, too_late: bool, can_explain: bool, waits: str) -> None:
        """Show the result of the step so far. `too_late`: a run that a prediction is about was seen; `can_explain`: the
        number that a question asks for is available; `waits`: what must happen before an answer is judged."""
        asks = current and passed.mark == "open"
        color = theme.colors.text if current or passed.over else theme.colors.dim
        self.text.setStyleSheet(f"font-weight: {600 if current else 400}; color: {color};")
        self.text.setAccessibleName(f"{SAID[passed.mark]}: {self.step.text}")
        for place, choice in enumerate(self.choices):
            choice.setVisible(asks or passed.mark == "answered")
            choice.setEnabled(asks and not too_late)
            if passed.choice == place and not choice.isChecked():
                choice.setChecked(True)
        if self.step.explain:
            self._entry.setVisible(asks)
            self.answer.setEnabled(can_explain)
            self.check.setEnabled(can_explain)
        self.skip.setVisible(self.step.is_question and (asks or passed.mark == "answered"))
        self.hint.setVisible(bool(self.step.hint) and current and self.hint_text.isHidden())
        note = passed.note
        if passed.mark == "answered":
            note = waits
        elif asks and self.step.predict and too_late:
            note = TOO_LATE
        elif asks and self.step.explain and not can_explain:
            note = NOT_YET
        self.note.setText(note)
        self.note.setVisible(bool(note))
        tone = {"right": "good", "wrong": "bad"}.get(passed.mark, "dim")
        self.note.setStyleSheet(f"color: {getattr(theme.colors, tone)};")
        self.paper.setVisible(self.step.paper is not None)
        if self.step.paper:
            self.paper.setText(
                f'<a href="{escape(self.step.paper.url)}" style="color: {theme.colors.accent}">'
                f"{escape(self.step.paper.text)}</a>"
            )
        if not asks:
            self.say("")

    def say(self, fault: str) -> None:
        """Show what is wrong with an answer; "" if nothing is."""
        self.fault.setText(fault)
        self.fault.setVisible(bool(fault))
        self.fault.setStyleSheet(f"color: {theme.colors.bad};")

    # ---- inside

    def _ask(self) -> None:
        """Add the input for answering a question."""
        group = QButtonGroup(self)
        for place, choice in enumerate(self.step.predict):
            button = Choice(choice.text)
            group.addButton(button, place)
            self.choices.append(button)
            self._column.addWidget(button)
        group.idClicked.connect(self.predicted)
        self._entry = QWidget()
        if not self.step.explain:
            self._entry.setParent(self)
            self._entry.hide()
            return
        line = in_row(of=self._entry, margins=NO_MARGINS, spacing=6)
        self.answer.setMaxLength(40)
        self.answer.setMaximumWidth(round(110 * theme.zoom))
        self.answer.setPlaceholderText("a number")
        self.answer.setAccessibleName(f"Answer to: {self.step.text}")
        line.addWidget(self.answer)
        if self.step.explain.unit:
            line.addWidget(QLabel(self.step.explain.unit))
        line.addWidget(self.check)
        line.addStretch(1)
        self._column.addWidget(self._entry)
        self.check.clicked.connect(self._emit_answer)
        self.answer.returnPressed.connect(self._emit_answer)

    def _emit_answer(self) -> None:
        self.explained.emit(self.answer.text())

    def _show_hint(self) -> None:
        self.hint_text.show()
        self.hint.hide()


def _label(text: str) -> QLabel:
    label = QLabel(text, wordWrap=True, openExternalLinks=True, textFormat=Qt.TextFormat.PlainText)
    return label


def _flat(text: str, about: str) -> QPushButton:
    button = QPushButton(text)
    button.setProperty("role", "flat")
    button.setToolTip(about)
    return button
