"""The frame of every plot over steps: title, legend, read-out, axes, cursor, and the marks that a run leaves.

A plot is pulled: `refresh` reads the rows that came since the last call and draws once.
"""

from __future__ import annotations

import time

import numpy as np
import pyqtgraph as pg
from PySide6.QtCore import QEvent, QPointF, Qt
from PySide6.QtGui import QPen
from PySide6.QtWidgets import QFrame, QGraphicsItem, QHBoxLayout, QLabel, QSizePolicy, QVBoxLayout, QWidget

from gradstudio.gui.plots import axes
from gradstudio.gui.plots.canvas import Canvas, Label, PlotView, Upright, Uprights
from gradstudio.gui.plots.overlay import OverlayLayer, Overlays
from gradstudio.gui.plots.series import Scale, Series, linear
from gradstudio.gui.plots.shared import Cursor, StepRange
from gradstudio.gui.plots.view_box import StepViewBox
from gradstudio.gui.theme import theme
from gradstudio.session.run import Run

READ_EVERY = 0.1  # seconds, where there is no pixel's worth of new rows
SAY_EVERY = 0.5  # seconds: words that change faster cannot be read
FIT_EVERY = 1.0  # seconds after which the y axis is looked at though no value has left it
UNDER_TEXT = 215  # alpha of the plot's own colour behind a text on a curve


def changed_at(run: Run) -> np.ndarray:
    """Where the lines of the run's changes and of its fork stand, each between two steps."""
    return np.array(sorted({change.step for change in list(run.timeline)} | ({run.parent_step} if run.parent else set())), float) - 0.5


