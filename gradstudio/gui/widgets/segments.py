"""Buttons of which one is chosen, as one control."""

from __future__ import annotations

from PySide6.QtWidgets import QButtonGroup, QFrame, QPushButton

from gradstudio.gui.widgets.rows import NO_MARGINS, in_row


class Segments(QFrame):
    def __init__(self, *buttons: QPushButton, stretch: int = 0) -> None:
        super().__init__()
        self.setObjectName("segments")
        in_row(*[(button, stretch) for button in buttons], of=self, margins=NO_MARGINS, spacing=0)
        self.group = QButtonGroup(self)
        for button in buttons:
            button.setCheckable(True)
            button.setProperty("role", "segment")
            self.group.addButton(button)
