"""The knobs as a plain PyTorch program, as they are asked for now, with the lines marked that the last change of a knob altered."""

from __future__ import annotations

from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtWidgets import QApplication, QHBoxLayout, QLabel, QPushButton, QVBoxLayout, QWidget

from gradstudio.core.experiment import Experiment
from gradstudio.core.knobs import format_value
from gradstudio.core.presets import Preset
from gradstudio.gui.code_view import Changed, CodeView, changed
from gradstudio.session.simulator import Simulator, differing

CAPTION = "The knobs as plain PyTorch: prints step, loss and grad_norm, repeats the run."
COPIED = 1500  # ms that the button says so
MAY_BREAK = "\u200b"  # a space of no width, where a long name may go on in the next line


class CodePanel(QWidget):
    save_asked = Signal()

    def __init__(self) -> None:
        super().__init__()
        caption = QLabel(CAPTION)
        caption.setWordWrap(True)
        caption.setProperty("role", "dim")
        self.view = CodeView()
        self.view.setAccessibleName("Program")
        self.view.setAccessibleDescription(CAPTION)
        self.note = QLabel()
        self.note.setTextFormat(Qt.TextFormat.PlainText)
        self.note.setProperty("role", "note")
        self.note.setWordWrap(True)
        self.copy = QPushButton("Copy")
        self.copy.setToolTip("The whole program, to the clipboard")
        self.copy.clicked.connect(self._copy)
        self.save = QPushButton("Save as train.py…")
        self.save.setToolTip("Runs by itself: python train.py. Export writes the program of the run as it went, with its changes.")
        self.save.clicked.connect(self.save_asked)
        for button in (self.copy, self.save):
            button.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self._shown: Experiment | None = None
        self._preset: Preset | None = None
        self._base, self._base_text = Experiment(), ""  # what the marks are held against
        foot = QHBoxLayout()
        foot.setContentsMargins(12, 6, 12, 8)
        foot.addWidget(self.note, 1)
        foot.addWidget(self.copy)
        foot.addWidget(self.save)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(6)
        caption.setContentsMargins(12, 0, 12, 0)
        column.addWidget(caption)
        column.addWidget(self.view, 1)
        column.addLayout(foot)

    @property
    def text(self) -> str:
        return self.view.toPlainText()

    def refresh(self, simulator: Simulator) -> None:
        """Show the program of the knobs as asked for; nothing is made while nobody sees it."""
        wanted, preset, before = simulator.requested, simulator.preset, self._shown
        if not self.isVisible() or (wanted is before and preset is self._preset):
            return
        other = preset is not self._preset
        self._shown, self._preset = wanted, preset
        text = simulator.script()
        if before is None or other:
            self._base, self._base_text = wanted, text
        elif set(differing(before, wanted)) != set(differing(self._base, before)):  # another knob than the one that is being moved
            self._base, self._base_text = before, self.text
        marks = changed(self._base_text, text)
        self.view.show_code(text, marks)
        self._tell(marks)

    def _tell(self, marks: Changed) -> None:
        """What the marks are for."""
        assert self._shown is not None
        new = differing(self._base, self._shown)
        if not new:
            self.note.setText("")
            return
        name, value = next(iter(new.items()))
        what = f"{name} {format_value(self._base[name])} → {format_value(value)}" if len(new) == 1 else f"{len(new)} knobs"
        text = f"▌{what}" if marks.first is not None else f"{what}: no line changed"
        self.note.setText(text.replace("_", "_" + MAY_BREAK).replace(".", "." + MAY_BREAK))
        self.note.setToolTip("\n".join(f"{name} = {format_value(value)}" for name, value in new.items()))

    def _copy(self) -> None:
        QApplication.clipboard().setText(self.text)
        self.copy.setText("Copied")
        QTimer.singleShot(COPIED, self.copy, lambda: self.copy.setText("Copy"))
