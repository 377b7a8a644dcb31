"""The common part of the pages Runs and Branches: a list of runs, and below it their number, and buttons for the
commands on the chosen ones."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QPoint, Signal
from PySide6.QtWidgets import QLabel, QLayout, QMenu, QVBoxLayout, QWidget

from gradstudio.gui.runs.row_list import RowList
from gradstudio.gui.runs.run_list_view import RunListView
from gradstudio.gui.runs.run_painter import RunPainter
from gradstudio.gui.theme import theme
from gradstudio.gui.widgets import popups
from gradstudio.gui.widgets.list_keys import key


class ListPanel(QWidget):
    undo_asked = Signal()

    def __init__(self, model: RowList, name: str, about: str, empty: str) -> None:
        super().__init__()
        self.rows = RunPainter()
        self.list, self.count, self.foot = RunListView(model, self.rows, name, about, empty), QLabel(), QWidget()
        self.count.setProperty("role", "dim")
        self.empty = self.list.empty
        self.list.customContextMenuRequested.connect(self._open_menu)
        self.list.selectionModel().selectionChanged.connect(lambda *_: self._show_state())
        self.list.undo_asked.connect(self.undo_asked)

    def choose(self, run: str) -> None:
        """Select a run, if it is listed."""
        model = self.list.model()
        assert isinstance(model, RowList)
        self.list.choose(model.row_of(run))

    # ---- overridden by pages

    def _show_state(self) -> None:
        """Show the count and the possible commands for the runs that are chosen."""
        raise NotImplementedError

    def _fill_menu(self, menu: QMenu) -> None:
        """Add the commands for the chosen runs to the menu at the pointer."""
        raise NotImplementedError

    # ---- inside

    def _add_keys(self, calls: dict[str, Callable[[], object]]) -> None:
        self.list.add_keys(calls)
        self.list.doubleClicked.connect(lambda _: calls["open"]())

    def _open_menu(self, place: QPoint) -> None:
        menu = popups.context_menu(self.list)
        self._fill_menu(menu)
        menu.addAction(f"Undo deletion ({key('undo')})", self.undo_asked.emit)
        menu.popup(self.list.viewport().mapToGlobal(place))

    def _lay_out(
        self, *below: QWidget | QLayout, above: QWidget | None = None, restyle: Callable[[], object] = lambda: None
    ) -> None:
        """Put the list between the parts above and below it, which are styled together."""
        foot, column = QVBoxLayout(self.foot), QVBoxLayout(self)
        foot.setContentsMargins(12, 0, 12, 10)
        foot.setSpacing(6)
        for part in (self.count, *below):
            foot.addLayout(part) if isinstance(part, QLayout) else foot.addWidget(part)
        column.setContentsMargins(0, 0 if above is not None else 4, 0, 0)
        column.setSpacing(6)
        if above is not None:
            column.addWidget(above)
            theme.apply_style(above)
        column.addWidget(self.list, 1)
        column.addWidget(self.foot)
        theme.apply_style(self.foot, restyle)
