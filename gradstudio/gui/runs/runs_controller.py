"""Connects the page Runs, the library, the overlays of the plots and the simulator."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from PySide6.QtCore import QObject, QTimer, Signal

from gradstudio.core.text import plural
from gradstudio.gui.drawing.overlay import MOST, Overlaid, Overlays
from gradstudio.gui.runs import note_view
from gradstudio.gui.runs.baseline import Baseline
from gradstudio.gui.runs.comparison_page import ComparisonPage
from gradstudio.gui.runs.deletions import RETRY, Deletions
from gradstudio.gui.runs.live_run import LiveRun
from gradstudio.gui.runs.place_runs import PlaceRuns
from gradstudio.gui.runs.run_overlay import overlaid
from gradstudio.gui.runs.runs_panel import RunsPanel
from gradstudio.gui.runs.several_runs import SeveralRuns
from gradstudio.gui.services import recent
from gradstudio.gui.services.context import Context
from gradstudio.gui.services.jobs import Task
from gradstudio.session.files import comparison
from gradstudio.session.files.run_files import as_preset
from gradstudio.session.library.library_faults import LibraryError
from gradstudio.session.library.run_entries import Entry
from gradstudio.session.library.store import Library
from gradstudio.session.record.run import OVER, Run

SIDE_BY_SIDE = 3  # runs that are compared beside knobs and pages; more take the whole window
FAMILY = 12  # most runs of a family that are loaded to show one of them
FORGOTTEN = 3600.0  # seconds after which deleted runs of other windows are removed from the library

FoundEntries = tuple[int, list[Entry]]


class RunsController(QObject):
    member_asked = Signal(str)  # id of a run of the current family that is to be shown
    member_ticked = Signal(str, bool)  # a run of this family is to be drawn over the plots, or no longer

    def __init__(self, context: Context, panel: RunsPanel, overlays: Overlays) -> None:
        super().__init__(panel)
        self._context, self._library = context, context.library
        self._panel, self._overlays = panel, overlays
        self._version: int | None = None  # version of the library that the panel shows
        self._looking = self._look_again = self._looked = False
        self._loading: set[str] = set()  # runs that are being loaded to be drawn over the plots
        self._live, self.places = LiveRun(context, self), PlaceRuns(context, self)
        self._shown: Run | None = None  # the run that the plots showed at the last check
        self.baseline = Baseline(context, overlays)
        self.deletions = Deletions(context, self)
        self.deletions.deleted.connect(lambda runs: overlays.remove(*runs))
        self.deletions.changed.connect(self._look_despite_version)
        panel.look_asked.connect(self.look)
        panel.open_asked.connect(self.open)
        panel.again_asked.connect(self.run_again)
        panel.compare_asked.connect(self.compare_chosen)
        panel.delete_asked.connect(self.delete)
        several = SeveralRuns(context, self, self._look_despite_version)
        panel.tags_asked.connect(several.ask_tags)
        panel.reports_asked.connect(several.ask_folder)
        panel.draw_asked.connect(self._draw_all)
        panel.undo_asked.connect(self.deletions.undo)
        panel.model.ticked.connect(self.tick)
        panel.notes.left.connect(self._annotate)
        panel.notes.view.link_asked.connect(self._offer_link)
        self._overlays.changed.connect(self.mark)

    # ---- the list

    def look(self) -> None:
        """Update the list if the library has changed."""
        if self._looking:
            self._look_again = True
            return
        self._looking, self._look_again = True, False
        known, first, self._looked = self._version, not self._looked, True
        # A run that was killed is recognized as interrupted only by another check.
        alive = any(entry.outcome not in OVER for entry in self._panel.model.all)

        def find(library: Library) -> FoundEntries | None:
            version = library.version()
            if first:
                library.purge(older_than=FORGOTTEN)  # a window that was killed could not do so
            return None if version == known and not alive else (version, library.entries())

        def on_failed(task: Task) -> None:
            self._looking = False
            self._context.jobs.tell(task)

        self._library.ask(find, self._on_entries, on_failed, "Reading the list of runs")

    def mark(self) -> None:
        """Mark in the list the runs that the plots show, and draw the baseline over another run."""
        self.baseline.draw()
        self._remember()
        self._panel.model.mark(self._overlays.slots, self._context.simulator.run.id)

    def _remember(self) -> None:
        """Remember the run that the plots leave, if it has made a step, among the recently opened ones."""
        left, self._shown = self._shown, self._context.simulator.run
        if left is not None and left is not self._shown and len(left.history):
            recent.remember_run(left)

    # ---- one run

    def open(self, run: str, tries: int = 8) -> None:
        """Show a run in the plots, with its knobs, and follow it if another program trains it; a run that was just
        stopped may need a moment until it is written."""
        if run == self._context.simulator.run.id:
            self._context.message.show_news("This run is shown in the plots already.")
            return
        if run in self._context.simulator.family.members:
            self.member_asked.emit(run)
            return
        leaving = self._context.simulator.leaves(run)  # the thread may read it before its end is written

        def load(library: Library) -> tuple[Run, list[Run]]:
            opened = library.load(run)
            return opened, relatives(library, opened) if opened.over else []

        def on_loaded(loaded: tuple[Run, list[Run]]) -> None:
            opened, family = loaded
            if self._context.simulator.leaves(run) or (leaving and not opened.over):
                later("it was told to stop, and is still in a step.")
                return
            self._context.controls.show_stored(opened, family)
            if not opened.over:
                self._live.follow(opened)

        def later(why: str) -> None:
            if not tries:
                self._context.message.show_error(f"The run cannot be opened: {why}")
                return
            self._context.message.show_news("The run cannot be opened yet; it is tried again.")
            QTimer.singleShot(RETRY, self, lambda: self.open(run, tries - 1))

        def on_failed(task: Task) -> None:
            self._context.jobs.tell(task) if task.cancelled else later(task.problem)

        self._library.ask(load, on_loaded, on_failed, f"Opening the run {self._title(run)}", can_cancel=True)

    def run_again(self, run: str) -> None:
        """Start a new run with the knobs and the timeline of a run."""

        def begin(runs: list[Run]) -> None:
            if runs[0].watched is not None:
                self._context.message.show_error(
                    f"{runs[0].title} was watched in a script of its own: run that script again."
                )
            else:
                self._context.controls.run_again(as_preset(runs[0]))

        self._load([run], begin)

    def rename(self, run: Run, tries: int = 8) -> None:
        """Store the title of a finished run; a run in progress stores its own. It is retried if another program has
        locked the library."""

        def later(task: Task) -> None:
            if tries:
                QTimer.singleShot(RETRY, self, lambda: self.rename(run, tries - 1))
            else:
                self._context.message.show_error(f"The run has its old name in the run library: {task.problem}")

        if run.over:
            self._library.ask(
                lambda library: library.rename(run.id, run.title), lambda _: self._look_despite_version(), later
            )

    # ---- several

    def tick(self, run: str, wanted: bool) -> None:
        """Draw a run over the plots, or remove it."""
        if not wanted:
            self._overlays.remove(run)
        elif sum(place < MOST for place in self._overlays.places) + len(self._loading) >= MOST:
            self._context.message.show_error(f"{MOST} runs can be drawn over the plots; take one off first.")
        elif run in self._context.simulator.family.members:
            self.member_ticked.emit(run, wanted)
        elif run not in self._loading:
            self._loading.add(run)

            def on_failed(task: Task) -> None:
                self._loading.discard(run)
                self._context.jobs.tell(task)

            words = f"Reading the run {self._title(run)}"
            load = lambda library: overlaid(library.load(run))  # noqa: E731
            self._library.ask(load, self._draw_over, on_failed, words, can_cancel=True)

    def _draw_all(self, entries: list[Entry]) -> None:
        for entry in entries:
            if entry.id not in self._overlays.slots and entry.id != self._context.simulator.run.id:
                self.tick(entry.id, True)

    def compare_chosen(self, runs: list[str]) -> None:
        """Compare these runs in a table."""
        self._load(runs, self._compare)

    def compare_drawn(self) -> None:
        """Compare the run of the plots with the runs that are drawn over it."""
        over = [drawn.run for drawn in self._overlays.by_place.values() if drawn.run is not None]
        current = self._context.simulator.run
        here = [current] if self._context.simulator.has_begun and current.id not in [run.id for run in over] else []
        self._compare([*here, *over])

    def delete(self, runs: list[str]) -> None:
        """Delete runs; this can be undone for some minutes."""
        entry = self._panel.model.entry(runs[0])
        what = f"“{entry.title}”" if entry and len(runs) == 1 else plural(len(runs), "run", "runs")
        self.deletions.delete(runs, what)

    def stop(self) -> None:
        """Save notes and permanently remove deleted runs before the window closes."""
        self._panel.notes.save()
        run = self._context.simulator.run
        if len(run.history):
            recent.remember_run(run)
        self.deletions.stop()
        self._library.close()

    # ---- inside

    def _title(self, run: str) -> str:
        """Return the title of a run of the list, or else its id."""
        entry = self._panel.model.entry(run)
        return f"“{entry.title}”" if entry is not None else run

    def _on_entries(self, reading: FoundEntries | None) -> None:
        self._looking = False
        if reading is not None:
            self._version = None if self._look_again else reading[0]
            self._panel.take(reading[1])
        self.mark()
        if self._look_again and self._version is None:
            self.look()

    def _look_despite_version(self) -> None:
        """Update although the version of the library is the same, as it is after a change by this very connection."""
        self._version = None
        self.look()

    def _load(self, runs: list[str], done: Callable[[list[Run]], object]) -> None:
        def load(library: Library) -> list[Run]:
            return [library.load(run) for run in runs]

        self._library.ask(load, done, words=f"Reading {plural(len(runs), 'run', 'runs')}", can_cancel=True)

    def _draw_over(self, drawn: Overlaid) -> None:
        self._loading.discard(drawn.id)
        if self._overlays.full:
            return
        self._overlays.add(drawn)

    def _compare(self, runs: list[Run]) -> None:
        slots = self._overlays.slots
        try:
            compared = comparison.compare(runs)
        except comparison.ComparisonError as fault:
            self._context.message.show_error(str(fault))
            return
        page = ComparisonPage(compared, runs, [slots.get(run.id) for run in runs])
        self._context.show_large(
            page, f"Comparison of {len(runs)} runs", page.deleteLater, alone=len(runs) > SIDE_BY_SIDE
        )

    def _offer_link(self, link: str) -> None:
        """Show where a link of a note leads, and open it only if the user agrees."""
        self._context.message.show_news(
            f"The note links to {link}", action=("Open link", lambda: note_view.follow(link))
        )

    def _annotate(self, run: str, note: str, tags: tuple[str, ...]) -> None:
        self._library.ask(
            lambda library: library.annotate(run, note=note, tags=tags), lambda _: self._look_despite_version()
        )


def relatives(library: Library, run: Run) -> list[Run]:
    """Return the nearest relatives of a run that are over, with everything in between, in the order in which they
    began."""
    entries = {entry.id: entry for entry in library.entries() if entry.outcome in OVER}
    near = [run.id]
    for member in near:
        if len(near) >= FAMILY:
            break
        stem = entries[member].parent if member in entries else run.parent
        near += [id for id, entry in entries.items() if id not in near and (entry.parent == member or id == stem)]
    nearest = []
    for member in sorted(near[1:FAMILY], key=lambda id: entries[id].started):
        with contextlib.suppress(LibraryError):  # a damaged run does not hide the others
            nearest.append(library.load(member))
    return nearest
