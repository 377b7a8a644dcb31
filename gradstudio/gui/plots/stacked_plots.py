"""The plots, one below the other, with one step axis and one cursor. What only some runs or some people need is made
when it is first shown; plot_stack.py says what is on view."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import TypeVar

from PySide6.QtCore import QPointF, QRect, Signal
from PySide6.QtWidgets import QWidget

from gradstudio.gui.drawing.overlay import Overlays
from gradstudio.gui.drawing.shared_cursor import Cursor, StepRange
from gradstudio.gui.plots.directions import DirectionsPlot
from gradstudio.gui.plots.gradient_norm import GradientNormPlot
from gradstudio.gui.plots.layer_card import LayerCard
from gradstudio.gui.plots.layer_page import LayerPage
from gradstudio.gui.plots.layers import LayersPlot
from gradstudio.gui.plots.loss import LossPlot
from gradstudio.gui.plots.overlay_chips import Chips
from gradstudio.gui.plots.own_figures import OwnFiguresPlot
from gradstudio.gui.plots.policy_plot import PolicyPlot
from gradstudio.gui.plots.ranks import RanksPlot
from gradstudio.gui.plots.run_source import RunSource
from gradstudio.gui.plots.scale_and_rate import ScaleAndRatePlot
from gradstudio.gui.plots.step_plot import StepPlot
from gradstudio.gui.plots.timeline import Timeline
from gradstudio.gui.plots.twin_difference import DifferencePlot
from gradstudio.gui.theme import theme
from gradstudio.gui.widgets.rows import in_column, tab_behind
from gradstudio.gui.widgets.viewed_step import ViewedStep

# What stands under each other. What only some runs or some people need is made when it is first shown.
PARTS = (
    "loss", "gradient_norm", "difference", "directions", "policy", "own_figures", "layer_card", "ranks",
    "scale_and_rate", "layer_page", "timeline",
)  # fmt: skip
Part = TypeVar("Part", bound=QWidget)


class StackedPlots(QWidget):
    """The plots, and what they share."""

    made = Signal(object)  # a plot, or the page of a layer, that was needed for the first time
    clicked = Signal(object, QPointF)  # a plot, and where
    alone_asked = Signal(object)  # for a plot to be shown alone, or with the others again
    left = Signal()  # the page of a layer

    def __init__(self, looked: ViewedStep | None) -> None:
        super().__init__()
        self.steps, self.step_cursor = StepRange(), Cursor(looked)
        self.looked = self.step_cursor.looked
        self.overlays = Overlays()
        self._source = RunSource()
        self.chips = Chips(self.overlays)
        self._layout = in_column(self.chips, of=self, margins=(12, 10, 12, 8), spacing=8)

    def furnishing(self) -> Iterator[None]:
        """Add the plots that every run has, one in each iteration."""
        steps, cursor, source = self.steps, self.step_cursor, self._source
        self.loss = LossPlot(steps, cursor, source, self.overlays)
        yield self._put(self.loss, 36)
        self.gradient_norm = GradientNormPlot(steps, cursor, source, self.overlays)
        yield self._put(self.gradient_norm, 36)
        self.layers = LayersPlot(steps, cursor)
        self.layer_card = LayerCard(self.layers)
        yield self._layout.addWidget(self.layer_card, 24)
        self.scale_and_rate = ScaleAndRatePlot(steps, cursor, source)
        yield self._put(self.scale_and_rate, 12)
        self.timeline = Timeline(steps, cursor)
        self._layout.addWidget(self.timeline)  # where a click views a step

    @cached_property
    def difference(self) -> DifferencePlot:
        return self._make_late("difference", DifferencePlot, 20)

    @cached_property
    def directions(self) -> DirectionsPlot:
        return self._make_late("directions", DirectionsPlot, 20)

    @cached_property
    def policy(self) -> PolicyPlot:
        return self._make_late("policy", PolicyPlot, 20)

    @cached_property
    def own_figures(self) -> OwnFiguresPlot:
        return self._make_late("own_figures", OwnFiguresPlot, 20)

    @cached_property
    def ranks(self) -> RanksPlot:
        return self._make_late("ranks", RanksPlot, 22)

    @cached_property
    def layer_page(self) -> LayerPage:
        page = self._make_late("layer_page", LayerPage, 100)
        page.left.connect(self.left)
        for plot in page.plots:
            self.made.emit(plot)
        return page

    def _make_late(self, name: str, make: Callable[[StepRange, Cursor], Part], share: int) -> Part:
        """Create a part, hidden, at its position among the others, also in the tab order."""
        place = PARTS.index(name)
        before = next(vars(self)[each] for each in reversed(PARTS[:place]) if self.has(each))
        behind = next(vars(self)[each] for each in PARTS[place:] if self.has(each))
        with theme.together():
            part = make(self.steps, self.step_cursor)
            self._layout.insertWidget(self._layout.indexOf(before) + 1, part, share)
        part.stackUnder(behind)
        tab_behind(before, part)
        if isinstance(part, StepPlot):
            self._connect_plot(part)
        self.made.emit(part)
        return part

    def has(self, name: str) -> bool:
        """Return whether a part has been created."""
        return name in vars(self)

    @property
    def every(self) -> tuple[StepPlot, ...]:
        """The plots that have been created, from top to bottom."""
        plots = {"layer_card": (self.layers,), "layer_page": self._layer_plots}
        return tuple(plot for name in PARTS if self.has(name) for plot in plots.get(name) or (vars(self)[name],))

    @property
    def _layer_plots(self) -> tuple[StepPlot, ...]:
        return self.layer_page.plots if self.has("layer_page") else ()

    def _put(self, plot: StepPlot, share: int) -> None:
        """Add a plot below the others, with its share of the height."""
        self._layout.addWidget(plot, share)
        self._connect_plot(plot)

    def _connect_plot(self, plot: StepPlot) -> None:
        plot.box.clicked.connect(lambda place: self.clicked.emit(plot, place))
        if not isinstance(plot, Timeline):
            plot.may_be_alone = True
            plot.alone_asked.connect(lambda: self.alone_asked.emit(plot))

    @contextmanager
    def _laid_out_once(self) -> Iterator[None]:
        """Lay the plots out once, in the next turn of the event loop, however many are shown or hidden meanwhile: Qt
        does so each time, at one to two ms for each plot."""
        self._layout.setEnabled(False)
        try:
            yield
        finally:
            self._layout.setEnabled(True)

    def _room_of_a_page(self) -> QRect:
        """Return the area of a page in place of all plots but the timeline."""
        room, spacing = self.rect().marginsRemoved(self._layout.contentsMargins()), self._layout.spacing()
        if not self.chips.isHidden():
            room.setTop(self.chips.geometry().bottom() + 1 + spacing)
        room.setBottom(self.timeline.geometry().top() - 1 - spacing)
        return room
