"""The frame of every plot over steps: header, axes, cursor, keys and the marks of the run.

A plot is pulled: `refresh` reads the rows that came since the last call and draws once, and only where the new rows are
a pixel wide."""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar

from PySide6.QtCore import QEvent, QObject, QPointF, Qt, Signal
from PySide6.QtGui import QAccessible, QColor, QFocusEvent, QKeyEvent, QMouseEvent, QPen
from PySide6.QtWidgets import QFrame, QGraphicsItem

from gradstudio.core.files import Content
from gradstudio.core.text import strong
from gradstudio.gui.drawing import axes, label_strip
from gradstudio.gui.drawing.canvas import Canvas, Label, Upright
from gradstudio.gui.drawing.label_strip import LabelStrip, Tag
from gradstudio.gui.drawing.looked_line import LookedLine
from gradstudio.gui.drawing.overlay import Overlays
from gradstudio.gui.drawing.overlay_curves import OverlayLayer
from gradstudio.gui.drawing.plot_area import PlotArea
from gradstudio.gui.drawing.series import Scale, Series, linear
from gradstudio.gui.drawing.shared_cursor import Cursor, StepRange
from gradstudio.gui.drawing.time_axis import precise
from gradstudio.gui.drawing.view_box import StepViewBox
from gradstudio.gui.plots import plot_keys
from gradstudio.gui.plots.plot_header import PlotHeader
from gradstudio.gui.plots.plot_options import Chosen, Option
from gradstudio.gui.plots.run_marks import RunMarks
from gradstudio.gui.theme import theme
from gradstudio.gui.widgets.rows import in_column, in_row
from gradstudio.session.record.run import Run
from gradstudio.session.words.curve_words import ColumnSummaries

READ_EVERY = 0.1  # seconds between two readings while the new rows are less than a pixel wide
SAY_EVERY = 0.5  # seconds between two texts: words that change faster cannot be read
ALOUD_EVERY = 5.0  # seconds between two texts for a screen reader, while one listens
LONG_RUN = 5000  # rows from which they are made though none does, so that not all are read when the run ends
NOTHING = "Nothing was measured yet."
FIT_EVERY = 1.0  # seconds after which the y axis is fitted again though no value has left it
UNDER_TEXT = 215  # alpha of the plot's own colour behind a text on a curve


