"""The question before a studio file is run for the first time: its text, its hash, and what running it means."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from PySide6.QtCore import Qt
from PySide6.QtGui import QFontDatabase, QTextOption
from PySide6.QtWidgets import QDialogButtonBox, QLabel, QPlainTextEdit, QVBoxLayout, QWidget

from gradstudio.core import trust
from gradstudio.core.studio_file import StudioFile
from gradstudio.core.text import about_unseen, revealed
from gradstudio.gui.widgets.popups import TemporaryDialog

ABOUT = "This file is a program, and can do whatever you can do on this machine. Run it only if you trust its text."


class AgreementDialog(TemporaryDialog):
    """Asks once for each text. Nothing of the file runs before."""

    def __init__(self, parent: QWidget, file: StudioFile, agreed: Callable[[], object]) -> None:
        super().__init__(parent, "Run a studio file")
        about = QLabel(ABOUT)
        about.setWordWrap(True)
        size = len(file.text.encode())
        facts = QLabel(f"{file.name} · {size:,} bytes\nSHA-256 {file.sha256}")
        facts.setTextFormat(Qt.TextFormat.PlainText)
        facts.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        facts.setProperty("role", "dim")
        unseen = about_unseen(file.text)
        self.unseen = QLabel(f"{unseen}. They may hide what the file does." if unseen else "")
        self.unseen.setProperty("role", "over")
        self.unseen.setWordWrap(True)
        self.unseen.setVisible(bool(unseen))
        self.text = QPlainTextEdit(revealed(file.text))
        self.text.setObjectName("note")
        self.text.setFont(QFontDatabase.systemFont(QFontDatabase.SystemFont.FixedFont))
        self.text.setReadOnly(True)
        self.text.setTabChangesFocus(True)
        # nothing of a long line is out of sight
        self.text.setWordWrapMode(QTextOption.WrapMode.WrapAtWordBoundaryOrAnywhere)
        self.text.setAccessibleName("Text of the file")
        self.buttons = QDialogButtonBox(QDialogButtonBox.StandardButton.Ok | QDialogButtonBox.StandardButton.Cancel)
        self.buttons.button(QDialogButtonBox.StandardButton.Ok).setText("Run it")
        self.buttons.button(QDialogButtonBox.StandardButton.Cancel).setDefault(True)
        self.buttons.rejected.connect(self.reject)
        self.buttons.accepted.connect(self.accept)
        self.accepted.connect(partial(_agree, file.sha256, agreed))
        column = QVBoxLayout(self)
        for part in (about, facts, self.unseen, self.text, self.buttons):
            column.addWidget(part)
        self.resize(720, 520)


def _agree(sha256: str, agreed: Callable[[], object]) -> None:
    trust.agree(sha256)
    agreed()
