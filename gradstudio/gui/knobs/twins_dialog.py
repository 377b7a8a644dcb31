"""The dialog that starts twins: in which knob the twin differs, and its value."""

from __future__ import annotations

from PySide6.QtWidgets import QComboBox, QDialogButtonBox, QFormLayout, QLabel, QVBoxLayout

from gradstudio.core.knobs import KnobError, format_value
from gradstudio.gui.knobs.editors import Editor, editor_for
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
        self.knob, self.now, self.problem = QComboBox(), QLabel(), QLabel()
        self.editor: Editor | None = None  # of the twin's value
        self._place = QVBoxLayout()
        requested = context.simulator.requested
        self.knob.addItems([knob.name for knob, _ in requested.items() if requested.applies(knob.name)])
        self.knob.setCurrentText(knob or "clipping.kind")
        self.knob.setAccessibleName("Knob in which the twins differ")
        self.knob.setToolTip("The knob in which the twin differs")
        self.now.setProperty("role", "dim")
        self.problem.setWordWrap(True)
        self.problem.setProperty("role", "error")
        about = QLabel(ABOUT)
        about.setWordWrap(True)
        about.setProperty("role", "dim")
        form = QFormLayout()
        form.addRow("Knob", self.knob)
        form.addRow("Twin's value", self._place)
        form.addRow("", self.now)
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
        self.knob.setFocus()

    def accept(self) -> None:
        assert self.editor is not None
        self.editor.head.clearFocus()  # takes what was typed
        if self.problem.text():
            return
        try:
            self._context.controls.start_twins(self.editor.knob.name, self.editor.value)
        except KnobError as fault:
            self.problem.setText(str(fault))
        else:
            super().accept()

    def _show_value(self, name: str) -> None:
        """Show the editor of a knob, with the value that is set."""
        while item := self._place.takeAt(0):
            if widget := item.widget():
                widget.deleteLater()
        knob, now = self._context.simulator.requested.find_knob(name), self._context.simulator.requested[name]
        self.editor = editor_for(knob)
        self.editor.setParent(self)
        self.editor.set_value(now)
        self.editor.wrong.connect(self.problem.setText)
        for part in (self.editor.head, self.editor.foot):
            if part is not None:
                part.setAccessibleName(f"Value of the twin: {name}")
                self._place.addWidget(part)
        self.now.setText(f"The run keeps {format_value(now)}.")
        self.problem.setText("")
