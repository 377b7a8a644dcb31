"""The frame of every plot over steps: header and its words, axes, marks, cursor and keys."""

from __future__ import annotations

import time

from PySide6.QtCore import QEvent, QObject, QPointF, Qt, Signal
from PySide6.QtGui import QFocusEvent, QKeyEvent, QMouseEvent
from PySide6.QtWidgets import QFrame, QGraphicsItem

from gradstudio.core.text import strong
from gradstudio.gui.drawing import axes
from gradstudio.gui.drawing.canvas import Canvas, Label, VerticalLine
from gradstudio.gui.drawing.label_strip import LabelStrip
from gradstudio.gui.drawing.overlay_curves import OverlayLayer
from gradstudio.gui.drawing.plot_area import PlotArea
from gradstudio.gui.drawing.series import Scale, Series, linear
from gradstudio.gui.drawing.shared_cursor import Cursor, StepRange
from gradstudio.gui.drawing.time_axis import precise
from gradstudio.gui.drawing.view_box import StepViewBox
from gradstudio.gui.drawing.viewed_step_line import ViewedStepLine
from gradstudio.gui.plots.plot_header import PlotHeader
from gradstudio.gui.plots.run_marks import RunMarks
from gradstudio.gui.widgets.rows import in_column, in_row
from gradstudio.session.record.run import Run
from gradstudio.session.words.curve_words import ColumnSummaries

NOTHING = "Nothing was measured yet."


