"""What is done with the runs of the library: between the panel that lists them, the library, the plots and the simulator."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from PySide6.QtCore import QObject, QTimer

from gradstudio.core.text import plural
from gradstudio.gui import run_words
from gradstudio.gui.comparison_dialog import ComparisonDialog
from gradstudio.gui.librarian import Librarian
from gradstudio.gui.plots.overlay import MOST, Overlaid
from gradstudio.gui.plots.smoother import Smoother
from gradstudio.session import comparison
from gradstudio.session.library.store import Entry, Library, LibraryError
from gradstudio.session.output import as_preset
from gradstudio.session.run import OVER, Run

if TYPE_CHECKING:
    from gradstudio.gui.window import Window

RETRY = 250  # ms
TRIES = 40  # times that a run which is to be deleted is waited for until it is written
FAMILY = 12  # runs that are loaded to show one of them, at the most
UNDO_FOR = 5 * 60_000  # ms after which what was deleted is gone
FORGOTTEN = 3600.0  # seconds after which what anybody has deleted is gone
OFFERED_FOR = 20_000  # ms that the message bar offers the undoing

Found = tuple[int, list[Entry]]


@dataclass(eq=False)
class Deletion:
    """Runs that were deleted together, and what is to be done beside if they are brought back."""

    runs: list[str]
    back: Callable[[], object]


class RunsDesk(QObject):
    def __init__(self, window: Window, librarian: Librarian) -> None:
        super().__init__(window)
        self._window, self.librarian = window, librarian
        self._panel, self._overlays = window.side.runs, window.plots.overlays
        self._version: int | None = None  # of the library, that the panel shows
        self._looking = self._look_again = self._looked = False
        self._loading: set[str] = set()  # runs on their way over the plots
        self._deleted: list[Deletion] = []  # what can be undone, the latest last
        panel = self._panel
        panel.look_asked.connect(self.look)
        panel.open_asked.connect(self.open)
        panel.again_asked.connect(self.run_again)
        panel.compare_asked.connect(self.compare_chosen)
        panel.delete_asked.connect(self.delete)
        panel.undo_asked.connect(self.undo)
        panel.model.ticked.connect(self.tick)
        panel.notes.left.connect(self._annotate)
        self._overlays.changed.connect(self.mark)
        window.plots.chips.compare_asked.connect(self.compare_drawn)
        librarian.failed.connect(window.message.show_error)

    # ---- the list

    def look(self) -> None:
        """Bring the list up to date, where anything has changed."""
        if self._looking:
            self._look_again = True
            return
        self._looking, self._look_again = True, False
        known, first, self._looked = self._version, not self._looked, True
        alive = any(entry.outcome not in OVER for entry in self._panel.model.all)  # it may be interrupted and nobody writes so

        def find(library: Library) -> Found | None:
            version = library.version()
            if first:
                library.purge(older_than=FORGOTTEN)  # what a window that was killed could not
            return None if version == known and not alive else (version, library.entries())

        def failed(why: str) -> None:
            self._looking = False
            self._window.message.show_error(why)

        self.librarian.ask(find, self._found, failed)

    def mark(self) -> None:
        """Show in the list which runs the plots show."""
        self._panel.model.mark(self._overlays.slots, self._window.simulator.run.id)

    # ---- one run

    def open(self, run: str, tries: int = 8) -> None:
        """Show a run in the plots, with its knobs asked for; one that has just been stopped may need a moment until it is written."""
        if run == self._window.simulator.run.id:
            self._window.message.show_news("This run is shown in the plots already.")
            return
        if run in self._window.simulator.family.members:
            self._window.branches.go(run)
            return

        def load(library: Library) -> tuple[Run, list[Run]]:
            opened = library.load(run)
            return opened, relatives(library, opened) if opened.over else []

        def loaded(found: tuple[Run, list[Run]]) -> None:
            opened, family = found
            if opened.over:
                self._window.show_run(opened, family)
            else:
                later(f"{opened.title} is still running in another window; it can be drawn over the plots.")

        def later(why: str) -> None:
            if tries:
                QTimer.singleShot(RETRY, self, lambda: self.open(run, tries - 1))
            else:
                self._window.message.show_error(why)

        self.librarian.ask(load, loaded, later)

    def run_again(self, run: str) -> None:
        """Begin a new run with a run's knobs and the changes that were made to it."""

        def begin(runs: list[Run]) -> None:
            self._window.take_up(as_preset(runs[0]))
            self._window.simulator.play()

        self._load([run], begin)

    def rename(self, run: Run) -> None:
        """Write the title that a run has been given. Of one that goes its keeper does."""
        if run.over:
            self.librarian.ask(lambda library: library.rename(run.id, run.title), lambda _: self._look_anew())

    # ---- several

    def tick(self, run: str, wanted: bool) -> None:
        """Draw a run over the plots, or do not any more."""
        if not wanted:
            self._overlays.remove(run)
        elif sum(place < MOST for place in self._overlays.places) + len(self._loading) >= MOST:
            self._window.message.show_error(f"{MOST} runs can be drawn over the plots; take one off first.")
        elif run in self._window.simulator.family.members:
            self._window.branches.tick(run, wanted)
        elif run not in self._loading:
            self._loading.add(run)

            def failed(why: str) -> None:
                self._loading.discard(run)
                self._window.message.show_error(why)

            self.librarian.ask(lambda library: overlaid(library.load(run)), self._draw_over, failed)

    def compare_chosen(self, runs: list[str]) -> None:
        """Hold these runs against each other."""
        self._load(runs, self._compare)

    def compare_drawn(self) -> None:
        """Hold the run of the plots against those that are drawn over it."""
        over = [drawn.run for drawn in self._overlays.shown.values() if drawn.run is not None]
        current = self._window.simulator.run
        here = [current] if self._window.simulator.started and current.id not in [run.id for run in over] else []
        self._compare([*here, *over])

    def delete(self, runs: list[str]) -> None:
        """Take runs out of the list; for some minutes that can be undone."""

        def done(_: Any) -> None:
            entry = self._panel.model.entry(runs[0])
            what = f"“{entry.title}”" if entry and len(runs) == 1 else plural(len(runs), "run", "runs")
            self._can_be_undone(Deletion(runs, lambda: None), f"Deleted: {what}.")
            self._look_anew()

        self.librarian.ask(lambda library: library.delete(runs), done)

    def delete_when_written(self, runs: list[str], told: str, back: Callable[[], object]) -> None:
        """Delete runs that may have been stopped only now. `told`: what is said of it; `back`: what else brings them back."""
        deletion = Deletion(runs, back)
        self._can_be_undone(deletion, told)
        self._delete_when_written(deletion, TRIES)

    def undo(self, deletion: Deletion | None = None) -> None:
        """Bring back what was deleted: this, or the latest."""
        if deletion is None:
            deletion = self._deleted[-1] if self._deleted else None
        if deletion is None or deletion not in self._deleted:
            self._window.message.show_news("There is no deletion left to undo.")
            return
        self._deleted.remove(deletion)
        deletion.back()
        runs = deletion.runs

        def done(_: Any) -> None:
            self._window.message.show_news(f"Brought back: {plural(len(runs), 'run', 'runs')}.")
            self._look_anew()

        self.librarian.ask(lambda library: library.restore(runs), done)

    def close(self, seconds: float) -> bool:
        """The window goes: save what was being written, remove for good what was deleted. Whether the thread has ended."""
        self._panel.notes.save()
        for deletion in self._deleted:
            self.librarian.ask(lambda library, runs=deletion.runs: library.delete(runs))  # what was still waited for
            self._purge(deletion)
        return self.librarian.close(seconds)

    # ---- inside

    def _found(self, found: Found | None) -> None:
        self._looking = False
        if found is not None:
            self._version = None if self._look_again else found[0]
            self._panel.take(found[1])
        self.mark()
        if self._look_again and self._version is None:
            self.look()

    def _look_anew(self) -> None:
        """The library has changed by this connection, which its own version does not tell."""
        self._version = None
        self.look()

    def _load(self, runs: list[str], done: Callable[[list[Run]], object]) -> None:
        self.librarian.ask(lambda library: [library.load(run) for run in runs], done)

    def _draw_over(self, drawn: Overlaid) -> None:
        self._loading.discard(drawn.id)
        if self._overlays.full:
            return
        self._overlays.add(drawn)

    def _compare(self, runs: list[Run]) -> None:
        slots = self._overlays.slots
        try:
            found = comparison.compare(runs)
        except comparison.ComparisonError as fault:
            self._window.message.show_error(str(fault))
            return
        ComparisonDialog(self._window, found, [slots.get(run.id) for run in runs]).show()

    def _annotate(self, run: str, note: str, tags: tuple[str, ...]) -> None:
        self.librarian.ask(lambda library: library.annotate(run, note=note, tags=tags), lambda _: self._look_anew())

    def _can_be_undone(self, deletion: Deletion, told: str) -> None:
        """Say what was deleted, and offer it back."""
        self._overlays.remove(*deletion.runs)
        self._deleted.append(deletion)
        QTimer.singleShot(UNDO_FOR, self, lambda: self._purge(deletion))
        self._window.message.show_news(told, action=("Undo", lambda: self.undo(deletion)), stay=OFFERED_FOR)

    def _delete_when_written(self, deletion: Deletion, tries: int) -> None:
        if deletion not in self._deleted:
            return  # it was brought back

        def delete(library: Library) -> bool:
            over = {entry.id for entry in (*library.entries(), *library.entries(deleted=True)) if entry.outcome in OVER}
            written = [run for run in deletion.runs if run in over]
            if len(written) < len(deletion.runs) and tries:
                return False
            library.delete(written)
            return True

        def done(deleted: bool) -> None:
            if deleted:
                self._look_anew()
            else:
                QTimer.singleShot(RETRY, self, lambda: self._delete_when_written(deletion, tries - 1))

        self.librarian.ask(delete, done)

    def _purge(self, deletion: Deletion) -> None:
        """Remove for good, unless it was brought back."""
        if deletion in self._deleted:
            self.librarian.ask(lambda library: library.purge(runs=deletion.runs))
            self._deleted = [other for other in self._deleted if other is not deletion]


