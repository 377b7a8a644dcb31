"""What a run leaves on every plot: dashed lines where knobs were changed or where it branched, and a line with words at
its first non-finite step."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from PySide6.QtCore import Qt
from PySide6.QtGui import QPen

from gradstudio.core.events import Change
from gradstudio.gui.drawing.canvas import Canvas, Label, Upright, Uprights
from gradstudio.gui.theme import theme
from gradstudio.session.record.run import Run

_NEVER = -1


def changed_at(run: Run) -> np.ndarray:
    """Return where the lines of the run's changes and of its branch point stand, each between two steps."""
    steps = {change.step for change in list(run.timeline)} | ({run.parent_step} if run.parent else set())
    return np.array(sorted(steps), float) - 0.5


class RunMarks:
    """The lines of one plot."""

    def __init__(self, canvas: Canvas) -> None:
        self._canvas = canvas
        self.hides_changes = False  # in an exam they would tell what is wrong
        self.changes = Uprights(canvas)
        self.nonfinite_line, self.nonfinite_text = Upright(canvas), Label(canvas, z=50, margin=4)
        self._shown_changes: Sequence[Change] | None = None  # the timeline that is drawn
        self._shown_step: int | None = _NEVER  # first non-finite step that is drawn
        for item in (self.changes, self.nonfinite_line, self.nonfinite_text):
            item.hide()

    def forget(self) -> None:
        """Find the marks out of date, whatever the run."""
        self._shown_changes, self._shown_step = None, _NEVER

    def are_stale(self, run: Run) -> bool:
        """Return whether the run has changed since it was shown."""
        return self.miss_changes(run) or run.first_nonfinite_step != self._shown_step

    def miss_changes(self, run: Run) -> bool:
        """Return whether the timeline is another one than was shown: the writer replaces it with each change."""
        return run.timeline is not self._shown_changes

    def show(self, run: Run, words: str) -> None:
        """Show the marks of a run, with these words at its first non-finite step."""
        self._shown_changes, self._shown_step = run.timeline, run.first_nonfinite_step
        self.changes.show_at(np.empty(0) if self.hides_changes else changed_at(run))
        for item in (self.nonfinite_line, self.nonfinite_text):
            item.setVisible(self._shown_step is not None)
        if self._shown_step is not None:
            self.nonfinite_line.stand_at(self._shown_step)
            self.nonfinite_text.setText(words)

    def place(self, middle: float) -> None:
        """Put the words beside their line, on the side that has more room: left of it from step `middle` on."""
        step = self._shown_step
        if step is not None and step >= 0:
            side = 1.04 if step > middle else -0.04
            self.nonfinite_text.place(self._canvas.across(step), 0, (side, -0.1))

    def restyle(self) -> None:
        bad, font = theme.color("bad"), theme.font(0.85, weight=theme.font().Weight.DemiBold)
        self.changes.setPen(QPen(theme.color("accent", 130), 0, Qt.PenStyle.DashLine))
        self.nonfinite_line.setPen(QPen(bad, 0))
        self.nonfinite_text.dress(bad, theme.color("plot"), font)