class StepPlot(QFrame):
    """A titled plot over steps. Subclasses name their `series`, draw in `draw`, choose the y range in `fit_y`, and
    return from `reading` what the plot shows at a step."""

    title = ""
    help = ""
    left_values = True  # numbers at the left axis
    box_kind = StepViewBox
    series: tuple[Series, ...] = ()  # its curves, which have one source
    right_width = axes.RIGHT_WIDTH
    columns: tuple[str, ...] = ()  # of the history, for its data as a table
    shown_metric = ""  # of the layers, for its data as a table
    pixelated = False  # whether its picture is made of cells, which a figure shows with sharp edges
    invites = False  # whether it says how to begin while it is empty
    has_words = False  # whether words stand over it where its marks are
    alone_asked = Signal()  # a person wants this plot to have the room of all, or all plots again
    may_be_alone, alone = False, False  # whether it can have it, and whether it has
    key = ""  # its name in the settings
    options: ClassVar[Mapping[str, Option]] = MappingProxyType({})  # how it may be drawn
    overlay: OverlayLayer | None = None  # other runs, where the plot has a place for them

    def __init__(self, steps: StepRange, cursor: Cursor, left: axes.Axis, right: axes.Axis | None = None) -> None:
        super().__init__()
        self.setObjectName("card")
        self.steps, self.step_cursor = steps, cursor
        self.chosen = Chosen(self.key, self.options)
        self.run: Run | None = None
        self._seen = 0  # rows taken in
        self._shown = (0.0, 0.0)  # ends of the view at the last drawing
        self._status = ""  # of the run, at the last drawing
        self._read_at = 0.0  # when rows were last taken in
        self._fitted: tuple = ()  # the view that the y axis was chosen for
        self._fits = 0  # of the whole run, at the last fit of the y axis
        self._fit_due = 0.0  # when it is fitted again
        self._grew = False  # whether an overlay has values that the y axis was not fitted to
        self._said = 0.0  # when the words were last brought up to date
        self._unsaid = False
        self.summaries = ColumnSummaries()
        self._told = 0.0  # when the words for a screen reader were last brought up to date
        self._scale = 0.0  # pixels of the screen for one of Qt's
        self._moved = True  # the ranges, the size or the look have changed since the last `settle`
        self.box = self.box_kind(steps, self._show_whole_run)
        self.widget = PlotArea(self.box, left, right, self.right_width)
        self.plot, self.canvas = self.widget.plot, self.widget.canvas
        self.marks, self.cursor_line = RunMarks(self.canvas), Upright(self.canvas)
        self.looked_line = LookedLine(self.canvas, self.step_cursor.looked)
        self.strip, self.invitation = LabelStrip(self.canvas), Label(self.canvas, z=40)
        self.invitation.hide()
        if self.has_words:
            self.widget.above = label_strip.HIGH
        self.header = PlotHeader(self.title, self.help)
        self.title_label, self.legend_label = self.header.title, self.header.legend
        self._lay_out()
        self._connect()

    # ---- what a plot fills in

    def read(self, run: Run, start: int, stop: int) -> None:
        """Take in the rows start to stop, unless another plot already has."""
        if self.series:
            self.series[0].source.take(run.history, stop)

    def rows(self, run: Run) -> int:
        """Return the number of rows that there are to take in."""
        return len(run.history)

    def fit_y(self, run: Run) -> None:
        """Choose the range of the y axis for the steps on view."""

    def draw(self, run: Run) -> None:
        """Draw the rows that were taken in, for the steps on view."""

    def clear(self) -> None:
        """Forget the rows of the old run, as a new one is shown."""
        for series in self.series:
            series.clear()

    def look_again(self) -> None:
        """Find again, at the next drawing, what is found only now and then, such as the y range."""
        self._fit_due = 0.0

    def reading(self, run: Run, step: int) -> str:
        """Return what the plot shows at one step, in words."""
        return ""

    def spoken(self, run: Run) -> str:
        """Return what the curves show, for a person who listens: `rows` of the run were taken in, at least one."""
        figures = self.summaries.words(run.history, self.columns, len(run.history))
        last = len(run.history) - 1
        return figures or f"step {last:,}: {self.reading(run, last)}"

    def legend(self) -> str:
        """Return what the curves and marks mean, as rich text."""
        return ""

    def nonfinite_words(self, run: Run, step: int) -> tuple[str, ...]:
        """Return the words at the first non-finite step, from the longest to the shortest."""
        return ()

    @property
    def y_scale(self) -> Scale:
        """Scale of the left axis."""
        return linear

    def own_data(self) -> Content | None:
        """Return the data of the plot as CSV, where they are no columns of the run."""
        return None

    def choose_option(self, name: str, value: str) -> None:
        """Draw the plot otherwise, and remember it."""
        self.chosen.choose(name, value)
        self.take_options()
        self.look_again()
        self._has_moved()
        self.redraw()

    def take_options(self) -> None:
        """Follow what is chosen."""

    def draw_overlays(self, overlays: Overlays, drawn: str, told: str) -> OverlayLayer:
        """Draw the column `drawn` of the overlays over the run, and read values from their column `told`."""
        self.overlay = OverlayLayer(self.canvas, overlays, drawn, told)
        overlays.changed.connect(self._overlays_changed)
        overlays.grown.connect(self._overlays_grew)
        return self.overlay

    # ---- called from outside

    def refresh(self, run: Run, scale: float) -> None:
        """Show the run as it is now, on a screen with `scale` pixels for one of Qt's. It is cheap where nothing is
        new."""
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
        if run.status != self._status:  # now draw what was put off while it trained
            self._status = run.status
            self._draw_all(run)
            self.tell_listener()
        if self._unsaid and time.monotonic() > self._said + SAY_EVERY:
            self._say(run)
        if time.monotonic() > self._told + ALOUD_EVERY and (QAccessible.isActive() or stop > LONG_RUN):
            self.tell_listener()
        if self._moved or scale != self._scale:
            self.settle()

    def behind(self, run: Run) -> int:
        """Return the number of rows that the next `refresh` may have to take in."""
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

    def settle(self) -> None:
        """Bring the picture up to date with the ranges and the size, so that Qt can paint it without asking."""
        for canvas in self._canvases:
            canvas.settle()
        self._moved, self._scale = False, self.widget.settle()
        if self.overlay is not None:
            self.overlay.settle(self.y_scale)
            self.strip.show_tags("overlays", self.overlay.tags)

    @property
    def _canvases(self) -> list[Canvas]:
        return [self.canvas, *{series.canvas for series in self.series if series.canvas is not self.canvas}]

    @property
    def frames(self) -> list[QGraphicsItem]:
        """Items inside of the axes."""
        return [canvas.frame for canvas in self._canvases]

    def draw_anew(self, sharp: int) -> None:
        """Draw the plot as lines and letters, for a figure with so many pixels for one of Qt's; with 0, draw it for the
        screen again."""
        for canvas in self._canvases:
            canvas.sharp = sharp
        self.restyle()
        self.widget.draw_anew(bool(sharp))
        if self.overlay is not None:
            self.overlay.set_cached(not sharp)
        if not sharp:
            self.settle()

    def restyle(self) -> None:
        """Take on the colours of the theme."""
        for series in (*self.series, *([self.overlay] if self.overlay else [])):
            series.restyle()
        self.widget.dress()
        self.marks.restyle()
        self.strip.restyle()
        self.invitation.dress(theme.color("dim"), QColor(Qt.GlobalColor.transparent), theme.font())
        self.cursor_line.setPen(QPen(theme.color("dim"), 0))
        self.looked_line.restyle()
        self.redraw()

    def show_values(self, side: str, shown: bool) -> None:
        """Write numbers at an axis or not."""
        if self.widget.show_values(side, shown):
            self._moved = True

    # ---- inside

    def _lay_out(self) -> None:
        self.body = in_row((self.widget, 1), spacing=0)
        in_column(self.header, (self.body, 1), of=self, margins=(1, 1, 1, 3), spacing=0)
        self.widget.setFrameShape(QFrame.Shape.NoFrame)
        self.widget.setAccessibleName(self.title)
        self.widget.setAccessibleDescription(self.help)
        self.widget.setToolTip("")
        self.widget.viewport().setFocusPolicy(Qt.FocusPolicy.NoFocus)  # or who listens hears of each plot twice
        self.widget.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.cursor_line.hide()

    def _connect(self) -> None:
        self.widget.installEventFilter(self)
        self.widget.mouse_moved.connect(self._mouse_moved)
        self.widget.resized.connect(self._on_resize)
        self.box.sigTransformChanged.connect(self._place_labels)
        self.box.sigRangeChanged.connect(self._has_moved)
        self.steps.changed.connect(self._steps_changed)
        self.step_cursor.moved.connect(self._cursor_moved)
        theme.dress(self, self.restyle)

    def _draw_all(self, run: Run) -> None:
        if run.status != "running":
            self.look_again()
        self._grew = False
        self.looked_line.place()
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
        """Say how to begin, while nothing is drawn."""
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
        """Return whether to fit the y axis: other steps are on view, a value has left it, or some time has passed."""
        asked, now = (self.steps.left, self.steps.right, self.steps.following), time.monotonic()
        outgrown = [series.outgrew() for series in self.series]  # ask each of them, as each remembers
        if self.steps.fits != self._fits:
            self._fits = self.steps.fits if self._seen else -1  # the overlays alone may be of the run before
            self.widget.fit_anew()
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

    def _place_labels(self) -> None:
        """Put the words where they belong for the ranges and the size."""
        self.strip.place()
        wide, high = self.canvas.size
        self.invitation.place(wide / 2, high / 2, (0.5, 0.5))

    def _on_resize(self) -> None:
        self._unsaid = True  # as there may be room for more words, or for fewer
        self.settle()

    def _overlays_grew(self) -> None:
        self._grew = True
        self.look_again()
        self._has_moved()

    def _has_moved(self) -> None:
        self._moved = True

    def _overlays_changed(self) -> None:
        self.look_again()
        self.redraw()

    def _cursor_moved(self) -> None:
        step = self.step_cursor.step
        if step is not None and self.run is not None and step >= 0 and self._is_covered(self.run, step):
            self.cursor_line.stand_at(step)
            self.cursor_line.show()
        else:
            self.cursor_line.hide()
        if self.run is not None:
            self._say(self.run)

    def _is_covered(self, run: Run, step: int) -> bool:
        """Return whether the run or an overlay has this step."""
        return step < len(run.history) or self.steps.places.of(step) < self.steps.over

    def _say(self, run: Run) -> None:
        self._said, self._unsaid = time.monotonic(), False
        step = self.step_cursor.step
        overlaid = self.overlay.reading(step) if self.overlay is not None and step is not None else ""
        if step is not None and 0 <= step < len(run.history):
            self.header.say(f"{strong(self._where(step))} · {self.reading(run, step)}", overlaid)
        elif step is not None and overlaid:
            self.header.say(f"{strong(self._where(step, beyond=True))} &nbsp;{overlaid}")
        else:
            self.header.say(self.legend())

    def _where(self, step: int, *, beyond: bool = False) -> str:
        """Return where the cursor is, in words. Over the time, a step that is `beyond` the run has no number."""
        places = self.steps.places
        seconds = precise(places.of(step), self.steps.right - self.steps.left) if places.timed else ""
        return seconds if beyond and seconds else f"step {places.number(step):,}{f', {seconds}' if seconds else ''}"

    def tell_listener(self) -> None:
        """Bring the words for a screen reader up to date. They are read when the plot gets the focus, so they are made
        then, when the run pauses or ends, and now and then while somebody listens."""
        self._told = time.monotonic()
        run = self.run
        text = self.spoken(run) if run is not None and len(run.history) else NOTHING
        self.widget.setAccessibleDescription(text)

    def _steps_changed(self) -> None:
        if self.isVisible() and self.run is not None:
            self.redraw()

    def _show_whole_run(self) -> None:
        self.steps.whole(len(self.run.history) if self.run else 0)

    def _mouse_moved(self, position: QPointF) -> None:
        if self.box.sceneBoundingRect().contains(position):
            self.step_cursor.move(self.box.step_at(position))
        else:
            self.step_cursor.move(None)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() == QEvent.Type.Leave:
            self.step_cursor.move(None)
        if isinstance(event, QFocusEvent) and event.type() in (QEvent.Type.FocusIn, QEvent.Type.FocusOut):
            if event.gotFocus():
                self.tell_listener()
            by_key = event.reason() in (Qt.FocusReason.TabFocusReason, Qt.FocusReason.BacktabFocusReason)
            framed = event.gotFocus() and by_key
            if framed != bool(self.property("focused")):  # as it takes some ms
                self.setProperty("focused", framed)
                self.style().unpolish(self)
                self.style().polish(self)
        if isinstance(event, QKeyEvent) and event.type() == QEvent.Type.KeyPress and self.run is not None:
            return self._key(event.key(), len(self.run.history) - 1)
        return False

    def mouseDoubleClickEvent(self, event: QMouseEvent) -> None:
        if self.may_be_alone:  # on the head: the plot below it takes its own
            self.alone_asked.emit()
        event.accept()

    def _key(self, key: int, last: int) -> bool:
        """Do what a key says; `last` is the last step of the run. Return whether the key says anything."""
        asked = key in (Qt.Key.Key_Return, Qt.Key.Key_Enter) or (key == Qt.Key.Key_Escape and self.alone)
        if asked and self.may_be_alone:
            self.alone_asked.emit()
            return True
        return plot_keys.press(key, self.steps, self.step_cursor, last)


def how_to_begin(run: Run) -> str:
    """Return what a plot says that has nothing to draw yet."""
    if run.watched is not None:
        return "Waiting for the first step of the script"
    if run.over:
        return "This run made no step"
    return "Press Run (Space)" if run.status == "ready" else "The first step is being made"