class StepPlot(QFrame):
    """A titled plot over steps. Subclasses name their `series`, draw in `draw`, choose the y range in `fit_y`, and say in `reading` what stands
    at a step."""

    title = ""
    help = ""
    left_values = True
    box_kind = StepViewBox
    series: tuple[Series, ...] = ()  # its curves, which have one source
    right_width = axes.RIGHT_WIDTH
    columns: tuple[str, ...] = ()  # of the history that it is about: its data as a table
    shown_metric = ""  # of the layers, likewise
    overlay: OverlayLayer | None = None  # other runs, where the plot has a place for them
    y_scale: Scale = staticmethod(linear)  # of values on the left axis

    def __init__(self, steps: StepRange, cursor: Cursor, left: axes.Axis, right: axes.Axis | None = None) -> None:
        super().__init__()
        self.setObjectName("card")
        self.steps, self.step_cursor = steps, cursor
        self.run: Run | None = None
        self._seen = 0
        self._changes = -1
        self._marked: int | None = -1
        self._shown = (0.0, 0.0)  # steps
        self._status = ""  # of the run, when all was last looked at
        self._read_at = 0.0  # when rows were last taken in
        self._fitted: tuple = ()  # the steps that the y axis was chosen for
        self._fit_due = 0.0  # when it is looked at anew
        self._said = 0.0  # when the words were last brought up to date
        self._unsaid = False
        self._scale = 0.0  # pixels of the screen in one of Qt's
        self._values_shown: dict[str, bool] = {}  # of the axes
        self._moved = True  # the ranges, the size or the look, since they were last brought into line
        self.box = self.box_kind(steps, self._show_whole_run)
        self._axes = (left, axes.StepAxis("bottom"), right or axes.Axis("right"))
        self.widget = PlotView(self.box, dict(zip(("left", "bottom", "right"), self._axes, strict=True)))
        self.plot: pg.PlotItem = self.widget.getPlotItem()
        self.canvas = Canvas(self.box)
        self._build()
        steps.changed.connect(self._steps_changed)
        cursor.moved.connect(self._cursor_moved)
        theme.changed.connect(self.restyle)

    # ---- what a plot fills in

    def read(self, run: Run, start: int, stop: int) -> None:
        """Take in the rows start to stop, as far as no other plot has."""
        if self.series:
            self.series[0].source.take(run.history, stop)

    def rows(self, run: Run) -> int:
        """How many there are to take in."""
        return len(run.history)

    def fit_y(self, run: Run) -> None:
        """Have the y axis hold what is on view."""

    def draw(self, run: Run) -> None:
        """Draw what was taken in, for the steps on view."""

    def clear(self) -> None:
        """A new run: forget the old one's rows."""
        for series in self.series:
            series.clear()

    def look_again(self) -> None:
        """Find anew at the next drawing whatever is found only now and then."""
        self._fit_due = 0.0

    def reading(self, run: Run, step: int) -> str:
        """What the plot shows at one step, in words."""
        return ""

    def legend(self) -> str:
        return ""

    def own_data(self) -> str | None:
        """What it shows as CSV, where that is no column of the run."""
        return None

    def take_over(self, overlays: Overlays, drawn: str, told: str) -> None:
        """Draw this column of other runs over the run, and tell that one's values."""
        self.overlay = OverlayLayer(self.canvas, overlays, drawn, told)
        overlays.changed.connect(self._has_others)
        overlays.grown.connect(self.look_again)
        overlays.grown.connect(self._has_moved)

    # ---- called by the window

    def refresh(self, run: Run, scale: float) -> None:
        """Show the run as it stands, on a screen with `scale` pixels for one of Qt's; cheap where nothing is new."""
        stop = self.rows(run)
        if run is not self.run or stop < self._seen:
            self.run, self._seen, self._changes, self._marked, self._said = run, 0, -1, -1, 0.0
            if self.series:
                self.series[0].source.hold(run.history)
            self.clear()
            self._draw_all(run)
        new = stop > self._seen and self._shows(run, stop)
        if new:
            self.read(run, self._seen, stop)
            self._seen, self._read_at = stop, time.monotonic()
        if (new or self._shown != (self.steps.first, self.steps.last)) and self.isVisible():
            self._draw_all(run)
        elif len(run.timeline) != self._changes or run.first_nonfinite_step != self._marked:
            self._draw_marks(run)
        if run.status != self._status:  # what was put off while it ran is made up for
            self._status = run.status
            self._draw_all(run)
        if self._unsaid and time.monotonic() > self._said + SAY_EVERY:
            self._say(run)
        if self._moved or scale != self._scale:
            self.settle()

    def _shows(self, run: Run, stop: int) -> bool:
        """Whether the rows up to `stop` would change the picture: a long run needs many steps for a pixel."""
        pixel = (self.steps.last - self.steps.first) / max(self.canvas.size[0], 1)
        return stop - self._seen >= pixel or self._overdue(run)

    def _overdue(self, run: Run) -> bool:
        """Whether to show what there is, however little."""
        return run.status != "running" or time.monotonic() > self._read_at + READ_EVERY

    def redraw(self) -> None:
        if self.run is not None:
            self._draw_all(self.run)
        self.settle()

    def settle(self) -> None:
        """Bring what is shown into line with the ranges and the size; Qt paints it without asking."""
        self._moved, self._scale = False, self.widget.devicePixelRatioF()
        self.widget.scene().prepareForPaint()  # which pyqtgraph would call in Python at every paint
        for axis in self._axes:
            axis.settle(self._scale)
        if self.overlay is not None:
            self.overlay.settle(self.y_scale)

    @property
    def _canvases(self) -> list[Canvas]:
        return [self.canvas, *{series.canvas for series in self.series if series.canvas is not self.canvas}]

    @property
    def frames(self) -> list[QGraphicsItem]:
        """What stands inside of the axes."""
        return [canvas.frame for canvas in self._canvases]

    def draw_anew(self, sharp: int) -> None:
        """Be drawn as lines and letters, for a figure with so many pixels for one of Qt's; or again, with 0, from the pictures that
        are kept for the screen."""
        for canvas in self._canvases:
            canvas.sharp = sharp
        self.restyle()
        for axis in self._axes:
            axis.draw_anew(bool(sharp))
        if self.overlay is not None:
            self.overlay.cached(not sharp)
        if not sharp:
            self.settle()

    def restyle(self) -> None:
        """Take on the colours of the theme."""
        for series in (*self.series, *([self.overlay] if self.overlay else [])):
            series.restyle()
        self.widget.setBackground(theme.colors.plot)
        for name in ("left", "bottom", "right"):
            axis = self.plot.getAxis(name)
            axis.setTextPen(theme.color("dim"))
            axis.setPen(pg.mkPen(None))
            axis.setTickPen(theme.color("grid"))
            axis.setStyle(tickFont=theme.font(0.8), tickLength=0, tickTextOffset=6)
        self.plot.getAxis("left").setWidth(axes.LEFT_WIDTH * theme.zoom)
        self.plot.getAxis("right").setWidth(self.right_width * theme.zoom)
        dashed = Qt.PenStyle.DashLine
        self._cursor_line.setPen(QPen(theme.color("dim"), 0))
        self._changes_item.setPen(QPen(theme.color("accent", 130), 0, dashed))
        self._nonfinite_line.setPen(QPen(theme.color("bad"), 0))
        self._nonfinite_text.dress(theme.color("bad"), theme.color("plot"), theme.font(0.85, weight=theme.font().Weight.DemiBold))
        self.redraw()

    def show_values(self, name: str, shown: bool) -> None:
        """Write figures at an axis or not; an axis that is told what it knows would be drawn anew."""
        if self._values_shown.get(name) != shown:
            self._values_shown[name] = shown
            self.plot.getAxis(name).setStyle(showValues=shown)
            self._moved = True

    @property
    def held_y(self) -> list[float]:
        """What the y axis holds now, in its own units: least, greatest."""
        return self.box.viewRange()[1]

    def set_y(self, low: float, high: float, *, least: float) -> None:
        """Move the y axis only when the data leave it or fill less than a third of it, and then with a quarter to spare."""
        now_low, now_high = self.held_y
        if high - low < least:
            middle = (low + high) / 2
            low, high = middle - least / 2, middle + least / 2
        spare = (high - low) / 8
        fits = now_low <= low and high <= now_high and (now_high - now_low) < 3 * (high - low + 2 * spare)
        if not fits:
            self.box.set_range(y=(float(low - spare), float(high + spare)))

    # ---- inside

    def _build(self) -> None:
        self.title_label = QLabel(self.title)
        self.title_label.setProperty("role", "title")
        self.title_label.setToolTip(self.help)
        self.legend_label = QLabel()
        self.legend_label.setProperty("role", "dim")
        self.legend_label.setTextFormat(Qt.TextFormat.RichText)
        self.legend_label.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred)
        self.legend_label.setAlignment(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
        self.header = QHBoxLayout()
        self.header.setContentsMargins(10, 5, 12, 0)
        self.header.addWidget(self.title_label)
        self.header.addSpacing(10)
        self.header.addWidget(self.legend_label, 1)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(1, 1, 1, 3)
        layout.setSpacing(0)
        layout.addLayout(self.header)
        layout.addWidget(self.widget, 1)
        self.widget.setFrameShape(QFrame.Shape.NoFrame)
        self.widget.setMinimumHeight(36)
        self.widget.setAccessibleName(self.title)
        self.widget.setToolTip("")
        self.widget.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.widget.installEventFilter(self)
        self.widget.scene().sigMouseMoved.connect(self._mouse_moved)
        self.plot.hideButtons()
        self.plot.layout.setContentsMargins(0, 4, 0, 0)
        for name, width in (("left", axes.LEFT_WIDTH), ("right", axes.RIGHT_WIDTH)):
            self.plot.showAxis(name)
            self.plot.getAxis(name).setWidth(width)
            self.plot.getAxis(name).setZValue(-110)  # its grid lies under the curves
        self.plot.getAxis("right").setStyle(showValues=False)
        self.plot.getAxis("bottom").unlinkFromView()  # the steps are written once, under the last plot
        self.plot.getAxis("bottom").setHeight(4)
        self.plot.getAxis("bottom").setStyle(showValues=False, hideOverlappingLabels=False)
        self.plot.showGrid(y=True, alpha=1)
        self.plot.getAxis("right").setGrid(False)
        self._changes_item = Uprights(self.canvas)
        self._nonfinite_line, self._cursor_line = Upright(self.canvas), Upright(self.canvas)
        self._nonfinite_text = Label(self.canvas, z=50, margin=4)
        for item in (self._changes_item, self._nonfinite_line, self._nonfinite_text, self._cursor_line):
            item.hide()
        self.widget.resized.connect(self.settle)
        self.box.sigTransformChanged.connect(self._place_labels)
        self.box.sigRangeChanged.connect(self._has_moved)

    def _draw_all(self, run: Run) -> None:
        if run.status != "running":
            self.look_again()
        if self._shown != (self.steps.first, self.steps.last):
            self._shown = (self.steps.first, self.steps.last)
            spare = 0.008 * (self.steps.last - self.steps.first)  # for a mark at the first step
            self.box.set_range(x=(self.steps.first - spare, self.steps.last + 1.5 * spare))  # and for the handle at the last
        self.show_values("left", bool(len(run.history) or (self.overlay and self.steps.over)) and self.left_values)
        if self.series and self._is_fit_due():
            self.fit_y(run)
        self.draw(run)
        if len(run.timeline) != self._changes or run.first_nonfinite_step != self._marked:
            self._draw_marks(run)
        self._unsaid = True

    def _is_fit_due(self) -> bool:
        """Whether to look at the y axis: where other steps are on view, or a value has come that it does not hold, or now and then."""
        asked, now = (self.steps.first, self.steps.last, self.steps.following), time.monotonic()
        outgrown = [series.outgrew() for series in self.series]  # each is asked, for it remembers
        if asked == self._fitted and now < self._fit_due and not any(outgrown):
            return False
        self._fitted, self._fit_due = asked, now + FIT_EVERY if self._seen else 0.0  # of no rows nothing is learnt
        return True

    def _draw_marks(self, run: Run) -> None:
        self._changes, self._marked = len(run.timeline), run.first_nonfinite_step
        self._changes_item.show_at(changed_at(run))
        step = run.first_nonfinite_step
        for item in (self._nonfinite_line, self._nonfinite_text):
            item.setVisible(step is not None)
        if step is not None:
            self._nonfinite_line.setPos(step, 0)
            self._nonfinite_text.setText(self.nonfinite_mark(run, step))
        self._place_labels()

    def _place_labels(self) -> None:
        """Put the words to where the ranges and the size have them."""
        step = self._marked
        if step is not None and step >= 0:
            right = step > (self.steps.first + self.steps.last) / 2
            self._nonfinite_text.place(self.canvas.across(step), 0, (1.04 if right else -0.04, -0.1))

    def nonfinite_mark(self, run: Run, step: int) -> str:
        return ""

    def _has_moved(self) -> None:
        self._moved = True

    def _has_others(self) -> None:
        self.look_again()
        self.redraw()

    def _cursor_moved(self) -> None:
        step = self.step_cursor.step
        shown = step is not None and self.run is not None and 0 <= step < max(len(self.run.history), self.steps.over)
        self._cursor_line.setVisible(shown)
        if shown:
            self._cursor_line.setPos(step, 0)
        if self.run is not None:
            self._say(self.run)

    def _say(self, run: Run) -> None:
        self._said, self._unsaid = time.monotonic(), False
        step = self.step_cursor.step
        at = step if step is not None and 0 <= step < len(run.history) else None
        text = f"<b>step {at:,}</b> · {self.reading(run, at)}" if at is not None else self.legend()
        self.legend_label.setText(text)
        if self.overlay is not None and step is not None and (over := self.overlay.reading(step)):
            self.legend_label.setText(f"{text} &nbsp;{over}" if at is not None else f"<b>step {step:,}</b> &nbsp;{over}")
            if self.legend_label.sizeHint().width() > self.legend_label.width() and at is not None:  # there is no room for all
                self.legend_label.setText(text)
        if len(run.history):
            last = len(run.history) - 1
            self.widget.setAccessibleDescription(f"step {last}: {self.reading(run, last)}")

    def _steps_changed(self) -> None:
        if self.isVisible() and self.run is not None:
            self.redraw()

    def _show_whole_run(self) -> None:
        self.steps.fit(len(self.run.history) if self.run else 0)

    def _mouse_moved(self, position: QPointF) -> None:
        if self.box.sceneBoundingRect().contains(position):
            self.step_cursor.move(round(self.box.mapSceneToView(position).x()))
        else:
            self.step_cursor.move(None)

    def eventFilter(self, watched: QWidget, event: QEvent) -> bool:
        if event.type() == QEvent.Type.Leave:
            self.step_cursor.move(None)
        if event.type() in (QEvent.Type.FocusIn, QEvent.Type.FocusOut):
            by_key = event.reason() in (Qt.FocusReason.TabFocusReason, Qt.FocusReason.BacktabFocusReason)
            self.setProperty("focused", event.type() == QEvent.Type.FocusIn and by_key)
            self.style().unpolish(self)
            self.style().polish(self)
        if event.type() == QEvent.Type.KeyPress and self.run is not None:
            return self._key(event.key())
        return False

    def _key(self, key: int) -> bool:
        last = len(self.run.history) - 1
        here = self.step_cursor.step if self.step_cursor.step is not None else last
        first, width = self.steps.first, self.steps.last - self.steps.first
        views = {
            Qt.Key.Key_Plus: (here - width / 4, here + width / 4),
            Qt.Key.Key_Minus: (first - width / 2, first + 1.5 * width),
            Qt.Key.Key_PageUp: (first - width / 2, first + width / 2),
            Qt.Key.Key_PageDown: (first + width / 2, first + 1.5 * width),
        }
        if key in views:
            self.steps.zoom(*views[key])
            return True
        target = {Qt.Key.Key_Left: here - 1, Qt.Key.Key_Right: here + 1}.get(key)
        if target is None or last < 0:
            return False
        self.step_cursor.move(min(max(target, 0), last))
        return True
