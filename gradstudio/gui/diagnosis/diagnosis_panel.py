"""The pages Diagnosis and Lesson."""

from __future__ import annotations

from gradstudio.gui.diagnosis.findings_panel import FindingsPanel
from gradstudio.gui.diagnosis.lesson_panel import LessonPanel
from gradstudio.gui.services.jobs import Jobs
from gradstudio.gui.widgets.column_page import ColumnPage


class DiagnosisPanel(ColumnPage):
    """The state of the run, its findings, and the fixes that were tried."""

    def __init__(self) -> None:
        self.findings = FindingsPanel()
        super().__init__(self.findings, "State and findings")
        self.findings.news.connect(self.bring_into_view)


class LessonPage(ColumnPage):
    """The lesson of the preset."""

    def __init__(self, jobs: Jobs) -> None:
        self.lesson = LessonPanel(jobs)
        super().__init__(self.lesson, "The lesson")
        self.lesson.went_on.connect(self.bring_into_view)
        self.lesson.began.connect(self.to_the_top)
