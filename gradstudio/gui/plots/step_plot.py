"""The common part of every plot over steps: when it reads rows, when it draws them, and the marks of the run.

A plot is pulled: `refresh` reads the rows that came since the last call and draws once, and only if the new rows are a
pixel wide."""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar

from PySide6.QtCore import Qt
from PySide6.QtGui import QAccessible, QColor, QPen

from gradstudio.core.files import Content
from gradstudio.gui.drawing import axes, label_strip
from gradstudio.gui.drawing.label_strip import Tag
from gradstudio.gui.drawing.overlay import Overlays
from gradstudio.gui.drawing.overlay_curves import OverlayLayer
from gradstudio.gui.drawing.shared_cursor import Cursor, StepRange
from gradstudio.gui.plots.plot_options import Chosen, Option
from gradstudio.gui.plots.step_frame import StepFrame
from gradstudio.gui.theme import theme
from gradstudio.session.record.run import Run

READ_EVERY = 0.1  # seconds between two readings while the new rows are less than a pixel wide
SAY_EVERY = 0.5  # seconds between two texts: words that change faster cannot be read
ALOUD_EVERY = 5.0  # seconds between two texts for a screen reader, while one is active
LONG_RUN = 5000  # rows after which they are generated anyway, so that not all are read when the run ends
FIT_EVERY = 1.0  # seconds after which the y axis is fitted again even if no value has left it
UNDER_TEXT = 215  # alpha of the plot's own colour behind a text on a curve


