"""The card below the curves: the network at one step, its layers over all steps, or the loss around the weights."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QFrame, QHBoxLayout, QSizePolicy, QStackedWidget, QTabBar, QWidget

from gradstudio.gui.plots.cliff_page import CliffPage
from gradstudio.gui.plots.layers import LayersPlot
from gradstudio.gui.plots.network_page import NetworkPage
from gradstudio.gui.plots.plot_options import Chosen, Option
from gradstudio.gui.theme import theme
from gradstudio.gui.widgets.roles import role_label
from gradstudio.gui.widgets.rows import NO_MARGINS, in_column
from gradstudio.session.record.run import Run

TITLES: Mapping[str, str] = MappingProxyType({"network": "Network", "layers": "Layers × steps", "cliff": "Cliff"})
HELP: Mapping[str, str] = MappingProxyType(
    {
        "network": "Shows the gradient on its way back through the network, at one step",
        "layers": LayersPlot.help,
        "cliff": "Shows the loss around the weights before a step, and where a max_norm lets the step end",
    }
)


class LayerCard(QFrame):
    """Tabs, the head of the chosen page, and the page. The choice is remembered."""

    def __init__(self, layers: LayersPlot) -> None:
        super().__init__()
        self.setObjectName("card")
        self._chosen = Chosen("layer_card", {"page": Option("Page", TITLES)})
        self.layers, self.network, self.cliff = layers, NetworkPage(layers.step_cursor.looked), CliffPage()
        self.tabs, self._heads, self._pages = QTabBar(), QStackedWidget(), QStackedWidget()
        self.tabs.setAccessibleName("Network and layers")
        self.tabs.setAccessibleDescription("Chooses what this card shows: the network, its layers, or the cliff")
        self.tabs.setDrawBase(False)
        self.tabs.setExpanding(False)
        self.tabs.setUsesScrollButtons(False)
        self.tabs.setElideMode(Qt.TextElideMode.ElideNone)
        self._heads.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
        self._head = QHBoxLayout()
        self._head.setContentsMargins(6, 4, 12, 0)
        self.title = role_label(TITLES["network"], "title")
        self.title.setContentsMargins(4, 0, 0, 0)
        self._head.addWidget(self.title)
        self._head.addWidget(self.tabs)
        self._head.addWidget(self._heads, 1)
        in_column(self._head, (self._pages, 1), of=self, margins=NO_MARGINS, spacing=0)
        self._put("network", self.network, self.network.head)
        self._put("layers", layers, layers.give_head())
        self._put("cliff", self.cliff, self.cliff.head)
        self.show_page(self._chosen["page"])
        self.tabs.currentChanged.connect(self._on_page)
        theme.apply_style(self, self._restyle)

    @property
    def page(self) -> str:
        """The visible page: a key of TITLES."""
        return list(TITLES)[self.tabs.currentIndex()]

    def show_page(self, page: str) -> None:
        self.tabs.setCurrentIndex(list(TITLES).index(page))
        self._heads.setCurrentIndex(self.tabs.currentIndex())
        self._pages.setCurrentIndex(self.tabs.currentIndex())

    def fold(self, folded: bool) -> None:
        """Leave only the tabs, or show the page below them again."""
        if folded == self._pages.isHidden():
            return
        self._pages.setVisible(not folded)
        self.setSizePolicy(
            QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Fixed if folded else QSizePolicy.Policy.Preferred
        )
        self.look_again()

    def refresh(self, run: Run) -> None:
        """Show the run on the visible page; the heatmap is refreshed with the other plots."""
        begun = bool(len(run.history))  # before the first step there is nothing to choose from
        self.tabs.setVisible(begun)
        self.title.setVisible(not begun)
        if self.network.isVisible():
            self.network.refresh(run)

    def look_again(self) -> None:
        self.layers.look_again()

    def take_focus(self) -> None:
        """Give the focus to the visible page."""
        pages = {"network": self.network.picture, "layers": self.layers.widget, "cliff": self.cliff.picture}
        pages[self.page].setFocus()

    # ---- inside

    def _restyle(self) -> None:
        self.network.restyle()
        self.cliff.redraw()

    def _put(self, page: str, widget: QWidget, head: QWidget) -> None:
        place = self.tabs.addTab(TITLES[page])
        self.tabs.setTabToolTip(place, HELP[page])
        self._heads.addWidget(head)
        self._pages.addWidget(widget)

    def _on_page(self) -> None:
        self.show_page(self.page)
        self._chosen.choose("page", self.page)
        self.look_again()
