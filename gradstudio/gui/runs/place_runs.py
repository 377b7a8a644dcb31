"""The runs in the library of a place: a list, the one that the plots follow, and copies of them here."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from PySide6.QtCore import QObject, Qt, QTimer
from PySide6.QtWidgets import QComboBox, QDialogButtonBox, QLabel, QListWidget, QListWidgetItem

from gradstudio.core import worker_places
from gradstudio.core.text import plural
from gradstudio.core.worker_places import Place, PlaceError
from gradstudio.gui.services.context import Context
from gradstudio.gui.services.jobs import JobError, Task
from gradstudio.gui.services.message_bar import NEWS_STAY, Action
from gradstudio.gui.widgets.popups import TemporaryDialog
from gradstudio.gui.widgets.rows import in_column
from gradstudio.session.library.library_faults import LibraryError
from gradstudio.session.library.requests import Word
from gradstudio.session.library.run_entries import Entry
from gradstudio.session.record.run import Run
from gradstudio.session.remote.place_library import FollowedPlaceRun, PlaceLibrary, import_run
from gradstudio.session.words.run_texts import outcome, when

T = TypeVar("T")

EVERY = 500  # ms between two checks of the followed run
NO_PLACE = "There is no place yet: choose “Add a place…” in the device menu."


class PlaceRuns(QObject):
    """Follows one run of a place as long as the plots show it."""

    def __init__(self, context: Context, parent: QObject) -> None:
        super().__init__(parent)
        self._context = context
        self._followed: FollowedPlaceRun | None = None
        self._timer = QTimer(self, interval=EVERY)
        self._timer.timeout.connect(self._look)
        context.controls.place_asked.connect(self._ask)
        context.controls.request_asked.connect(self._request)

    def _ask(self, place: Place | None) -> None:
        """List the runs of a place, by default the chosen one."""
        try:
            places = [place] if place is not None else list(worker_places.read().values())
        except PlaceError as fault:
            self._context.message.show_error(str(fault))
            return
        if places:
            PlaceRunsDialog(self._context, self, places).open()
        else:
            self._context.message.show_news(NO_PLACE)

    def way_out(self, run: Run) -> Action | None:
        """Return an action that follows a run that may continue at its place, though the connection broke; None for any
        other."""
        place = self._context.simulator.present_place
        if place is None or not place.keep or run.never_began:
            return None
        library = self._context.simulator.library_at(place)
        return "Follow it there", partial(self.show, library, run.id, run.title)

    def show(self, library: PlaceLibrary, run: str, title: str) -> None:
        """Show a run in the plots, and follow it if it is still training."""

        def find() -> FollowedPlaceRun:
            followed = library.follow(run)
            followed.wait()
            return followed

        self._context.jobs.start(f"Opening {title} of {library.place.name}", job(find), self._follow)

    def _follow(self, followed: FollowedPlaceRun) -> None:
        assert followed.run is not None
        self._context.controls.show_stored(followed.run)
        self._forget()
        self._followed = followed
        self._timer.start()

    def _look(self) -> None:
        followed, run = self._followed, self._context.simulator.run
        if followed is None or followed.run is not run:
            self._forget()
            return
        self._context.controls.knobs_changed.emit()
        if followed.over:
            self._timer.stop()  # requests for it go there all the same
            if followed.problem:
                again = ("Follow it again", partial(self.show, followed.library, run.id, run.title))
                self._context.message.show_error(f"This run is followed no more: {followed.problem}", action=again)

    def _forget(self) -> None:
        self._timer.stop()
        if self._followed is not None:
            self._followed.stop()
            self._followed = None

    def _request(self, word: Word, factor: float) -> None:
        """Send a request to the program that trains the run there."""
        followed = self._followed
        run = self._context.simulator.run
        if followed is None or followed.run is not run:
            return

        told = f"Asked on {followed.library.place.name}: it obeys at its next step."
        ask = job(partial(followed.library.request, run.id, word, factor))
        self._context.jobs.start("", ask, lambda _: self._context.message.show_news(told))


def job(ask: Callable[[], T]) -> Callable[[Task], T]:
    """Return the job that queries a place, and reports in a line why there is no answer."""

    def work(task: Task) -> T:
        try:
            return ask()
        except LibraryError as fault:
            raise JobError(str(fault)) from None

    return work


class PlaceRunsDialog(TemporaryDialog):
    """Lists the runs of one place."""

    def __init__(self, context: Context, runs: PlaceRuns, places: list[Place]) -> None:
        super().__init__(context.parent, "Runs of a place")
        self._context, self._runs, self._places = context, runs, places
        self._library: PlaceLibrary | None = None
        self._entries: list[Entry] = []
        self.choice, self.list, self.told = QComboBox(), QListWidget(), QLabel()
        self.choice.addItems([place.name for place in places])
        self.choice.setAccessibleName("Place")
        self.choice.currentIndexChanged.connect(self._look)
        self.list.setAccessibleName("Runs of the place, newest first")
        self.list.itemActivated.connect(self._show)
        self.list.currentRowChanged.connect(self._allow)
        self.told.setWordWrap(True)
        self.told.setTextFormat(Qt.TextFormat.PlainText)
        buttons = QDialogButtonBox(QDialogButtonBox.StandardButton.Close)
        self.show_button = buttons.addButton("Show in plots", QDialogButtonBox.ButtonRole.ActionRole)
        self.copy_button = buttons.addButton("Copy home", QDialogButtonBox.ButtonRole.ActionRole)
        self.show_button.setToolTip("Shows the run in the plots, and follows it while it trains there")
        self.copy_button.setToolTip("Puts a copy of the run into the library here")
        self.show_button.clicked.connect(self._show)
        self.copy_button.clicked.connect(self._copy)
        buttons.rejected.connect(self.reject)
        in_column(self.choice, self.list, self.told, buttons, of=self)
        self.resize(640, 420)
        self._open = True
        self.finished.connect(self._leave)
        self._look()

    def _look(self) -> None:
        """Query the chosen place for its runs."""
        library = self._library = self._context.simulator.library_at(self._places[self.choice.currentIndex()])
        self.list.clear()
        self._allow()
        self.told.setText(f"Asking {library.place.name} …")

        done, failed = partial(self._take, library), partial(self._on_failed, library)
        self._context.jobs.start("", job(library.entries), done, failed)

    def _take(self, library: PlaceLibrary, entries: list[Entry]) -> None:
        if not self._open or library is not self._library:
            return
        self._entries = entries
        now = time.time()
        for entry in entries:
            steps = plural(entry.steps, "step", "steps")
            text = f"{entry.title}   {outcome(entry)[0]}, {steps}, {when(entry.started, now)}"
            self.list.addItem(QListWidgetItem(text))
        self.told.setText("" if entries else f"{library.place.name} has no runs yet.")
        self.list.setCurrentRow(0)

    def _on_failed(self, library: PlaceLibrary, task: Task) -> None:
        if self._open and library is self._library:
            self.told.setText(task.problem)

    def _allow(self) -> None:
        for button in (self.show_button, self.copy_button):
            button.setEnabled(self.list.currentRow() >= 0)

    def _show(self) -> None:
        if self._library is not None and self.list.currentRow() >= 0:
            entry = self._entries[self.list.currentRow()]
            self._runs.show(self._library, entry.id, entry.title)
            self.accept()

    def _copy(self) -> None:
        library, context = self._library, self._context
        if library is None or self.list.currentRow() < 0:
            return
        entry = self._entries[self.list.currentRow()]

        def put(content: memoryview) -> None:
            done = f"{entry.title} of {library.place.name} is in the library here."
            action = ("Open it", partial(context.controls.open_asked.emit, entry.id))
            context.library.ask(
                lambda kept: import_run(kept, content),
                lambda _: context.message.show_news(done, action=action, stay=NEWS_STAY),
            )

        context.jobs.start(f"Copying {entry.title} of {library.place.name}", job(partial(library.fetch, entry.id)), put)

    def _leave(self) -> None:
        self._open = False