class StepPlot(StepFrame):
    """A plot of a run over steps. Subclasses name their `series`, draw in `draw` and choose the y range in `fit_y`."""

    left_values = True  # numbers at the left axis
    shown_metric = ""  # of the layers, for its data as a table
    pixelated = False  # whether its picture is made of cells, which a figure shows with sharp edges
    invites = False  # whether it shows how to begin while it is empty
    has_words = False  # whether there are words over its marks
    key = ""  # its name in the settings
    options: ClassVar[Mapping[str, Option]] = MappingProxyType({})  # its drawing options

    def __init__(self, steps: StepRange, cursor: Cursor, left: axes.Axis, right: axes.Axis | None = None) -> None:
        super().__init__(steps, cursor, left, right)
        self.chosen = Chosen(self.key, self.options)
        self._seen = 0  # rows read
        self._shown = (0.0, 0.0)  # ends of the view at the last drawing
        self._status = ""  # of the run, at the last drawing
        self._read_at = 0.0  # when rows were last read
        self._fitted: tuple = ()  # the view for which the y axis was chosen
        self._fits = 0  # of the whole run, at the last fit of the y axis
        self._fit_due = 0.0  # when it is fitted next
        self._grew = False  # whether an overlay has values that the y axis was not fitted to
        if self.has_words:
            self.widget.above = label_strip.HIGH
        self.steps.changed.connect(self._steps_changed)
        theme.apply_style(self, self.restyle)

    # ---- overridden by plots

    def read(self, run: Run, start: int, stop: int) -> None:
        """Read the rows start to stop, unless another plot already has."""
        if self.series:
            self.series[0].source.take(run.history, stop)

    def rows(self, run: Run) -> int:
        """Return the number of rows available for reading."""
        return len(run.history)

    def fit_y(self, run: Run) -> None:
        """Choose the range of the y axis for the visible steps."""

    def draw(self, run: Run) -> None:
        """Draw the rows that were read, for the visible steps."""

    def clear(self) -> None:
        """Forget the rows of the old run, as a new one is shown."""
        for series in self.series:
            series.clear()

    def look_again(self) -> None:
        """Recompute, at the next drawing, what is computed only now and then, such as the y range."""
        self._fit_due = 0.0

    def nonfinite_words(self, run: Run, step: int) -> tuple[str, ...]:
        """Return the words at the first non-finite step, from the longest to the shortest."""
        return ()

    def own_data(self) -> Content | None:
        """Return the data of the plot as CSV, if they are not columns of the run."""
        return None

    def choose_option(self, name: str, value: str) -> None:
        """Set a drawing option of the plot, and remember it."""
        self.chosen.choose(name, value)
        self.take_options()
        self.look_again()
        self._has_moved()
        self.redraw()

    def take_options(self) -> None:
        """Apply the chosen options."""

    def draw_overlays(self, overlays: Overlays, drawn: str, told: str) -> OverlayLayer:
        """Draw the column `drawn` of the overlays over the run, and read values from their column `told`."""
        self.overlay = OverlayLayer(self.canvas, overlays, drawn, told)
        overlays.changed.connect(self._overlays_changed)
        overlays.grown.connect(self._overlays_grew)
        return self.overlay

    # ---- called from outside

    def refresh(self, run: Run, scale: float) -> None:
        """Show the current run, on a screen with the device pixel ratio `scale`. Cheap when nothing has changed."""
        stop = self.rows(run)
        if run is not self.run or stop < self._seen:
            self.run, self._seen, self._said = run, 0, 0.0
            self._told = 0.0
            self.marks.forget()
            self.summaries.forget()
            if self.series:
                self.series[0].source.hold(run.history)
            self.clear()
            self._draw_all(run)
        new = stop > self._seen and self._shows(run, stop)
        if new:
            self.read(run, self._seen, stop)
            self._seen, self._read_at = stop, time.monotonic()
        if (new or self._grew or self._shown != (self.steps.left, self.steps.right)) and self.isVisible():
            self._draw_all(run)
        elif self.marks.are_stale(run):
            self._draw_marks(run)
        if run.status != self._status:  # now draw what was postponed while it trained
            self._status = run.status
            self._draw_all(run)
            self.update_accessible_text()
        if self._unsaid and time.monotonic() > self._said + SAY_EVERY:
            self._say(run)
        if time.monotonic() > self._told + ALOUD_EVERY and (QAccessible.isActive() or stop > LONG_RUN):
            self.update_accessible_text()
        if self._moved or scale != self._scale:
            self.settle()

    def behind(self, run: Run) -> int:
        """Return the number of rows that the next `refresh` may have to read."""
        return self.rows(run) - (self._seen if run is self.run else 0)

    def _shows(self, run: Run, stop: int) -> bool:
        """Return whether the rows up to `stop` would change the picture: in a long run a pixel is many steps wide."""
        pixel = (self.steps.last - self.steps.first) / max(self.canvas.size[0], 1)
        return stop - self._seen >= pixel or self._overdue(run)

    def _overdue(self, run: Run) -> bool:
        """Return whether to show the new rows, however few."""
        return run.status != "running" or time.monotonic() > self._read_at + READ_EVERY

    def redraw(self) -> None:
        if self.run is not None:
            self._draw_all(self.run)
        self.settle()

    def draw_as_vectors(self, sharp: int) -> None:
        """Draw the plot as lines and letters, for a figure with `sharp` pixels per logical pixel; with 0, draw it for
        the screen again."""
        for canvas in self._canvases:
            canvas.sharp = sharp
        self.restyle()
        self.widget.draw_as_vectors(bool(sharp))
        if self.overlay is not None:
            self.overlay.set_cached(not sharp)
        if not sharp:
            self.settle()

    def restyle(self) -> None:
        """Apply the colours of the theme."""
        for series in (*self.series, *([self.overlay] if self.overlay else [])):
            series.restyle()
        self.widget.apply_style()
        self.marks.restyle()
        self.strip.restyle()
        self.invitation.apply_style(theme.color("dim"), QColor(Qt.GlobalColor.transparent), theme.font())
        self.cursor_line.setPen(QPen(theme.color("dim"), 0))
        self.viewed_step_line.restyle()
        self.redraw()

    # ---- inside

    def _draw_all(self, run: Run) -> None:
        if run.status != "running":
            self.look_again()
        self._grew = False
        self.viewed_step_line.place()
        if self._shown != (self.steps.left, self.steps.right):
            left, right = self._shown = (self.steps.left, self.steps.right)
            spare = 0.008 * (right - left)  # for a mark at the first step, and for the timeline's handle at the last
            self.box.set_range(x=(left - spare, right + 1.5 * spare))
        self.show_values("left", bool(len(run.history) or (self.overlay and self.steps.over)) and self.left_values)
        if self.invites:
            self._invite(run)
        if self.series and self._is_fit_due():
            self.fit_y(run)
        self.draw(run)
        if self.marks.are_stale(run):
            self._draw_marks(run)
        self._unsaid = True

    def _invite(self, run: Run) -> None:
        """Show how to begin, while nothing is drawn."""
        empty = not len(run.history) and not (self.overlay and self.steps.over)
        if empty:
            self.invitation.setText(how_to_begin(run))
        if empty != self.invitation.isVisible():
            self.invitation.setVisible(empty)
            self.widget.show_grid(not empty and not self.pixelated)
            self._moved = True
        if empty:
            self._place_labels()

    def _is_fit_due(self) -> bool:
        """Return whether to fit the y axis: other steps are visible, a value has left it, or some time has passed."""
        asked, now = (self.steps.left, self.steps.right, self.steps.following), time.monotonic()
        outgrown = [series.outgrew() for series in self.series]  # query each of them, as each remembers
        if self.steps.fits != self._fits:
            self._fits = self.steps.fits if self._seen else -1  # the overlays alone may belong to the previous run
            self.widget.refit()
        elif asked == self._fitted and now < self._fit_due and not any(outgrown):
            return False
        self._fitted, self._fit_due = asked, now + FIT_EVERY if self._seen else 0.0  # without rows: at once again
        return True

    def _draw_marks(self, run: Run) -> None:
        self.marks.show(run)
        if self.has_words:
            broke = run.first_nonfinite_step
            told = [] if broke is None else [Tag(broke, self.nonfinite_words(run, broke), "bad")]
            self.strip.show_tags("nonfinite", told)
            self.strip.show_tags("changes", self.marks.change_tags(run))

    def _overlays_grew(self) -> None:
        self._grew = True
        self.look_again()
        self._has_moved()

    def _overlays_changed(self) -> None:
        self.look_again()
        self.redraw()

    def _steps_changed(self) -> None:
        if self.isVisible() and self.run is not None:
            self.redraw()


def how_to_begin(run: Run) -> str:
    """Return the text of a plot that has nothing to draw yet."""
    if run.watched is not None:
        return "Waiting for the first step of the script"
    if run.over:
        return "This run made no step"
    return "Press Run (Space)" if run.status == "ready" else "The first step is being made"
