"""Deleted runs of the library, which can be restored for some minutes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from PySide6.QtCore import QObject, QTimer, Signal

from gradstudio.core.text import plural
from gradstudio.gui.services.context import Context
from gradstudio.session.library.store import Library
from gradstudio.session.record.run import OVER

RETRY = 250  # ms
TRIES = 40  # most checks whether a run that is to be deleted is written
UNDO_FOR = 5 * 60_000  # ms after which a deletion cannot be undone


@dataclass(eq=False)
class Deletion:
    """Runs that were deleted together; `back` restores the window's state for them. `waits`: the library has not
    deleted all of them yet."""

    runs: list[str]
    back: Callable[[], object]
    waits: bool = False


class Deletions(QObject):
    changed = Signal()  # runs were deleted or restored
    deleted = Signal(list)  # ids of runs that are deleted from now on

    def __init__(self, context: Context, parent: QObject) -> None:
        super().__init__(parent)
        self._library, self._message = context.library, context.message
        self._deleted: list[Deletion] = []  # those that can be undone, the latest last

    def delete(self, runs: list[str], what: str) -> None:
        """Delete runs of the library; `what` names them in the message."""

        def on_done(_: Any) -> None:
            self._can_be_undone(Deletion(runs, lambda: None), f"Deleted: {what}.")
            self.changed.emit()

        words = f"Deleting {plural(len(runs), 'run', 'runs')}"
        self._library.ask(lambda library: library.delete(runs), on_done, words=words)

    def delete_when_written(self, runs: list[str], told: str, back: Callable[[], object]) -> None:
        """Delete runs that may have just been stopped, and so are not written yet. `told`: the message; `back`:
        restores the window's state for them."""
        deletion = Deletion(runs, back, waits=True)
        self._can_be_undone(deletion, told)
        self._delete_when_written(deletion, TRIES)

    def undo(self, deletion: Deletion | None = None) -> None:
        """Undo this deletion, or the latest."""
        if deletion is None:
            deletion = self._deleted[-1] if self._deleted else None
        if deletion is None or deletion not in self._deleted:
            self._message.show_news("There is no deletion left to undo.")
            return
        self._deleted.remove(deletion)
        deletion.back()
        runs = deletion.runs

        def on_done(_: Any) -> None:
            self._message.show_news(f"Restored: {plural(len(runs), 'run', 'runs')}.")
            self.changed.emit()

        words = f"Restoring {plural(len(runs), 'run', 'runs')}"
        self._library.ask(lambda library: library.restore(runs), on_done, words=words)

    def stop(self) -> None:
        """Permanently remove deleted runs before the window closes."""
        for deletion in self._deleted:
            if deletion.waits:  # otherwise a run that continued since then, and is in the list again, would be lost
                self._library.ask(lambda library, runs=deletion.runs: library.delete(runs))
            self._purge(deletion)

    def _can_be_undone(self, deletion: Deletion, told: str) -> None:
        """Report what was deleted, and offer to undo it."""
        self.deleted.emit(deletion.runs)
        self._deleted.append(deletion)
        QTimer.singleShot(UNDO_FOR, self, lambda: self._purge(deletion))
        self._message.show_news(told, action=("Undo", lambda: self.undo(deletion)))

    def _delete_when_written(self, deletion: Deletion, tries: int) -> None:
        if deletion not in self._deleted:
            return  # it was undone

        def delete(library: Library) -> bool:
            over = {entry.id for entry in (*library.entries(), *library.entries(deleted=True)) if entry.outcome in OVER}
            written = [run for run in deletion.runs if run in over]
            if len(written) < len(deletion.runs) and tries:
                return False
            library.delete(written)
            deletion.waits = len(written) < len(deletion.runs)
            return True

        def on_done(deleted: bool) -> None:
            if deleted:
                self.changed.emit()
            else:
                QTimer.singleShot(RETRY, self, lambda: self._delete_when_written(deletion, tries - 1))

        self._library.ask(delete, on_done)

    def _purge(self, deletion: Deletion) -> None:
        """Permanently remove the runs, unless the deletion was undone."""
        if deletion in self._deleted:
            self._library.ask(lambda library: library.purge(runs=deletion.runs))
            self._deleted = [other for other in self._deleted if other is not deletion]
