"""Fixes that were tried on a crash file: one below the other, the best first, with the lines of code to change."""

from __future__ import annotations

from PySide6.QtCore import Qt, QTimer
from PySide6.QtGui import QFontDatabase
from PySide6.QtWidgets import QApplication, QLabel, QPushButton, QWidget

from gradstudio.core.text import plural
from gradstudio.gui.widgets.roles import role_label
from gradstudio.gui.widgets.rows import in_column, in_row
from gradstudio.session.files.crash_answers import TriedFix

COPIED = 1500  # ms for which a button confirms that it has copied


class FixRow(QWidget):
    def __init__(self, fix: TriedFix) -> None:
        super().__init__()
        self.fix = fix
        mark = role_label("✓" if fix.held else "✗", "good" if fix.held else "over")
        head = in_row(mark, (_wrapped(role_label(fix.fix, "title")), 1))
        self.setAccessibleName(fix.words)
        words = _wrapped(role_label(fix.words.removeprefix(f"{fix.fix}: "), "dim"))
        column = in_column(head, words, of=self, margins=(0, 4, 0, 6), spacing=3)
        if not fix.held:
            return
        self.copy = QPushButton("Copy")
        self.copy.setProperty("role", "small")
        self.copy.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.copy.setToolTip("Copies the lines of code to change in the script")
        self.copy.setAccessibleName(f"Copy the code of: {fix.fix}")
        self.copy.clicked.connect(self._copy)
        head.addWidget(self.copy)
        code = _wrapped(QLabel("\n".join(fix.lines)))
        code.setFont(QFontDatabase.systemFont(QFontDatabase.SystemFont.FixedFont))
        code.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        column.addWidget(code)

    def _copy(self) -> None:
        QApplication.clipboard().setText("\n".join(self.fix.lines))
        self.copy.setText("Copied")
        QTimer.singleShot(COPIED, self.copy, lambda: self.copy.setText("Copy"))


class FixRows(QWidget):
    """The rows, below a line with the number of fixes that hold."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[FixRow] = []
        self.heading = role_label("", "heading")
        self._column = in_column(self.heading, of=self, margins=(0, 8, 0, 0))
        self.hide()

    def show_fixes(self, fixes: list[TriedFix]) -> None:
        for row in self.rows:
            row.deleteLater()
        held = sum(each.held for each in fixes)
        self.heading.setText(f"{held} of {plural(len(fixes), 'fix', 'fixes')} hold")
        self.rows = [FixRow(each) for each in fixes]
        for row in self.rows:
            self._column.addWidget(row)
        self.show()


def _wrapped(label: QLabel) -> QLabel:
    label.setWordWrap(True)
    label.setTextFormat(Qt.TextFormat.PlainText)
    return label
