"""What the window does in the background, at its foot: what it is, how far it is, and a button that cancels it."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QHBoxLayout, QLabel, QProgressBar, QPushButton, QWidget

from gradstudio.gui.services.tasks import Task, Tasks
from gradstudio.gui.theme import theme

LONGEST = 260  # px of the words at normal text
BAR = 84  # px


class TaskLine(QWidget):
    """Shown only while something takes longer than half a second. It tells of the oldest task, and how many others
    there are."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.bar, self.cancel = QLabel(), QProgressBar(), QPushButton("Cancel")
        self.words.setTextFormat(Qt.TextFormat.PlainText)
        self.bar.setTextVisible(False)
        self.bar.setFixedHeight(6)
        self.bar.setAccessibleName("How far it is")
        self.cancel.setProperty("role", "small")
        self.cancel.clicked.connect(self._cancel)
        self._task: Task | None = None
        row = QHBoxLayout(self)
        row.setContentsMargins(12, 0, 8, 0)
        row.setSpacing(8)
        for part in (self.words, self.bar, self.cancel):
            row.addWidget(part)
        self.hide()

    def refresh(self, tasks: Tasks) -> None:
        """Show the tasks as they are now. Cheap while there is none."""
        shown = tasks.long
        self._task = shown[0] if shown else None
        if self._task is None:
            if not self.isHidden():
                self.hide()
            return
        task = self._task
        counted = f", {task.done:,} of {task.parts:,}" if task.parts > 1 else f", {task.seconds:.0f} s"
        others = f" (and {len(shown) - 1} more)" if len(shown) > 1 else ""
        words = self.words.fontMetrics().elidedText(
            task.words, Qt.TextElideMode.ElideMiddle, round(LONGEST * theme.zoom)
        )
        self.words.setText(f"{words}{counted}{others}")
        self.words.setToolTip(task.words)
        self.bar.setFixedWidth(round(BAR * theme.zoom))
        self.bar.setRange(0, task.parts if task.parts > 1 else 0)  # 0 to 0: it moves, as nobody knows
        self.bar.setValue(task.done)
        self.cancel.setVisible(task.can_cancel)
        self.cancel.setAccessibleName(f"Cancel: {task.words}")
        self.cancel.setToolTip(f"Cancels this: {task.words}. Nothing is left half written")
        self.show()

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self.hide()
