"""The dialog that makes an exam of the knobs as they are set: it tries them, which takes some runs, and writes it."""

from __future__ import annotations

import threading
from pathlib import Path

from PySide6.QtCore import QTimer
from PySide6.QtGui import QCloseEvent
from PySide6.QtWidgets import QComboBox, QDialogButtonBox, QFormLayout, QLabel, QLineEdit, QSpinBox, QVBoxLayout

from gradstudio.core import files
from gradstudio.core.exam import Exam, ExamError
from gradstudio.core.knobs import KnobError
from gradstudio.core.presets import Preset
from gradstudio.gui.exam import whole_runs
from gradstudio.gui.exam.changes_editor import ChangesEditor
from gradstudio.gui.services import file_choice
from gradstudio.gui.services.context import Context
from gradstudio.gui.widgets.popups import TemporaryDialog
from gradstudio.session.course import causes, exam_making
from gradstudio.session.record.run import Run

ABOUT = (
    "The run as the knobs are set now, and with a fix, is trained with three seeds: it has to break with each, and the "
    "fix has to hold with each. Then the knobs are packed into a file."
)
NO_FIX = "While nothing is listed: as the preset promises, or the first remedy that holds"
FIRST_FINDING = "As the first finding says"
LOOK = 100  # ms between two looks how far it is


class Stopped(Exception):
    pass


class _Making(threading.Thread):
    """Tries the exam and writes it. `told`: how far it is; `problem`: why there is none; `done`: whether it was
    written."""

    def __init__(self, path: Path, preset: Preset, title: str, cause: str, fix: list[str], changes: int, tries: int):
        super().__init__(name="making an exam", daemon=True)
        self.path, self._preset = path, preset
        self._asked = {"title": title, "cause": cause, "fix": fix, "changes": changes, "tries": tries}
        self._stopping = threading.Event()
        self.told, self.problem, self.done = "", "", False

    def run(self) -> None:
        try:
            exam: Exam = exam_making.of(
                self._preset, self._preset.experiment.run.seed, self._train, self._tell, **self._asked
            )  # type: ignore[arg-type]
            files.write_whole(self.path, exam.to_toml())
            self.done = True
        except Stopped:
            pass
        except (ExamError, KnobError) as fault:
            self.problem = str(fault)
        except OSError as fault:
            self.problem = f"{self.path} was not written: {files.reason(fault)}"

    def stop(self) -> None:
        self._stopping.set()

    def _tell(self, text: str) -> None:
        self.told = f"Training {text} …"

    def _train(self, run: Run) -> None:
        whole_runs.train(run, self._stopping.is_set)
        if self._stopping.is_set():
            raise Stopped


class MakingDialog(TemporaryDialog):
    """Stays open until the exam is written, and says what is in the way."""

    def __init__(self, context: Context) -> None:
        super().__init__(context.parent, "Make an exam")
        self._context = context
        self._making: _Making | None = None
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
        self.fix.name_parts("Knob of the fix", "Knob of the fix: it heals the run, with the value beside it", NO_FIX)
        self.fix_told = QLabel(NO_FIX)
        self.changes.setRange(0, 20)
        self.changes.setSpecialValueText("two more than the fix")
        self.tries.setRange(1, 50)
        self.tries.setValue(6)
        self.name.setText("What is wrong with this run?")
        self.name.setMaxLength(60)
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
        column = QVBoxLayout(self)
        for part in (self.about, form, self.told, self.problem, buttons):
            column.addLayout(part) if isinstance(part, QFormLayout) else column.addWidget(part)
        buttons.accepted.connect(self.accept)
        buttons.rejected.connect(self.reject)
        self.fix.wrong.connect(self.problem.setText)
        self.fix.changed.connect(lambda: self.fix_told.setVisible(not self.fix.texts))
        self.setMinimumWidth(520)
        self._timer = QTimer(self)
        self._timer.timeout.connect(self._look)

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
        self._making = _Making(
            Path(path), preset, self.name.text().strip(), cause, self.fix.texts, self.changes.value(),
            self.tries.value(),
        )  # fmt: skip
        self.problem.setText("")
        self._making.start()
        self._timer.start(LOOK)
        self._look()

    def reject(self) -> None:
        """Cancel what is under way, or else close."""
        if self._making is not None:
            self._making.stop()
            self.told.setText("It is being cancelled …")
        else:
            super().reject()

    def closeEvent(self, event: QCloseEvent) -> None:
        if self._making is not None:
            self._making.stop()
        super().closeEvent(event)

    def _look(self) -> None:
        making = self._making
        self.ok.setEnabled(making is None)
        if making is None:
            return
        if making.is_alive():
            self.told.setText(making.told)
            return
        self._timer.stop()
        self._making = None
        self.ok.setEnabled(True)
        self.told.setText("")
        self.problem.setText(making.problem)
        if making.done:
            self._context.message.show_written(f"Written: {making.path}", making.path)
            super().accept()
