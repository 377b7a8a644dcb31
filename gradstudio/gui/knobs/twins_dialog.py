"""The dialog that starts twins: in which knob the twin differs, and its value."""

from __future__ import annotations

from PySide6.QtWidgets import QComboBox, QDialogButtonBox, QFormLayout, QLabel, QLineEdit, QVBoxLayout

from gradstudio.core.experiment import Experiment, differing_values
from gradstudio.core.knobs import KnobError, value_text, values_text
from gradstudio.gui.knobs.editors import Editor, editor_for
from gradstudio.gui.services.context import Context
from gradstudio.gui.widgets.popups import TemporaryDialog
from gradstudio.gui.widgets.roles import role_label
from gradstudio.session.record.twins import another_value, can_differ, twin_experiment

ABOUT = (
    "Both runs begin at step 0 with the same seed and see the same batches, step by step. They differ in one knob only."
)


class TwinsDialog(TemporaryDialog):
    """Stays open until twins can be started, and shows errors. Its initial value differs from the run's."""

    def __init__(self, context: Context, knob: str = "") -> None:
        super().__init__(context.parent, "Start twins")
        self._context = context
        self.knob, self.now, self.problem = QComboBox(), QLabel(), QLabel()
        self.editor: Editor | None = None  # of the twin's value
        self._place = QVBoxLayout()
        requested = context.simulator.requested
        names = [knob.name for knob, _ in requested.items() if requested.applies(knob.name)]
        self.knob.addItems([name for name in names if can_differ(name) and not name.startswith("distributed.")])
        self.knob.setCurrentText(knob or "clipping.kind")
        self.knob.setAccessibleName("Knob in which the twins differ")
        self.knob.setToolTip("The knob in which the twin differs")
        self.now.setProperty("role", "dim")
        self.now.setWordWrap(True)
        self.problem.setWordWrap(True)
        self.problem.setProperty("role", "error")
        about = role_label(ABOUT, "dim", wordWrap=True)
        form = QFormLayout()
        form.addRow("Knob", self.knob)
        form.addRow("Twin's value", self._place)
        form.addRow("", self.now)
        buttons = QDialogButtonBox(QDialogButtonBox.StandardButton.Ok | QDialogButtonBox.StandardButton.Cancel)
        self.start = buttons.button(QDialogButtonBox.StandardButton.Ok)
        self.start.setText("Start")
        column = QVBoxLayout(self)
        for part in (about, form, self.problem, buttons):
            column.addLayout(part) if isinstance(part, QFormLayout) else column.addWidget(part)
        buttons.accepted.connect(self.accept)
        buttons.rejected.connect(self.reject)
        self.knob.currentTextChanged.connect(self._show_value)
        self._show_value(self.knob.currentText())
        self.setMinimumWidth(420)
        self.knob.setFocus()

    def accept(self) -> None:
        assert self.editor is not None
        self.editor.head.clearFocus()  # apply the typed text
        if not self.start.isEnabled():
            return
        try:
            self._context.controls.start_twins(self.editor.knob.name, self.editor.value)
        except KnobError as fault:
            self._show_problem(str(fault))
        else:
            super().accept()

    def _show_value(self, name: str) -> None:
        """Show the editor of a knob, with a value that differs from the current one."""
        for part in (self.editor.head, self.editor.foot) if self.editor is not None else ():
            if part is not None:
                self._place.removeWidget(part)
                part.deleteLater()
        knob, now = self._context.simulator.requested.find_knob(name), self._context.simulator.requested[name]
        self.editor = editor = editor_for(knob)
        editor.setParent(self)
        editor.set_value(another_value(knob, now))
        editor.wrong.connect(lambda text: self._show_problem(text) if text else self._check())
        editor.changed.connect(self._check)
        editor.slid.connect(self._check)
        for part in (editor.head, editor.foot):
            if part is not None:
                part.setAccessibleName(f"Value of the twin: {name}")
                part.setAccessibleDescription(f"Value of the twin: {name}. {knob.help}")
                self._place.addWidget(part)
        if isinstance(editor.head, QLineEdit):
            editor.head.textEdited.connect(lambda _: self._show_problem(""))  # it is checked once it is complete
        self._check()

    def _check(self, *_: object) -> None:
        """Show what the twin will have, or why it cannot have this value."""
        assert self.editor is not None
        requested, name = self._context.simulator.requested, self.editor.knob.name
        self.now.setText(f"The run keeps {value_text(requested[name])}.")
        try:
            twin = twin_experiment(requested, name, self.editor.value)
        except KnobError as fault:
            self._show_problem(str(fault))
        else:
            self.now.setText(f"{self.now.text()} {_describe(requested, twin, name)}")
            self._show_problem("")

    def _show_problem(self, text: str) -> None:
        self.problem.setText(text)
        self.start.setEnabled(not text)
        self.start.setToolTip(text)
        self.start.setAccessibleDescription(text or "Starts both runs from step 0")


def _describe(run: Experiment, twin: Experiment, name: str) -> str:
    """Return the values of the twin as a sentence: the knob, those that change with it, and those of its section that
    only have an effect with it."""
    told = {name: twin[name], **differing_values(run, twin)}
    section = f"{name.partition('.')[0]}."
    told |= {
        knob.name: value
        for knob, value in twin.items()
        if knob.name.startswith(section) and twin.applies(knob.name) and not run.applies(knob.name)
    }
    return f"The twin has {values_text({other.removeprefix(section): value for other, value in told.items()})}."
