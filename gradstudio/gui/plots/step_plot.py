"""The frame of every plot over steps: title, legend, read-out, axes, cursor, and the marks that a run leaves.

A plot is pulled: `refresh` reads the rows that came since the last call and draws once.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyqtgraph as pg
from PySide6.QtCore import QEvent, QPointF, Qt
from PySide6.QtGui import QMouseEvent, QWheelEvent
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QSizePolicy, QVBoxLayout, QWidget

from gradstudio.gui.plots import axes
from gradstudio.gui.plots.series import Series
from gradstudio.gui.plots.shared import Cursor, StepRange
from gradstudio.gui.theme import theme
from gradstudio.session.run import Run

UNDER_TEXT = 215  # alpha of the plot's own colour behind a text on a curve


class StepViewBox(pg.ViewBox):
    """Wheel and drag move along the steps only; a double click shows the whole run again."""

    def __init__(self, steps: StepRange, whole: Callable[[], None]) -> None:
        super().__init__(enableMenu=False, defaultPadding=0)
        self._steps, self._whole = steps, whole
        self.setMouseEnabled(x=False, y=False)

    def wheelEvent(self, ev: QWheelEvent, axis: int | None = None) -> None:
        center = self.mapSceneToView(ev.scenePos()).x()
        factor = 0.85 ** (ev.delta() / 120)
        first, last = self._steps.first, self._steps.last
        self._steps.zoom(center - (center - first) * factor, center + (last - center) * factor)
        ev.accept()

    def mouseDragEvent(self, ev: QMouseEvent, axis: int | None = None) -> None:
        ev.accept()
        moved = self.mapSceneToView(ev.lastScenePos()).x() - self.mapSceneToView(ev.scenePos()).x()
        first, last = self._steps.first, self._steps.last
        shift = max(moved, -first)
        self._steps.zoom(first + shift, last + shift)

    def mouseDoubleClickEvent(self, ev: QMouseEvent) -> None:
        self._whole()
        ev.accept()


class StepPlot(QFrame):
    """A titled plot over steps. Subclasses name their `series`, draw in `draw`, and say in `reading` what stands at a step."""

    title = ""
    help = ""
    left_values = True
    series: tuple[Series, ...] = ()  # what it takes in of a run
    right_width = axes.RIGHT_WIDTH

    def __init__(self, steps: StepRange, cursor: Cursor, left: pg.AxisItem, right: pg.AxisItem | None = None) -> None:
        super().__init__()
        self.setObjectName("card")
        self.steps, self.step_cursor = steps, cursor
        self.run: Run | None = None
        self._seen = 0
        self._changes = -1
        self._marked: int | None = -1
        self.box = StepViewBox(steps, self._show_whole_run)
        bottom = axes.StepAxis("bottom")
        right = right or pg.AxisItem("right")
        self.widget = pg.PlotWidget(viewBox=self.box, axisItems={"left": left, "bottom": bottom, "right": right})
        self.plot: pg.PlotItem = self.widget.getPlotItem()
        self._build()
        steps.changed.connect(self._steps_changed)
        cursor.moved.connect(self._cursor_moved)
        theme.changed.connect(self.restyle)

    # ---- what a plot fills in

    def read(self, run: Run, start: int, stop: int) -> None:
        """Take in the rows start to stop."""
        for series in self.series:
            series.take(run.history, start, stop)

    def draw(self, run: Run) -> None:
        """Draw what was taken in, for the steps on view."""

    def clear(self) -> None:
        """A new run: forget the old one's rows."""
        for series in self.series:
            series.clear()

    def reading(self, run: Run, step: int) -> str:
        """What the plot shows at one step, in words."""
        return ""

    def legend(self) -> str:
        return ""

    # ---- called by the window

    def refresh(self, run: Run) -> None:
        """Show the run as it stands; cheap where nothing is new."""
        if run is not self.run or len(run.history) < self._seen:
            self.run, self._seen, self._changes, self._marked = run, 0, -1, -1
            self.clear()
            self._draw_all(run)
        stop = len(run.history)
        if stop > self._seen:
            self.read(run, self._seen, stop)
            self._seen = stop
            if self.isVisible():
                self._draw_all(run)
        elif len(run.timeline) != self._changes or run.first_nonfinite_step != self._marked:
            self._draw_marks(run)

    def redraw(self) -> None:
        if self.run is not None:
            self._draw_all(self.run)

    def restyle(self) -> None:
        """Take on the colours of the theme."""
        for series in self.series:
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
        self._cursor_line.setPen(pg.mkPen(theme.color("dim"), width=1))
        self._changes_item.setPen(pg.mkPen(theme.color("accent", 130), width=1, style=dashed))
        self._nonfinite_line.setPen(pg.mkPen(theme.color("bad"), width=1))
        self._nonfinite_text.setColor(theme.color("bad"))
        self._nonfinite_text.fill = pg.mkBrush(theme.color("plot"))
        self._nonfinite_text.setFont(theme.font(0.85, weight=theme.font().Weight.DemiBold))
        self.redraw()

    def show_values(self, name: str, shown: bool) -> None:
        """Write figures at an axis or not; an axis that is told what it knows would be drawn anew."""
        axis = self.plot.getAxis(name)
        if axis.style["showValues"] != shown:
            axis.setStyle(showValues=shown)

    def set_y(self, low: float, high: float, *, least: float) -> None:
        """Move the y axis only when the data leave it or fill less than a third of it, and then with a quarter to spare."""
        now_low, now_high = self.box.viewRange()[1]
        if high - low < least:
            middle = (low + high) / 2
            low, high = middle - least / 2, middle + least / 2
        spare = (high - low) / 8
        fits = now_low <= low and high <= now_high and (now_high - now_low) < 3 * (high - low + 2 * spare)
        if not fits:
            self.box.setYRange(float(low - spare), float(high + spare), padding=0)

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
            self.plot.getAxis(name).setZValue(-10)  # its grid lies under the curves
        self.plot.getAxis("right").setStyle(showValues=False)
        self.plot.getAxis("bottom").setHeight(4)
        self.plot.getAxis("bottom").setStyle(showValues=False, hideOverlappingLabels=False)
        self.plot.showGrid(y=True, alpha=1)
        self.plot.getAxis("right").setGrid(False)
        self._cursor_line = pg.InfiniteLine(angle=90)
        self._nonfinite_line = pg.InfiniteLine(angle=90)
        self._nonfinite_text = pg.TextItem()
        self._changes_item = pg.PlotCurveItem(connect="pairs")
        for item in (self._changes_item, self._nonfinite_line, self._nonfinite_text, self._cursor_line):
            item.setZValue(50)
            self.plot.addItem(item, ignoreBounds=True)
            item.hide()

    def _draw_all(self, run: Run) -> None:
        spare = 0.008 * (self.steps.last - self.steps.first)  # for a mark at the first step
        self.box.setXRange(self.steps.first - spare, self.steps.last, padding=0)
        self.show_values("left", bool(len(run.history)) and self.left_values)
        self.draw(run)
        self._draw_marks(run)
        if self.step_cursor.step is None:
            self._say(run)

    def _draw_marks(self, run: Run) -> None:
        low, high = self.box.viewRange()[1]
        self._changes, self._marked = len(run.timeline), run.first_nonfinite_step
        at = np.unique([change.step for change in list(run.timeline)]).astype(float) - 0.5
        self._changes_item.setVisible(bool(len(at)))
        self._changes_item.setData(np.repeat(at, 2), np.tile([low, high], len(at)))
        step = run.first_nonfinite_step
        for item in (self._nonfinite_line, self._nonfinite_text):
            item.setVisible(step is not None)
        if step is not None:
            self._nonfinite_line.setPos(step)
            self._nonfinite_text.setText(self.nonfinite_mark(run, step))
            right = step > (self.steps.first + self.steps.last) / 2
            self._nonfinite_text.setAnchor((1.04 if right else -0.04, -0.1))
            self._nonfinite_text.setPos(float(step), float(high))

    def nonfinite_mark(self, run: Run, step: int) -> str:
        return ""

    def _cursor_moved(self) -> None:
        step = self.step_cursor.step
        shown = step is not None and self.run is not None and 0 <= step < len(self.run.history)
        self._cursor_line.setVisible(shown)
        if shown:
            self._cursor_line.setPos(step)
        if self.run is not None:
            self._say(self.run)

    def _say(self, run: Run) -> None:
        step = self.step_cursor.step
        at = step if step is not None and 0 <= step < len(run.history) else None
        text = f"<b>step {at:,}</b> · {self.reading(run, at)}" if at is not None else self.legend()
        self.legend_label.setText(text)
        if len(run.history):
            last = len(run.history) - 1
            self.widget.setAccessibleDescription(f"step {last}: {self.reading(run, last)}")

    def _steps_changed(self) -> None:
        if self.isVisible() and self.run is not None:
            self._draw_all(self.run)

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
