"""The marks of a run on every plot: dashed lines where knobs were changed or where it branched, and a line at its first
non-finite step."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from PySide6.QtCore import Qt
from PySide6.QtGui import QPen

from gradstudio.core.events import Change
from gradstudio.gui.drawing.canvas import Canvas, VerticalLine, VerticalLines
from gradstudio.gui.drawing.label_strip import Tag
from gradstudio.gui.theme import theme
from gradstudio.session.record.run import Run

_NEVER = -1


def change_positions(run: Run) -> np.ndarray:
    """Return the x positions of the lines that mark the run's knob changes and its branch point, each between two
    steps."""
    steps = {change.step for change in list(run.timeline)} | ({run.parent_step} if run.parent else set())
    return np.array(sorted(steps), float) - 0.5


class RunMarks:
    """The lines of one plot."""

    def __init__(self, canvas: Canvas) -> None:
        self.hides_changes = False  # in an exam they would reveal what is wrong
        self.changes = VerticalLines(canvas)
        self.nonfinite_line = VerticalLine(canvas)
        self._shown_changes: Sequence[Change] | None = None  # the timeline that is drawn
        self._shown_step: int | None = _NEVER  # first non-finite step that is drawn
        for item in (self.changes, self.nonfinite_line):
            item.hide()

    def forget(self) -> None:
        """Treat the marks as outdated, whatever run is shown."""
        self._shown_changes, self._shown_step = None, _NEVER

    def are_stale(self, run: Run) -> bool:
        """Return whether the run has changed since it was shown."""
        return self.miss_changes(run) or run.first_nonfinite_step != self._shown_step

    def miss_changes(self, run: Run) -> bool:
        """Return whether the timeline differs from the one shown: the writer replaces it with each change."""
        return run.timeline is not self._shown_changes

    def show(self, run: Run) -> None:
        """Show the marks of a run."""
        self._shown_changes, self._shown_step = run.timeline, run.first_nonfinite_step
        self.changes.show_at(np.empty(0) if self.hides_changes else change_positions(run))
        self.nonfinite_line.setVisible(self._shown_step is not None)
        if self._shown_step is not None:
            self.nonfinite_line.move_to(self._shown_step)

    def change_tags(self, run: Run) -> list[Tag]:
        """Return the words at the changes, each with its number."""
        events = [] if self.hides_changes else run.changes
        return [
            Tag(event.step - 0.5, (f"{place}  {event.text}", str(place)), "accent", f"{place}: {event.text}", place)
            for place, event in enumerate(events, 1)
        ]

    def restyle(self) -> None:
        self.changes.setPen(QPen(theme.color("accent", 130), 0, Qt.PenStyle.DashLine))
        self.nonfinite_line.setPen(QPen(theme.color("bad"), 0))
