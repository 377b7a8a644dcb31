"""The services of the program for panels and controllers, so that none of them knows the window."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from PySide6.QtWidgets import QWidget

from gradstudio.gui.services.file_jobs import FileJobs
from gradstudio.gui.services.jobs import Jobs
from gradstudio.gui.services.library_reader import LibraryReader
from gradstudio.gui.services.message_bar import MessageBar
from gradstudio.gui.services.simulator_controller import SimulatorController
from gradstudio.gui.widgets.viewed_step import ViewedStep
from gradstudio.session.simulator import Simulator


class ShowLarge(Protocol):
    def __call__(
        self, page: QWidget, title: str, put_away: Callable[[], object] | None = None, *, alone: bool = False
    ) -> object: ...


@dataclass(frozen=True)
class Context:
    """Services of one window. Only the GUI thread uses them."""

    parent: QWidget  # of the opened dialogs
    simulator: Simulator
    controls: SimulatorController
    message: MessageBar
    jobs: Jobs
    files: FileJobs
    library: LibraryReader
    # A page in the middle, in place of the plots; `put_away`: called once it is no longer visible; `alone`: without the
    # parts around it, which are about another run
    show_large: ShowLarge
    close_large: Callable[[], object]  # the plots again
    looked: ViewedStep
