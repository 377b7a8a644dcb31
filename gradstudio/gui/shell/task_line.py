"""The background work of the window, at its foot: its description, its progress, and a button that cancels it."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QLabel, QProgressBar, QPushButton, QWidget

from gradstudio.gui.services.jobs import Jobs, Task
from gradstudio.gui.theme import theme
from gradstudio.gui.widgets.rows import in_row

BAR = 84  # px at normal text
SHAPES = ((260, True), (130, True), (130, False), (0, True), (0, False))  # px of the words, and whether with the bar


class TaskLine(QWidget):
    """Shown only while something takes longer than half a second. It shows the oldest task, and the number of
    others."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.bar, self.cancel = QLabel(), QProgressBar(), QPushButton("Cancel")
        self.setMinimumWidth(1)  # otherwise Qt widens the window for it, or cuts the figures beside it
        self.words.setTextFormat(Qt.TextFormat.PlainText)
        self.bar.setTextVisible(False)
        self.bar.setFixedHeight(6)
        self.bar.setAccessibleName("How far it is")
        self.cancel.setProperty("role", "small")
        self.cancel.clicked.connect(self._cancel)
        self._task: Task | None = None
        self._told: tuple = ()  # what was fitted last, and its room
        self._fits = True
        in_row(self.words, self.bar, self.cancel, of=self, margins=(12, 0, 8, 0), spacing=8)
        self.hide()

    def refresh(self, jobs: Jobs, room: int) -> None:
        """Show the current tasks, in this many pixels of width. Cheap when there are none."""
        shown = jobs.long
        self._task = shown[0] if shown else None
        if self._task is None:
            if not self.isHidden():
                self.hide()
            return
        task = self._task
        counted = f", {task.done:,} of {task.parts:,}" if task.parts > 1 else f", {task.seconds:.0f} s"
        others = f" (and {len(shown) - 1} more)" if len(shown) > 1 else ""
        self.words.setToolTip(task.words)
        self.bar.setRange(0, task.parts if task.parts > 1 else 0)  # 0 to 0: it moves, as the total is unknown
        self.bar.setValue(task.done)
        self.cancel.setVisible(task.can_cancel)
        self.cancel.setAccessibleName(f"Cancel: {task.words}")
        self.cancel.setToolTip(f"Cancels this: {task.words}. Nothing is left half written")
        told = (task.words, f"{counted}{others}", room, theme.zoom, theme.dark)
        if told != self._told:
            self._told, self._fits = told, self._fit(task.words, f"{counted}{others}", room)
        self.setVisible(self._fits)

    def _fit(self, words: str, ending: str, room: int) -> bool:
        """Show it as fully as there is room for; return whether there is any. The figures beside it are never cut."""
        self.bar.setFixedWidth(round(BAR * theme.zoom))
        for longest, with_bar in SHAPES:
            cut = self.words.fontMetrics().elidedText(words, Qt.TextElideMode.ElideMiddle, round(longest * theme.zoom))
            self.words.setText(f"{cut}{ending}" if longest else "")
            self.words.setVisible(longest > 0)
            self.bar.setVisible(with_bar)
            if self.sizeHint().width() <= room:
                return True
        return False

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self.hide()
