"""The right side of the window: words, branches, code, runs or gauges, chosen at its top."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QButtonGroup, QFrame, QHBoxLayout, QPushButton, QStackedWidget, QVBoxLayout, QWidget

from gradstudio.gui.branches_panel import BranchesPanel
from gradstudio.gui.code_panel import CodePanel
from gradstudio.gui.gauges_panel import GaugesPanel
from gradstudio.gui.pages import PAGES, Page
from gradstudio.gui.runs_panel import RunsPanel
from gradstudio.gui.words_panel import WordsPanel


class SidePanel(QWidget):
    page_chosen = Signal(str)

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("right")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.words, self.branches, self.code, self.runs, self.gauges = WordsPanel(), BranchesPanel(), CodePanel(), RunsPanel(), GaugesPanel()
        pages: dict[Page, QWidget] = {
            "words": self.words, "branches": self.branches, "code": self.code, "runs": self.runs, "gauges": self.gauges,
        }  # fmt: skip
        self.page: Page = "words"
        frame = QFrame()
        frame.setObjectName("segments")
        row = QHBoxLayout(frame)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(0)
        group = QButtonGroup(frame)
        self.buttons: dict[Page, QPushButton] = {}
        self._pages = QStackedWidget()
        for page, (title, help_text) in PAGES.items():
            button = self.buttons[page] = QPushButton(title)
            button.setCheckable(True)
            button.setProperty("role", "segment")
            button.setFocusPolicy(Qt.FocusPolicy.TabFocus)
            button.setToolTip(help_text)
            button.setAccessibleDescription(help_text)
            button.clicked.connect(lambda _=False, page=page: self.page_chosen.emit(page))
            group.addButton(button)
            row.addWidget(button, len(title) + 2)
            self._pages.addWidget(pages[page])
        top = QHBoxLayout()
        top.setContentsMargins(12, 10, 12, 4)
        top.addWidget(frame)
        column = QVBoxLayout(self)
        column.setContentsMargins(1, 0, 0, 0)
        column.setSpacing(0)
        column.addLayout(top)
        column.addWidget(self._pages, 1)
        self.show_page("words")

    def show_page(self, page: Page) -> None:
        self.page = page
        self.buttons[page].setChecked(True)
        self._pages.setCurrentIndex(list(PAGES).index(page))
