"""The right column of the window: one of its pages (pages.py), chosen at the top. It also creates the large pages for
the middle."""

from __future__ import annotations

from collections.abc import Iterator

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QStackedWidget, QWidget

from gradstudio.gui.branches.branches_panel import BranchesPanel
from gradstudio.gui.code.code_panel import CodePanel
from gradstudio.gui.diagnosis.diagnosis_panel import DiagnosisPanel, LessonPage
from gradstudio.gui.gauges.gauges_panel import GaugesPanel
from gradstudio.gui.map.map_panel import MapPanel
from gradstudio.gui.memory.memory_panel import MemoryPanel
from gradstudio.gui.runs.runs_panel import RunsPanel
from gradstudio.gui.services.jobs import Jobs
from gradstudio.gui.shell.page_tabs import PageTabs
from gradstudio.gui.shell.pages import Page
from gradstudio.gui.widgets.plain_grounds import Ground
from gradstudio.gui.widgets.rows import in_column


class SidePanel(Ground):
    page_chosen = Signal(str)

    def __init__(self) -> None:
        super().__init__(line="left")
        self.page: Page = "diagnosis"
        self.tabs = PageTabs()
        self.tabs.page_chosen.connect(self.page_chosen)
        self._pages = QStackedWidget()
        self._panels: dict[Page, QWidget] = {}
        in_column(self.tabs, (self._pages, 1), of=self, margins=(1, 0, 0, 0), spacing=0)

    def furnishing(self, jobs: Jobs) -> Iterator[None]:
        """Add the pages, one in each iteration, in the Tab order."""
        self.diagnosis, self.lesson_page = DiagnosisPanel(), LessonPage(jobs)
        self._put("diagnosis", self.diagnosis)
        yield self._put("lesson", self.lesson_page)
        self.branches = BranchesPanel()
        yield self._put("branches", self.branches)
        self.code = CodePanel()
        yield
        self.runs = RunsPanel()
        yield self._put("runs", self.runs)
        self.gauges = GaugesPanel()
        yield self._put("gauges", self.gauges)
        self.memory = MemoryPanel()
        yield self._put("memory", self.memory)
        self.map = MapPanel()
        self.large: dict[Page, QWidget] = {"code": self.code, "map": self.map}
        self.show_page("diagnosis")
        yield

    def _put(self, page: Page, panel: QWidget) -> None:
        self._panels[page] = panel
        self._pages.addWidget(panel)

    def show_page(self, page: Page) -> None:
        self.page = page
        self.tabs.show_page(page)
        self._pages.setCurrentWidget(self._panels[page])
