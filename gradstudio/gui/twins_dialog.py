"""In which knob the twin is to differ, and by which value."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtWidgets import QComboBox, QDialog, QDialogButtonBox, QFormLayout, QLabel, QLineEdit, QVBoxLayout

from gradstudio.core.experiment import KNOBS, parse_assignment
from gradstudio.core.knobs import KnobError, format_value

if TYPE_CHECKING:
    from gradstudio.gui.window import Window

ABOUT = "Both runs begin at step 0 with the same seed and see the same batches, step by step. They differ in one knob only."


class TwinsDialog(QDialog):
    """It stays until its request can be met."""

    def __init__(self, window: Window, knob: str = "") -> None:
        super().__init__(window)
        self.setWindowTitle("Start twins")
        self._window = window
        self.knob, self.value, self.problem = QComboBox(), QLineEdit(), QLabel()
        self.knob.addItems([name for name in KNOBS if window.simulator.requested.applies(name)])
        self.knob.setCurrentText(knob or "clipping.kind")
        self.knob.setAccessibleName("Knob in which the twins differ")
        self.knob.setToolTip("The one knob that the second run has otherwise")
        self.value.setAccessibleName("Value of the second run")
        self.value.setToolTip("The second run's value; the first has the one that is set")
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
            name, value = parse_assignment(f"{self.knob.currentText()}={self.value.text().strip()}")
            self._window.start_twins(name, value)
        except KnobError as fault:
            self.problem.setText(str(fault))
        else:
            super().accept()

    def _show_value(self, name: str) -> None:
        knob, now = KNOBS[name], self._window.simulator.requested[name]
        allowed = " or ".join(choice for choice in knob.choices if choice != now) if knob.choices else ""
        self.value.setPlaceholderText(f"not {format_value(now)}" + (f", but {allowed}" if allowed else ""))
        self.problem.setText("")