class StepFrame(QFrame):
    """A card with a header and a plot area over steps. Subclasses draw in it, and return its content in words from
    `reading`, `legend` and `spoken`."""

    title = ""
    help = ""
    box_kind = StepViewBox
    series: tuple[Series, ...] = ()  # its curves, which share one source
    overlay: OverlayLayer | None = None  # other runs, if the plot has slots for them
    right_width = axes.RIGHT_WIDTH
    columns: tuple[str, ...] = ()  # of the history, for its data as a table
    alone_asked = Signal()  # the user wants this plot to fill the room of all, or all plots again
    may_be_alone, alone = False, False  # whether it can, and whether it does

    def __init__(self, steps: StepRange, cursor: Cursor, left: axes.Axis, right: axes.Axis | None = None) -> None:
        super().__init__()
        self.setObjectName("card")
        self.steps, self.step_cursor = steps, cursor
        self.run: Run | None = None
        self._said = 0.0  # when the words were last updated
        self._unsaid = False
        self.summaries = ColumnSummaries()
        self._told = 0.0  # when the words for screen readers were last updated
        self._scale = 0.0  # device pixel ratio
        self._moved = True  # the ranges, the size or the look have changed since the last `settle`
        self.box = self.box_kind(steps, self._show_whole_run)
        self.widget = PlotArea(self.box, left, right, self.right_width)
        self.plot, self.canvas = self.widget.plot, self.widget.canvas
        self.marks, self.cursor_line = RunMarks(self.canvas), VerticalLine(self.canvas)
        self.viewed_step_line = ViewedStepLine(self.canvas, self.step_cursor.looked)
        self.strip, self.invitation = LabelStrip(self.canvas), Label(self.canvas, z=40)
        self.invitation.hide()
        self.header = PlotHeader(self.title, self.help)
        self.title_label, self.legend_label = self.header.title, self.header.legend
        self._lay_out()
        self._connect()

    # ---- overridden by plots

    def reading(self, run: Run, step: int) -> str:
        """Return the content of the plot at one step, in words."""
        return ""

    def spoken(self, run: Run) -> str:
        """Return the content of the curves for screen readers: `rows` of the run were read, at least one."""
        figures = self.summaries.words(run.history, self.columns, len(run.history))
        last = len(run.history) - 1
        return figures or f"step {last:,}: {self.reading(run, last)}"

    def legend(self) -> str:
        """Return what the curves and marks mean, as rich text."""
        return ""

    @property
    def y_scale(self) -> Scale:
        """Scale of the left axis."""
        return linear

    # ---- the picture

    def settle(self) -> None:
        """Update the picture to the ranges and the size, so that Qt can paint it without calling Python."""
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

    def show_values(self, side: str, shown: bool) -> None:
        """Show or hide the numbers of an axis."""
        if self.widget.show_values(side, shown):
            self._moved = True

    def _lay_out(self) -> None:
        self.body = in_row((self.widget, 1), spacing=0)
        in_column(self.header, (self.body, 1), of=self, margins=(1, 1, 1, 3), spacing=0)
        self.widget.setFrameShape(QFrame.Shape.NoFrame)
        self.widget.setAccessibleName(self.title)
        self.widget.setAccessibleDescription(self.help)
        self.widget.setToolTip("")
        self.widget.viewport().setFocusPolicy(Qt.FocusPolicy.NoFocus)  # or a screen reader announces each plot twice
        self.widget.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.cursor_line.hide()

    def _connect(self) -> None:
        self.widget.installEventFilter(self)
        self.widget.mouse_moved.connect(self._mouse_moved)
        self.widget.resized.connect(self._on_resize)
        self.box.sigTransformChanged.connect(self._place_labels)
        self.box.sigRangeChanged.connect(self._has_moved)
        self.step_cursor.moved.connect(self._cursor_moved)

    def _place_labels(self) -> None:
        """Position the words for the ranges and the size."""
        self.strip.place()
        wide, high = self.canvas.size
        self.invitation.place(wide / 2, high / 2, (0.5, 0.5))

    def _on_resize(self) -> None:
        self._unsaid = True  # as there may be room for more words, or for fewer
        self.settle()

    def _has_moved(self) -> None:
        self._moved = True

    # ---- the words

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
        """Return the position of the cursor, in words. Over time, a step that is `beyond` the run has no number."""
        places = self.steps.places
        seconds = precise(places.of(step), self.steps.right - self.steps.left) if places.timed else ""
        return seconds if beyond and seconds else f"step {places.number(step):,}{f', {seconds}' if seconds else ''}"

    def update_accessible_text(self) -> None:
        """Update the words for screen readers. They are read when the plot gets the focus, so they are generated then,
        when the run pauses or ends, and now and then while a screen reader is active."""
        self._told = time.monotonic()
        run = self.run
        text = self.spoken(run) if run is not None and len(run.history) else NOTHING
        self.widget.setAccessibleDescription(text)

    # ---- cursor, mouse and keys

    def _cursor_moved(self) -> None:
        step = self.step_cursor.step
        if step is not None and self.run is not None and step >= 0 and self._is_covered(self.run, step):
            self.cursor_line.move_to(step)
            self.cursor_line.show()
        else:
            self.cursor_line.hide()
        if self.run is not None:
            self._say(self.run)

    def _is_covered(self, run: Run, step: int) -> bool:
        """Return whether the run or an overlay has this step."""
        return step < len(run.history) or self.steps.places.of(step) < self.steps.over

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
                self.update_accessible_text()
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
        if self.may_be_alone:  # on the head: the plot below it handles its own
            self.alone_asked.emit()
        event.accept()

    def _key(self, key: int, last: int) -> bool:
        """Handle a key: + and - zoom, Page Up and Page Down scroll by half a view, the cursor takes the others. `last`
        is the last step of the run. Return whether the key has a meaning."""
        asked = key in (Qt.Key.Key_Return, Qt.Key.Key_Enter) or (key == Qt.Key.Key_Escape and self.alone)
        if asked and self.may_be_alone:
            self.alone_asked.emit()
            return True
        steps, cursor = self.steps, self.step_cursor
        here = last if cursor.step is None else cursor.step
        left, width, place = steps.left, steps.right - steps.left, steps.places.of(float(here))
        views: dict[int, tuple[float, float]] = {
            Qt.Key.Key_Plus: (place - width / 4, place + width / 4),
            Qt.Key.Key_Minus: (left - width / 2, left + 1.5 * width),
            Qt.Key.Key_PageUp: (left - width / 2, left + width / 2),
            Qt.Key.Key_PageDown: (left + width / 2, left + 1.5 * width),
        }
        if (view := views.get(key)) is None:
            return cursor.looked.press(key)
        steps.zoom(*view)
        return True
