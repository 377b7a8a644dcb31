"""The projector view: large type, high contrast, and nothing but the plots and one card."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, QRect, QSize, Qt
from PySide6.QtWidgets import QMainWindow

from gradstudio.gui.shell.figures_bar import FiguresBar
from gradstudio.gui.shell.top_bar import TopBar
from gradstudio.gui.shell.window_columns import Columns
from gradstudio.gui.theme import theme

if TYPE_CHECKING:
    from gradstudio.gui.diagnosis.lesson_panel import LessonPanel
    from gradstudio.gui.plots.plot_stack import PlotStack

QWIDGETSIZE_MAX = (1 << 24) - 1  # Qt's own, which PySide does not have


class ProjectorView(QObject):
    """The parts of the window that differ on a projector. `on`: whether it is active."""

    def __init__(self, window: QMainWindow, top: TopBar, columns: Columns, figures: FiguresBar) -> None:
        super().__init__(window)
        self._window, self._top, self._columns, self._figures = window, top, columns, figures
        # the functions that restore the window, in the order in which they are called
        self._back: list[Callable[[], object]] = []

    def furnish(self, plots: PlotStack, lesson: LessonPanel) -> None:
        """Receive the parts that are created last."""
        self._plots, self._lesson = plots, lesson

    @property
    def on(self) -> bool:
        return bool(self._back)

    def toggle(self) -> None:
        """Enter it, with the lesson as its card, or the findings if the preset has no lesson; or leave it."""
        if self.on:
            self.leave()
            return
        window, state = self._window, self._window.windowState()
        self._back = [
            partial(self._put_back, state, window.geometry(), window.minimumSize()),  # first: columns need the room
            partial(theme.project, False),
            self._show_bars,
            self._plots.project(),
            self._columns.project(),
            partial(self._lesson.show_one_step, False),
        ]
        window.setMinimumSize(1, 1)  # a projector of 1024 x 768 is narrower than the usual minimum of the window
        window.menuBar().setMaximumHeight(0)  # a hidden one takes its keys with it
        self._top.show_state_alone(True)
        self._figures.hide()
        self._lesson.show_one_step(True)
        self._columns.show_page("lesson" if self._lesson.steps else "diagnosis")
        theme.project(True)
        window.setWindowState(state | Qt.WindowState.WindowFullScreen)

    def change_card(self) -> None:
        """Show the findings in place of the lesson, or the lesson again; enter the view first if it is off."""
        if not self.on:
            self.toggle()
        elif self._columns.page == "lesson" or not self._lesson.steps:
            self._columns.show_page("diagnosis")
        else:
            self._columns.show_page("lesson")

    def leave(self) -> None:
        """Restore the window."""
        back, self._back = self._back, []
        for each in back:
            each()

    def _put_back(self, state: Qt.WindowState, place: QRect, least: QSize) -> None:
        self._window.setWindowState(state)
        self._window.setMinimumSize(least)
        if not state & (Qt.WindowState.WindowFullScreen | Qt.WindowState.WindowMaximized):
            self._window.setGeometry(place)  # not only the size: the frame would move

    def _show_bars(self) -> None:
        self._window.menuBar().setMaximumHeight(QWIDGETSIZE_MAX)
        self._top.show_state_alone(False)
        self._figures.show()
