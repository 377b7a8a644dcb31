"""The dialog that makes an exam from the current knobs: it tries them, which takes some runs, and writes it."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from PySide6.QtWidgets import QComboBox, QDialogButtonBox, QFormLayout, QLabel, QLineEdit, QSpinBox

from gradstudio.core import files
from gradstudio.core.assignment import AssignmentError
from gradstudio.core.knobs import KnobError
from gradstudio.core.presets import Preset
from gradstudio.gui.assignment import exam_training
from gradstudio.gui.assignment.changes_editor import ChangesEditor
from gradstudio.gui.services import file_choice
from gradstudio.gui.services.context import Context
from gradstudio.gui.services.jobs import JobError, Task
from gradstudio.gui.widgets.popups import TemporaryDialog
from gradstudio.gui.widgets.rows import in_column
from gradstudio.session.course import causes, exam_making

ABOUT = (
    "The run as the knobs are set now, and with a fix, is trained with three seeds: it has to break with each, and the "
    "fix has to hold with each. Then the knobs are packed into a file."
)
NO_FIX = "While nothing is listed: as the preset promises, or the first remedy that holds"
FIRST_FINDING = "As the first finding says"


class MakingDialog(TemporaryDialog):
    """Stays open until the exam is written, and shows errors."""

    def __init__(self, context: Context) -> None:
        super().__init__(context.parent, "Make an exam")
        self._context = context
        self._making: Task | None = None
        requested = context.simulator.requested
        self.name, self.cause = QLineEdit(), QComboBox()
        self.fix = ChangesEditor(
            [knob.name for knob, _ in requested.items()], requested.find_knob, requested.__getitem__,
            requested.with_texts,
        )  # fmt: skip
        self.changes, self.tries = QSpinBox(), QSpinBox()
        self.about, self.told, self.problem = QLabel(ABOUT), QLabel(), QLabel()
        self.cause.setEditable(True)
        self.cause.addItems([FIRST_FINDING, *causes.CAUSES.values()])
        self.fix.name_parts("Knob of the fix", "a knob that heals the run, with the value that it is to have")
        self.fix_told = QLabel(NO_FIX)
        self.changes.setRange(0, 20)
        self.changes.setSpecialValueText("two more than the fix")
        self.tries.setRange(1, 50)
        self.tries.setValue(6)
        self.name.setText("What is wrong with this run?")
        self.name.setMaxLength(60)
        self._lay_out()
        self.fix.wrong.connect(self.problem.setText)
        self.fix.changed.connect(lambda: self.fix_told.setVisible(not self.fix.texts))

    def _lay_out(self) -> None:
        form = QFormLayout()
        for label, widget, about in (
            ("Title", self.name, "The title of the exam; it should not tell the cause"),
            ("Cause", self.cause, "The right diagnosis: one of the list, or your own words"),
            ("Fix", self.fix, "Knobs that heal the run, and their values then"),
            ("", self.fix_told, NO_FIX),
            ("Knobs a fix may change", self.changes, "The most knobs that a try may change"),
            ("Tries", self.tries, "The most runs besides the first"),
        ):
            widget.setAccessibleName(label)
            widget.setAccessibleDescription(about)
            widget.setToolTip(about)
            form.addRow(label, widget)
        for label, role in ((self.about, "dim"), (self.fix_told, "dim"), (self.told, "dim"), (self.problem, "error")):
            label.setWordWrap(True)
            label.setProperty("role", role)
        buttons = QDialogButtonBox(QDialogButtonBox.StandardButton.Ok | QDialogButtonBox.StandardButton.Cancel)
        self.ok = buttons.button(QDialogButtonBox.StandardButton.Ok)
        self.ok.setText("Try and save…")
        in_column(self.about, form, self.told, self.problem, buttons, of=self)
        buttons.accepted.connect(self.accept)
        buttons.rejected.connect(self.reject)
        self.setMinimumWidth(520)

    def accept(self) -> None:
        if self._making is None:
            file_choice.ask_where(self._context, "Save exam", "monday.exam", self.make)

    def make(self, path: str) -> None:
        """Try the exam and write it to this file."""
        simulator = self._context.simulator
        preset = simulator.preset.model_copy(update={"experiment": simulator.requested})
        text = self.cause.currentText().strip()
        names = {words: name for name, words in causes.CAUSES.items()}
        cause = "" if text == FIRST_FINDING else names.get(text, text)
        asked = {
            "title": self.name.text().strip(), "cause": cause, "fix": self.fix.texts, "changes": self.changes.value(),
            "tries": self.tries.value(),
        }  # fmt: skip
        self.problem.setText("")
        self.ok.setEnabled(False)
        write = partial(self._write, preset, asked, Path(path))
        self._making = self._context.jobs.start("Making an exam", write, partial(self._end, path), self._on_failed)

    def reject(self) -> None:
        """Cancel work in progress, or else close."""
        if self._making is not None:
            self._making.cancel()
            self.told.setText("It is being cancelled …")
        else:
            super().reject()

    # ---- inside

    def _write(self, preset: Preset, asked: dict[str, Any], path: Path, task: Task) -> None:
        """Try the exam and write it, in a thread."""
        try:
            seed = preset.experiment.run.seed
            exam = exam_making.of(
                preset, seed, exam_training.of_task(self._context.simulator, task), self._tell, **asked
            )
            files.write_whole(path, exam.to_toml())
        except (AssignmentError, KnobError) as fault:
            raise JobError(str(fault)) from None
        except OSError as fault:
            raise JobError(f"{path} was not written: {files.reason(fault)}") from None

    def _tell(self, text: str) -> None:
        self._context.jobs.post(lambda: self._show(f"Training {text} …"))

    def _show(self, text: str) -> None:
        if self._making is not None and not self._making.cancelled:
            self.told.setText(text)

    def _end(self, path: str, _: None) -> None:
        self._making = None
        self._context.message.show_written(f"Written: {path}", Path(path))
        super().accept()

    def _on_failed(self, task: Task) -> None:
        self._making = None
        self.ok.setEnabled(True)
        self.told.setText("")
        self.problem.setText(task.problem)
