"""The step that the user views. Viewing changes nothing in the run; every panel that shows a step reads it here."""

from __future__ import annotations

from PySide6.QtCore import QObject, Qt, Signal

from gradstudio.session.record.run import Run

_WAYS: dict[int, int] = {Qt.Key.Key_Left: -1, Qt.Key.Key_Right: 1}  # steps
_NOW = (Qt.Key.Key_End, Qt.Key.Key_Escape)


class ViewedStep(QObject):
    """`step` is the viewed one, None for the newest. The view ends when another run is shown."""

    changed = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.step: int | None = None
        self.run: Run | None = None

    @property
    def last(self) -> int:
        """The newest step, -1 before the first."""
        return len(self.run.history) - 1 if self.run is not None else -1

    def at(self, run: Run) -> int | None:
        """Return the viewed step of this run; None for the newest."""
        return self.step if self.run is run else None

    def follow(self, run: Run | None) -> None:
        """View this run from now on: at its newest step if it is another run."""
        if run is not self.run:
            self.run = run
            self.leave()

    def look_at(self, step: int) -> None:
        """View a step, at least the first. The last step that was made is the newest: viewing it means following the
        run."""
        step = max(step, 0)
        self._set(step if step < self.last else None)

    def move(self, by: int) -> None:
        """View a step further on, or further back if `by` is negative."""
        self.look_at((self.last if self.step is None else self.step) + by)

    def leave(self) -> None:
        """View the newest step again."""
        self._set(None)

    def press(self, key: int) -> bool:
        """View the step for a key; return whether the key has a meaning."""
        if key in _WAYS and self.last >= 0:
            self.move(_WAYS[key])
        elif key in _NOW and self.step is not None:
            self.leave()
        else:
            return False
        return True

    @property
    def words(self) -> str:
        """The viewed step, as a sentence without its full stop; "" for the newest step."""
        if self.step is None or self.run is None:
            return ""
        ended = self.run.over or self.run.watched is not None  # the number of steps of a script is unknown
        whole = len(self.run.history) if ended else self.run.experiment.run.steps
        goes_on = "; training goes on" if self.run.status == "running" else ""
        return f"Looking at step {self.step:,} of {whole:,}{goes_on}"

    def _set(self, step: int | None) -> None:
        if step != self.step:
            self.step = step
            self.changed.emit()
