"""Presets as text: copied to the clipboard, and opened from pasted text."""

from __future__ import annotations

from PySide6.QtCore import QMimeData, Qt, Signal
from PySide6.QtGui import QTextOption
from PySide6.QtWidgets import QApplication, QDialogButtonBox, QLabel, QPlainTextEdit, QVBoxLayout

from gradstudio.core import preset_as_text
from gradstudio.core.presets import Preset, PresetError
from gradstudio.gui.services.context import Context
from gradstudio.gui.widgets.popups import TemporaryDialog
from gradstudio.gui.widgets.roles import role_label

LONGEST_PASTED = 30_000  # characters, some twenty times a preset's: wrapping more takes Qt long


def copy(context: Context) -> None:
    """Copy the current knobs with the preset's title and timeline, and with its lesson if no knob was changed."""
    simulator = context.simulator
    preset = simulator.preset
    if simulator.requested != preset.experiment:  # the lesson and the promise are about other knobs
        preset = Preset(id=preset.id, title=preset.title, experiment=simulator.requested, timeline=preset.timeline)
    try:
        text = preset_as_text.to_text(preset)
    except PresetError as fault:
        context.message.show_error(str(fault))
        return
    QApplication.clipboard().setText(text)
    context.message.show_news(
        f"Copied: {preset.title}, as a text of {len(text):,} characters. Presets > Open preset from text… reads it."
    )


def ask(context: Context) -> None:
    """Ask for the text of a preset."""
    PastedPreset(context).open()


class PastedLines(QPlainTextEdit):
    """The pasted lines. They are one long word, which Qt may break anywhere, as that is fastest."""

    refused = Signal(int)  # characters of a text that is too long

    def __init__(self) -> None:
        super().__init__()
        self.setWordWrapMode(QTextOption.WrapMode.WrapAnywhere)

    def insertFromMimeData(self, source: QMimeData) -> None:
        there = len(self.toPlainText()) - len(self.textCursor().selectedText())
        if there + len(source.text()) > LONGEST_PASTED:
            self.refused.emit(there + len(source.text()))
        else:
            self.insertPlainText(source.text())


class PastedPreset(TemporaryDialog):
    """Stays open until its text can be read, and shows what is wrong with it."""

    def __init__(self, context: Context) -> None:
        super().__init__(context.parent, "Open preset from text")
        self._controls = context.controls
        about = QLabel(f"Paste the text here. It begins with {preset_as_text.PREFIX}")
        self.text = PastedLines()
        self.text.setObjectName("note")
        self.text.setAccessibleName("Text of the preset")
        self.text.setAccessibleDescription(about.text())
        self.text.setTabChangesFocus(True)
        self.problem = role_label("", "error", textFormat=Qt.TextFormat.PlainText, wordWrap=True)
        clipboard = QApplication.clipboard().text()
        if clipboard.strip().startswith(preset_as_text.PREFIX) and len(clipboard) <= LONGEST_PASTED:
            self.text.setPlainText(clipboard.strip())
            self.text.selectAll()
        buttons = QDialogButtonBox(QDialogButtonBox.StandardButton.Open | QDialogButtonBox.StandardButton.Cancel)
        buttons.accepted.connect(self.accept)
        buttons.rejected.connect(self.reject)
        self.text.textChanged.connect(self.problem.clear)
        self.text.refused.connect(self._refuse)
        column = QVBoxLayout(self)
        for widget in (about, self.text, self.problem, buttons):
            column.addWidget(widget)
        self.resize(520, 260)

    def _refuse(self, characters: int) -> None:
        self.problem.setText(
            f"This would be a text of {characters:,} characters; allowed: at most {LONGEST_PASTED:,}. A longer preset "
            "can be opened from its file."
        )

    def accept(self) -> None:
        try:
            preset = preset_as_text.from_text(self.text.toPlainText())
        except PresetError as fault:
            self.problem.setText(str(fault))
            return
        super().accept()
        self._controls.load(preset)
