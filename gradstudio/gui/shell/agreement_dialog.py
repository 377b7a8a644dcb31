"""The question before a studio file is run for the first time: its text, its hash, what running it means, and the texts
that are set for its knobs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from PySide6.QtCore import Qt
from PySide6.QtGui import QFontDatabase, QTextOption
from PySide6.QtWidgets import QDialogButtonBox, QLabel, QPlainTextEdit, QVBoxLayout, QWidget

from gradstudio.core import trust
from gradstudio.core.knobs import format_value
from gradstudio.core.text import about_unseen, reveal
from gradstudio.gui.widgets.popups import TemporaryDialog
from gradstudio.session.own_model import Agreement

ABOUT = "This file is a program, and can do whatever you can do on this machine. Run it only if you trust its text."
SET = "These texts were not set by you here. The file may read or load what they name:"
MOST_LINES = 6  # visible at once, of these texts


class AgreementDialog(TemporaryDialog):
    """Asks once for each text. Nothing of the file runs before."""

    def __init__(self, parent: QWidget, asked: Agreement, agreed: Callable[[], object]) -> None:
        super().__init__(parent, "Run a studio file")
        file = asked.file
        about = QLabel(ABOUT, wordWrap=True)
        size = len(file.text.encode())
        facts = QLabel(f"{file.name} · {size:,} bytes\nSHA-256 {file.sha256}", textFormat=Qt.TextFormat.PlainText)
        facts.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        facts.setProperty("role", "dim")
        given = [f"{name} = {format_value(reveal(text))}" for name, text in asked.texts]
        heading = QLabel(SET, wordWrap=True)
        self.given = _reader("\n".join(given), "Texts of its knobs")
        self.given.setMaximumHeight(self.given.fontMetrics().lineSpacing() * (min(len(given), MOST_LINES) + 1))
        for part in (heading, self.given):
            part.setVisible(bool(given))
        unseen = about_unseen(file.text)
        self.unseen = QLabel(f"{unseen}. They may hide what the file does." if unseen else "", wordWrap=True)
        self.unseen.setProperty("role", "over")
        self.unseen.setVisible(bool(unseen))
        self.text = _reader(reveal(file.text), "Text of the file")
        self.buttons = QDialogButtonBox(QDialogButtonBox.StandardButton.Ok | QDialogButtonBox.StandardButton.Cancel)
        self.buttons.button(QDialogButtonBox.StandardButton.Ok).setText("Run it")
        self.buttons.button(QDialogButtonBox.StandardButton.Cancel).setDefault(True)
        self.buttons.rejected.connect(self.reject)
        self.buttons.accepted.connect(self.accept)
        self.accepted.connect(partial(_agree, asked.hashes, agreed))
        column = QVBoxLayout(self)
        for part in (about, facts, heading, self.given, self.unseen, self.text, self.buttons):
            column.addWidget(part)
        self.resize(720, 520)


def _reader(text: str, name: str) -> QPlainTextEdit:
    """Return a viewer for an untrusted text."""
    reader = QPlainTextEdit(text, readOnly=True, tabChangesFocus=True)
    reader.setObjectName("note")
    reader.setFont(QFontDatabase.systemFont(QFontDatabase.SystemFont.FixedFont))
    # no part of a long line is hidden
    reader.setWordWrapMode(QTextOption.WrapMode.WrapAtWordBoundaryOrAnywhere)
    reader.setAccessibleName(name)
    return reader


def _agree(hashes: tuple[str, ...], agreed: Callable[[], object]) -> None:
    trust.agree(*hashes)
    agreed()
