"""The area of a plot as one widget: its axes, its view box with the ranges, and its canvas."""

from __future__ import annotations

import pyqtgraph as pg

from gradstudio.gui.drawing.axes import LEFT_WIDTH, RIGHT_WIDTH, Axis
from gradstudio.gui.drawing.canvas import Canvas
from gradstudio.gui.drawing.cheap_frame import PlotView, grid_of
from gradstudio.gui.drawing.time_axis import PlaceAxis
from gradstudio.gui.drawing.view_box import StepViewBox
from gradstudio.gui.theme import theme

FOOT = 4  # px below the lowest number where no steps are written, at normal text
LEAST_HIGH = 32  # px of the whole, at normal text
FARTHEST = 1e280  # values beyond leave the plot: a transform of a wider range has no inverse in floats


class PlotArea(PlotView):
    """Axes around a view box. `right_width` is the width of the right axis in pixels at normal text."""

    def __init__(self, box: StepViewBox, left: Axis, right: Axis | None, right_width: int) -> None:
        self._sides = {"left": left, "bottom": PlaceAxis("bottom", box.places), "right": right or Axis("right")}
        self._right_width = right_width
        self._values_shown: dict[str, bool] = {}
        self._writes_steps = False
        self._keeps_next_range = False  # whether the next y range is used unchanged
        super().__init__(box, dict(self._sides))
        self.box, self.canvas = box, Canvas(box, box.places)
        self.plot.hideButtons()
        self.above = 4  # px at normal text that are free above the axes
        for name, width in (("left", LEFT_WIDTH), ("right", RIGHT_WIDTH)):
            self.plot.showAxis(name)
            self._sides[name].setWidth(width)
            self._sides[name].setZValue(-110)  # its grid is under the curves
        self._sides["right"].setStyle(showValues=False)
        self._sides["bottom"].unlinkFromView()  # the steps are written once, under the last plot
        self._sides["bottom"].setStyle(showValues=False, hideOverlappingLabels=False)
        self.show_grid(True)

    def show_grid(self, shown: bool) -> None:
        """Draw lines at the numbers of the left axis or not."""
        self.plot.showGrid(y=shown, alpha=1)
        self._sides["right"].setGrid(False)  # otherwise its lines would be between those of the left one

    def write_steps(self) -> None:
        """Write the steps under this plot."""
        self._writes_steps = True
        self._sides["bottom"].linkToView(self.box)
        self._sides["bottom"].setStyle(showValues=True)
        self._sides["bottom"].setHeight(None)

    def apply_style(self) -> None:
        """Apply the colours and the text size of the theme."""
        self.setBackground(theme.colors.plot)
        self.setMinimumHeight(round(LEAST_HIGH * theme.zoom))
        self._sides["bottom"].setHeight(None if self._writes_steps else FOOT * theme.zoom)
        grid_of(self.plot).setContentsMargins(0, round(self.above * theme.zoom), 0, 0)
        for axis in self._sides.values():
            axis.setTextPen(theme.color("dim"))
            axis.setPen(pg.mkPen(None))
            axis.setTickPen(theme.color("grid"))
            axis.setStyle(tickFont=theme.font(0.8), tickLength=0, tickTextOffset=6)
        self._sides["left"].setWidth(LEFT_WIDTH * theme.zoom)
        self._sides["right"].setWidth(self._right_width * theme.zoom)

    def show_values(self, side: str, shown: bool) -> bool:
        """Show or hide the numbers of an axis; return whether that is a change. An axis is only called for a change, as
        it would be redrawn."""
        if self._values_shown.get(side) == shown:
            return False
        self._values_shown[side] = shown
        self._sides[side].setStyle(showValues=shown)
        return True

    def settle(self) -> float:
        """Redraw the axes that have changed. Return the device pixel ratio."""
        scale = self.devicePixelRatioF()
        for axis in self._sides.values():
            axis.settle(scale)
        return scale

    def draw_as_vectors(self, vectors: bool) -> None:
        """Draw the axes as lines and letters, for a figure, or as pictures again."""
        for axis in self._sides.values():
            axis.draw_as_vectors(vectors)

    @property
    def y_range(self) -> tuple[float, float]:
        """Range of the y axis, in its own units."""
        low, high = self.box.viewRange()[1]
        return low, high

    def refit(self) -> None:
        """Fit the y axis to the data at the next call of `set_y`, even if they are already in it."""
        self._keeps_next_range = True

    def set_y(self, low: float, high: float, *, least: float) -> None:
        """Move the y axis only when the data leave it or fill less than a third of it, and then with a margin of a
        quarter. It is never shorter than `least`, nor than floats can distinguish its ends."""
        now_low, now_high = self.y_range
        low, high = (min(max(end, -FARTHEST), FARTHEST) for end in (low, high))
        least = max(min(least, FARTHEST), 1e-6 * max(abs(low), abs(high)))
        if high - low < least:
            middle = (low + high) / 2
            low, high = middle - least / 2, middle + least / 2
        spare = (high - low) / 8
        fits = now_low <= low and high <= now_high and (now_high - now_low) < 3 * (high - low + 2 * spare)
        keeps_range, self._keeps_next_range = self._keeps_next_range, False
        if keeps_range or not fits:
            self.box.set_range(y=(float(low - spare), float(high + spare)))
