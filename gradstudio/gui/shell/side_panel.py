"""The right column of the window: one of its pages (pages.py), chosen at the top. It also makes the pages that open
large, in the middle."""

from __future__ import annotations

from collections.abc import Iterator

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QButtonGroup, QFrame, QHBoxLayout, QPushButton, QStackedWidget, QVBoxLayout, QWidget

from gradstudio.gui.branches.branches_panel import BranchesPanel
from gradstudio.gui.code.code_panel import CodePanel
from gradstudio.gui.diagnosis.diagnosis_panel import DiagnosisPanel
from gradstudio.gui.gauges.gauges_panel import GaugesPanel
from gradstudio.gui.map.map_panel import MapPanel
from gradstudio.gui.memory.memory_panel import MemoryPanel
from gradstudio.gui.runs.runs_panel import RunsPanel
from gradstudio.gui.shell.pages import LARGE, PAGE_HELP, PAGES, Page
from gradstudio.gui.theme import theme
from gradstudio.gui.widgets.plain_grounds import Ground


class SidePanel(Ground):
    page_chosen = Signal(str)

    def __init__(self) -> None:
        super().__init__(line="left")
        self.page: Page = "diagnosis"
        frame = self.segments = QFrame()
        frame.setObjectName("segments")
        row = QHBoxLayout(frame)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(0)
        group = QButtonGroup(frame)
        self.buttons: dict[Page, QPushButton] = {}
        self._pages = QStackedWidget()
        tabs: list[Page] = [page for page in PAGES if page not in LARGE]
        for page in tabs:
            title = PAGES[page]
            button = self.buttons[page] = QPushButton(title)
            button.setCheckable(True)
            button.setProperty("role", "segment")
            button.setFocusPolicy(Qt.FocusPolicy.TabFocus)
            button.setToolTip(PAGE_HELP[page])
            button.setAccessibleDescription(PAGE_HELP[page])
            button.clicked.connect(lambda _=False, page=page: self.page_chosen.emit(page))
            group.addButton(button)
            row.addWidget(button, button.fontMetrics().horizontalAdvance(title) + 4)
        top = QHBoxLayout()
        top.setContentsMargins(4, 10, 4, 4)
        top.addWidget(frame)
        column = QVBoxLayout(self)
        column.setContentsMargins(1, 0, 0, 0)
        column.setSpacing(0)
        column.addLayout(top)
        column.addWidget(self._pages, 1)
        theme.dress(frame)

    def furnishing(self) -> Iterator[None]:
        """Put in the pages, one each time that it is asked, as they stand in PAGES."""
        self.diagnosis = DiagnosisPanel()
        yield self._put(self.diagnosis)
        self.branches = BranchesPanel()
        yield self._put(self.branches)
        self.code = CodePanel()
        yield
        self.runs = RunsPanel()
        yield self._put(self.runs)
        self.gauges = GaugesPanel()
        yield self._put(self.gauges)
        self.memory = MemoryPanel()
        yield self._put(self.memory)
        self.map = MapPanel()
        self.large: dict[Page, QWidget] = {"code": self.code, "map": self.map}
        self.show_page("diagnosis")
        yield

    def _put(self, panel: QWidget) -> None:
        self._pages.addWidget(panel)

    def show_page(self, page: Page) -> None:
        self.page = page
        self.buttons[page].setChecked(True)
        self._pages.setCurrentIndex(list(self.buttons).index(page))
