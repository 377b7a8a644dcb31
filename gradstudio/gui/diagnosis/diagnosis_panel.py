"""The page Diagnosis: state and findings above, the lesson below. The lesson stays in sight however many findings there
are."""

from __future__ import annotations

from typing import Literal

from PySide6.QtCore import QTimer
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QScrollArea, QVBoxLayout, QWidget

from gradstudio.gui.diagnosis.findings_panel import FindingsPanel
from gradstudio.gui.diagnosis.lesson_panel import LessonPanel
from gradstudio.gui.widgets.plain_grounds import Rule, scrolled

Part = Literal["findings", "lesson"]

LESSON_SHARE = 0.45  # largest share of the height that the lesson keeps where not everything fits


class DiagnosisPanel(QWidget):
    def __init__(self) -> None:
        super().__init__()
        self.findings, self.lesson = FindingsPanel(), LessonPanel()
        self._above, self._below = scrolled(self.findings, "State and findings"), scrolled(self.lesson, "The lesson")
        for area in (self._above, self._below):
            area.setMinimumHeight(1)  # else Qt gives each 70 px, and one with a short text would lie over the other
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(0)
        layout.addWidget(self._above)
        self._rule = Rule()
        layout.addWidget(self._rule)
        self._only: Part | None = None  # what is shown alone
        layout.addWidget(self._below, 1)
        self.lesson.went_on.connect(self._bring_step_into_view)

    @property
    def only(self) -> Part | None:
        """What is shown alone; None where both are."""
        return self._only

    def show_only(self, part: Part | None) -> None:
        """Show the findings alone, or of the lesson the step that is to be done now, or all of both."""
        self._only = part
        self._above.setVisible(part != "lesson")
        self._rule.setVisible(part is None)
        self._below.setVisible(part != "findings")
        self.lesson.show_one_step(part == "lesson")
        self.balance()

    def balance_soon(self) -> None:
        """Balance once Qt has laid out new texts, which it does without the interpreter lock: their height is known
        then."""
        QTimer.singleShot(1, self, self.balance)

    def balance(self) -> None:
        """Give the findings the height that they need, as far as the lesson can spare it."""
        if self._only is not None:
            if self._only == "findings" and self._above.height() != self.height():
                self._above.setFixedHeight(self.height())
            return
        height, room = self._height(self._above), self.height() - self._rule.height()
        spare = int(LESSON_SHARE * self.height())
        if height > room - spare:  # only then is the lesson measured: to lay texts out takes long
            height = min(height, room - min(self._height(self._below), spare))
        height = max(height, 0)
        if height != self._above.height():
            self._above.setFixedHeight(height)

    def bring_into_view(self, part: QWidget) -> None:
        """Scroll to a part of the findings once it is laid out."""
        self.balance()
        QTimer.singleShot(0, self, lambda: self._above.ensureWidgetVisible(part, 0, 8))

    def _bring_step_into_view(self, step: QWidget) -> None:
        """Scroll to the step of the lesson that is to be done now, once it is laid out."""
        QTimer.singleShot(20, step, lambda: self._below.ensureWidgetVisible(step, 0, 8))

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self.balance()

    def _height(self, area: QScrollArea) -> int:
        """Return the height that the texts need at their width, for which Qt remembers it where they did not change."""
        panel = area.widget()
        layout = panel.layout() if panel else None
        assert layout is not None
        return layout.totalHeightForWidth(self.width() - (area.width() - area.viewport().width()))
