"""A preset as a text on the clipboard, and one from a text that somebody pasted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QApplication, QDialog, QDialogButtonBox, QLabel, QPlainTextEdit, QVBoxLayout

from gradstudio.core import sharing
from gradstudio.core.presets import Preset, PresetError

if TYPE_CHECKING:
    from gradstudio.gui.window import Window


def copy(window: Window) -> None:
    """The knobs as they are asked for, with the preset's title, changes and, where they are still its own, its lesson."""
    simulator = window.simulator
    preset = simulator.preset
    if simulator.requested != preset.experiment:  # the lesson and the promise are about other knobs
        preset = Preset(id=preset.id, title=preset.title, experiment=simulator.requested, timeline=preset.timeline)
    try:
        text = sharing.to_text(preset)
    except PresetError as fault:
        window.message.show_error(str(fault))
        return
    QApplication.clipboard().setText(text)
    window.message.show_news(f"Copied: {preset.title}, as a text of {len(text):,} characters. Presets > Open preset from text… reads it.")


def ask(window: Window) -> None:
    """Ask for such a text; what is wrong with it is said where it was pasted."""
    PastedPreset(window).open()


class PastedPreset(QDialog):
    def __init__(self, window: Window) -> None:
        super().__init__(window)
        self._window = window
        self.setWindowTitle("Open preset from text")
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        about = QLabel(f"Paste the text here. It begins with {sharing.PREFIX}")
        self.text = QPlainTextEdit()
        self.text.setObjectName("note")
        self.text.setAccessibleName("Text of the preset")
        self.text.setTabChangesFocus(True)
        self.problem = QLabel()
        self.problem.setTextFormat(Qt.TextFormat.PlainText)
        self.problem.setWordWrap(True)
        self.problem.setProperty("role", "error")
        clipboard = QApplication.clipboard().text()
        if clipboard.strip().startswith(sharing.PREFIX) and len(clipboard) <= sharing.LONGEST:
            self.text.setPlainText(clipboard.strip())
            self.text.selectAll()
        buttons = QDialogButtonBox(QDialogButtonBox.StandardButton.Open | QDialogButtonBox.StandardButton.Cancel)
        buttons.accepted.connect(self.accept)
        buttons.rejected.connect(self.reject)
        self.text.textChanged.connect(self.problem.clear)
        column = QVBoxLayout(self)
        for widget in (about, self.text, self.problem, buttons):
            column.addWidget(widget)
        self.resize(520, 260)

    def accept(self) -> None:
        try:
            preset = sharing.from_text(self.text.toPlainText())
        except PresetError as fault:
            self.problem.setText(str(fault))
            return
        super().accept()
        self._window.take_up(preset)