def relatives(library: Library, run: Run) -> list[Run]:
    """The nearest of a run's family that are over, each with all that lies between, in the order in which they began."""
    entries = {entry.id: entry for entry in library.entries() if entry.outcome in OVER}
    near = [run.id]
    for member in near:
        if len(near) >= FAMILY:
            break
        stem = entries[member].parent if member in entries else run.parent
        near += [id for id, entry in entries.items() if id not in near and (entry.parent == member or id == stem)]
    found = []
    for member in sorted(near[1:FAMILY], key=lambda id: entries[id].started):
        with contextlib.suppress(LibraryError):  # one that is damaged does not keep the others away
            found.append(library.load(member))
    return found


def overlaid(run: Run, start: int = 0) -> Overlaid:
    """A run as it is drawn over another, from a step on. Some tens of ms for a long one."""
    count = len(run.history)
    rows = {name: run.history.column(name, 0, count) for name in ("loss", "grad_norm")}
    rows["smooth"] = Smoother().smoothed(rows["loss"])
    steps = np.arange(start, count, dtype=float)
    columns = {name: (steps, values[start:]) for name, values in rows.items()}
    return Overlaid(run.id, run.title, f"<p><b>{run_words.lines(run.title)}</b><br>{run_words.lines(run.id)}</p>", columns, run)
