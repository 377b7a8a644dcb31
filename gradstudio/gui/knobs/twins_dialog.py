"""The dialog that starts twins: in which knob the twin differs, and its value."""

from __future__ import annotations

from PySide6.QtWidgets import QComboBox, QDialogButtonBox, QFormLayout, QLabel, QLineEdit, QVBoxLayout

from gradstudio.core.experiment import parse_assignment
from gradstudio.core.knobs import KnobError, format_value
from gradstudio.gui.services.context import Context
from gradstudio.gui.widgets.popups import TemporaryDialog

ABOUT = (
    "Both runs begin at step 0 with the same seed and see the same batches, step by step. They differ in one knob only."
)


class TwinsDialog(TemporaryDialog):
    """Stays open until twins can be started, and says what is in the way."""

    def __init__(self, context: Context, knob: str = "") -> None:
        super().__init__(context.parent, "Start twins")
        self._context = context
        self.knob, self.value, self.problem = QComboBox(), QLineEdit(), QLabel()
        requested = context.simulator.requested
        self.knob.addItems([knob.name for knob, _ in requested.items() if requested.applies(knob.name)])
        self.knob.setCurrentText(knob or "clipping.kind")
        self.knob.setAccessibleName("Knob in which the twins differ")
        self.knob.setToolTip("The knob in which the twin differs")
        self.value.setAccessibleName("Value of the twin")
        self.value.setToolTip("The twin's value; the run keeps the value that is set")
        self.problem.setWordWrap(True)
        self.problem.setProperty("role", "error")
        about = QLabel(ABOUT)
        about.setWordWrap(True)
        about.setProperty("role", "dim")
        form = QFormLayout()
        form.addRow("Knob", self.knob)
        form.addRow("Twin's value", self.value)
        buttons = QDialogButtonBox(QDialogButtonBox.StandardButton.Ok | QDialogButtonBox.StandardButton.Cancel)
        buttons.button(QDialogButtonBox.StandardButton.Ok).setText("Start")
        column = QVBoxLayout(self)
        for part in (about, form, self.problem, buttons):
            column.addLayout(part) if isinstance(part, QFormLayout) else column.addWidget(part)
        buttons.accepted.connect(self.accept)
        buttons.rejected.connect(self.reject)
        self.knob.currentTextChanged.connect(self._show_value)
        self._show_value(self.knob.currentText())
        self.setMinimumWidth(420)
        self.value.setFocus()

    def accept(self) -> None:
        try:
            assignment = f"{self.knob.currentText()}={self.value.text().strip()}"
            name, value = parse_assignment(assignment, self._context.simulator.requested)
            self._context.controls.start_twins(name, value)
        except KnobError as fault:
            self.problem.setText(str(fault))
        else:
            super().accept()

    def _show_value(self, name: str) -> None:
        requested = self._context.simulator.requested
        knob, now = requested.find_knob(name), requested[name]
        allowed = " or ".join(choice for choice in knob.choices if choice != now) if knob.choices else ""
        self.value.setPlaceholderText(f"not {format_value(now)}" + (f", but {allowed}" if allowed else ""))
        self.problem.setText("")
