"""All plots, one below the other, with one step axis and one cursor."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import TypeVar

from PySide6.QtCore import QPointF, QRect, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QLayout, QWidget

from gradstudio.core.history import History
from gradstudio.gui.drawing.overlay import Overlays
from gradstudio.gui.drawing.shared_cursor import SHORTEST, Cursor, StepRange
from gradstudio.gui.plots.directions import DirectionsPlot
from gradstudio.gui.plots.gradient_norm import GradientNormPlot
from gradstudio.gui.plots.layer_card import LayerCard
from gradstudio.gui.plots.layer_page import LayerPage
from gradstudio.gui.plots.layers import LayersPlot
from gradstudio.gui.plots.loss import LossPlot
from gradstudio.gui.plots.overlay_chips import Chips
from gradstudio.gui.plots.overlay_smoothing import OverlaySmoothing
from gradstudio.gui.plots.own_figures import OwnFiguresPlot
from gradstudio.gui.plots.plot_options import X_AXIS, Chosen
from gradstudio.gui.plots.policy_plot import PolicyPlot, has_policy
from gradstudio.gui.plots.ranks import RanksPlot, has_ranks
from gradstudio.gui.plots.rewind_button import RewindButton
from gradstudio.gui.plots.run_source import RunSource
from gradstudio.gui.plots.scale_and_rate import ScaleAndRatePlot
from gradstudio.gui.plots.step_plot import StepPlot
from gradstudio.gui.plots.timeline import Timeline
from gradstudio.gui.plots.twin_difference import DifferencePlot
from gradstudio.gui.theme import theme
from gradstudio.gui.widgets.rows import in_column, tab_behind
from gradstudio.gui.widgets.viewed_step import ViewedStep
from gradstudio.session.record.run import Run
from gradstudio.session.simulator import Simulator

# What stands under each other. What only some runs or some people need is made when it is first shown.
PARTS = (
    "loss", "gradient_norm", "difference", "directions", "policy", "own_figures", "layer_card", "ranks",
    "scale_and_rate", "layer_page", "timeline",
)  # fmt: skip
Part = TypeVar("Part", bound=QWidget)
LOW = 310  # px of height at normal text, below which the curves take the room of the network
MANY = 30_000  # rows that take a plot so long to read that the others wait for the next frame


class PlotStack(QWidget):
    """The plots of the run that the simulator shows."""

    rewind_asked = Signal(int)
    made = Signal(object)  # a plot, or the page of a layer, that was needed for the first time

    def __init__(self, looked: ViewedStep | None = None) -> None:
        super().__init__()
        self.steps, self.step_cursor = StepRange(), Cursor(looked)
        self.looked = self.step_cursor.looked
        self.overlays = Overlays()
        self._source = RunSource()
        self._axis = Chosen("all", {"x": X_AXIS})
        self.overlays.timed = self.steps.places.timed = self.is_over_time
        self._smoothing = OverlaySmoothing(self._source, self.overlays)
        self.overlays.changed.connect(self._make_room)  # before the plots draw the change
        self.overlays.grown.connect(self._follow_twin)
        self.chips = Chips(self.overlays)
        self._run: Run | None = None
        self._furnished = False
        self._aside: tuple[StepPlot | LayerCard, ...] = ()  # what is hidden while one plot is shown alone
        self._layout = in_column(self.chips, of=self, margins=(12, 10, 12, 8), spacing=8)

    def furnishing(self) -> Iterator[None]:
        """Add the plots, one in each iteration: each takes some hundredths of a second."""
        steps, cursor, source = self.steps, self.step_cursor, self._source
        self.loss = LossPlot(steps, cursor, source, self.overlays)
        self.loss.smoothing_chosen.connect(self._smooth)
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
        self.timeline.axis_asked.connect(self.choose_axis)
        self.timeline.show_axis(self._axis["x"])
        self.layers.layer_asked.connect(self.show_layer)
        self.layer_card.network.layer_asked.connect(self.show_layer)
        self.rewind = RewindButton(self)
        self.rewind.chosen.connect(self.rewind_asked)
        steps.changed.connect(self.rewind.hide)  # another step is under it now
        self.timeline.rewind_asked.connect(self.rewind_asked)
        for part in (self.chips, self.rewind):
            theme.apply_style(part)
        theme.changed.connect(self._fold_layers)
        self._furnished = True
        yield

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
        page.left.connect(self.show_all)
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

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        if self._furnished:
            self._fold_layers()

    def _fold_layers(self) -> None:
        """Leave only the tabs of the network and the layers if the window is too low for more."""
        self.layer_card.fold(self.height() < LOW * theme.zoom and not self.layers.alone)

    @property
    def every(self) -> tuple[StepPlot, ...]:
        """The plots that have been created, from top to bottom."""
        plots = {"layer_card": (self.layers,), "layer_page": self._layer_plots}
        return tuple(plot for name in PARTS if self.has(name) for plot in plots.get(name) or (vars(self)[name],))

    @property
    def _layer_plots(self) -> tuple[StepPlot, ...]:
        return self.layer_page.plots if self.has("layer_page") else ()

    @property
    def layer_open(self) -> bool:
        """Whether the page of a layer takes the place of all plots."""
        return self.has("layer_page") and not self.layer_page.isHidden()

    @property
    def plots(self) -> tuple[StepPlot, ...]:
        """The visible plots: those of a layer if its page is open; otherwise the difference of twins only if there are
        any, the ranks if there are several, the directions on request."""
        return tuple(plot for plot in self.every if plot.isVisibleTo(self))

    def refresh(self, simulator: Simulator) -> None:
        """Show the simulator's run as it is now."""
        for _ in self.refreshing(simulator):
            pass

    def refreshing(self, simulator: Simulator) -> Iterator[None]:
        """Show the simulator's current run, one plot in each iteration."""
        run, parent = simulator.run, simulator.family.parent(simulator.run)
        self.looked.follow(run)
        self.steps.places.take(run.history, len(run.history))
        if run is not self._run:
            if not self.layer_open:
                self.show_all()
            self._run, self.steps.ended = run, run.over
            self._make_room()
            self.fit()
        elif run.over != self.steps.ended:
            self.steps.ended = run.over
            if self.steps.following:
                self.fit()
        beyond = len(parent.history) if parent and not run.own else 0
        reach = max(len(run.history), beyond) if simulator.rewinds else 0
        kept = simulator.snapshots
        self.timeline.show_reach(reach, kept.used, 0 if kept.on_disk else kept.budget, kept.steps(run) if reach else ())
        self.steps.follow(len(run.history))
        twins = simulator.twins if simulator.twins and run is simulator.twins.one else None
        if twins is not None or self.has("difference"):
            self.difference.show_twins(twins)
        if self.layer_open and not self.layer_page.follow(run):
            self.show_all()
        if not self._aside and (self.has("ranks") or has_ranks(run)):
            self.ranks.show_ranks(run)
        if not self._aside and (self.has("policy") or has_policy(run)):
            self.policy.show_run(run)
        if not self._aside and (self.has("own_figures") or run.history.logged):
            self.own_figures.show_run(run)
        scale, read = self.devicePixelRatioF(), False
        for plot in self.plots:
            if run is not simulator.run:
                return  # another one was opened in the meantime, which the next call shows
            long = plot.behind(run) > MANY
            if long and read:
                continue  # a long run is opened one plot a frame
            plot.refresh(run, scale)
            read = read or long
            yield
        if run is simulator.run:
            self.layer_card.refresh(run)
            yield
        if self.gradient_norm.run is run:
            self.gradient_norm.show_limit_of(
                simulator, self.looked.at(run)
            )  # the plot now has the run that the advice is about

    def _put(self, plot: StepPlot, share: int) -> None:
        """Add a plot below the others, with its share of the height."""
        self._layout.addWidget(plot, share)
        self._connect_plot(plot)

    def _connect_plot(self, plot: StepPlot) -> None:
        plot.box.clicked.connect(lambda place: self._offer_rewind(plot, place))
        if not isinstance(plot, Timeline):
            plot.may_be_alone = True
            plot.alone_asked.connect(lambda: self.show_all() if self.one_alone else self.show_alone(plot))

    def _offer_rewind(self, plot: StepPlot, place: QPointF) -> None:
        """Offer to rewind to the step that was clicked."""
        step = plot.box.step_at(place)
        if self._run is not None and 0 <= step < self.timeline.reach:
            self.rewind.offer(step, plot.widget, plot.widget.mapTo(self, plot.widget.mapFromScene(place)))
        else:
            self.rewind.hide()

    @property
    def is_over_time(self) -> bool:
        """Whether the x axis is the time that training took, rather than steps."""
        return self._axis["x"] == "time"

    def choose_axis(self, value: str) -> None:
        """Set the x axis of all plots to the "steps" or the "time" of the run, and remember it."""
        self._axis.choose("x", value)
        self.timeline.show_axis(value)
        self.overlays.timed = self.is_over_time
        for plot in self.every:
            plot.run = None  # which is redrawn at the next refresh
        self.steps.show_time(self._run.history if self._run else History(), self.is_over_time)
        self.overlays.changed.emit()

    @property
    def one_alone(self) -> bool:
        """Whether one plot fills the room of all."""
        return bool(self._aside)

    def show_alone(self, plot: StepPlot) -> None:
        """Give a plot the room of all, except for the timeline, until the run changes."""
        self.show_all()
        plot.alone = True
        if plot is self.layers:
            self.layer_card.show_page("layers")
        self._put_aside(plot)

    def _put_aside(self, alone: StepPlot) -> None:
        """Hide all plots but one and the timeline."""
        others = tuple(plot for plot in self.plots if plot is not self.layers)
        self._aside = tuple(other for other in others if other not in (alone, self.timeline, *self._layer_plots))
        if alone is not self.layers:
            self._aside += (self.layer_card,)
        for other in self._aside:
            other.hide()
        self._fold_layers()
        self.rewind.hide()

    def show_layer(self, place: int) -> None:
        """Show the page of the layer with this index in forward order, in the room of all plots but the timeline."""
        if self._run is None or not 0 <= place < len(self._run.history.layers):
            return
        with self._laid_out_once():
            self._bring_back()
            self.layer_page.setGeometry(_room_between(self._layout, self.rect(), self.chips, self.timeline))
            self.layer_page.open_at(self._run, place)  # first, or the focus moves from plot to plot as each is hidden
            self._put_aside(self.timeline)
        self.layer_page.look_again()

    @contextmanager
    def _laid_out_once(self) -> Iterator[None]:
        """Lay the plots out once, in the next turn of the event loop, however many are shown or hidden meanwhile: Qt
        does so each time, at one to two ms for each plot."""
        self._layout.setEnabled(False)
        try:
            yield
        finally:
            self._layout.setEnabled(True)

    def toggle_layer(self) -> None:
        """Show the page of the last viewed layer, or all plots again."""
        if self.layer_open:
            self.show_all()
        else:
            self.show_layer(self.layer_page.place)

    def turn_layer(self, by: int) -> None:
        """Show the page of the next layer, or of the previous one; open it first if it is closed."""
        if self.layer_open:
            self.layer_page.turn(by)
        else:
            self.show_layer(self.layer_page.place)

    def show_all(self) -> None:
        """Show the plots hidden for a single plot or a layer."""
        was_open = self.layer_open
        with self._laid_out_once():
            self._bring_back()
            if was_open:
                self.layer_card.take_focus()  # where the user came from
                self.layer_page.hide()

    def _bring_back(self) -> None:
        """Show the plots that were put aside."""
        for other in self._aside:
            other.show()
            other.look_again()
        self._aside = ()
        for plot in self.every:
            plot.alone = False
        self._fold_layers()

    def show_whole(self) -> None:
        """Show the whole run at the user's request."""
        self.steps.whole(self._length)

    def zoom_back(self) -> None:
        """Show the steps that were visible before the latest zoom."""
        self.steps.back(self._length)

    def zoom_forward(self) -> None:
        """Show the steps that `zoom_back` left."""
        self.steps.forward(self._length)

    @property
    def _length(self) -> int:
        return len(self._run.history) if self._run else 0

    def fit(self) -> None:
        """Show the whole run and follow it again."""
        self.steps.fit(self._length)

    def toggle_directions(self) -> None:
        """Show or hide the plot of the test accuracy and the directions."""
        self.directions.setVisible(not self.directions.isVisibleTo(self))
        self.directions.look_again()

    def project(self) -> Callable[[], None]:
        """Hide the loss scale of a run that has none, to leave its room to the others. The returned function shows it
        again."""
        if self._run is None or self._run.experiment.precision.dtype != "fp32":
            return lambda: None
        self.scale_and_rate.hide()

        def show_again() -> None:
            self.scale_and_rate.show()
            self.scale_and_rate.look_again()

        return show_again

    def _smooth(self, smoothing: float) -> None:
        """Set the smoothing of the loss, including the overlays; the plots reread their rows."""
        self._source.smooth(smoothing)
        for plot in self.every:
            if plot.series and plot.series[0].source is self._source:
                plot.run = None
        self.overlays.grown.emit()

    def _follow_twin(self) -> None:
        self._smoothing.refresh()
        self.steps.over = self.overlays.longest
        self.steps.follow(self.steps.places.step_at(self.steps.over))

    def _make_room(self) -> None:
        """Let the steps reach as far as the run and the overlays."""
        self._smoothing.refresh()
        self.steps.over = self.overlays.longest
        run = self._run
        # a script's number is unknown
        planned = run.experiment.run.steps if run is not None and run.watched is None else 0
        self.steps.planned = planned
        self.steps.most = max(1.05 * planned, 1.05 * self.steps.places.step_at(self.steps.over), SHORTEST)
        if self.steps.following:
            self.fit()


def _room_between(layout: QLayout, room: QRect, above: QWidget, below: QWidget) -> QRect:
    """Return the area of a page in a layout: from below a widget, if it is shown, to above one."""
    room = room.marginsRemoved(layout.contentsMargins())
    if not above.isHidden():
        room.setTop(above.geometry().bottom() + 1 + layout.spacing())
    room.setBottom(below.geometry().top() - 1 - layout.spacing())
    return room
