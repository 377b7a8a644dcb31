"""Which plots are on view: all of them, one alone, or the page of a layer; and which steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from PySide6.QtCore import QPointF, Signal
from PySide6.QtGui import QResizeEvent

from gradstudio.core.history import History
from gradstudio.gui.drawing.shared_cursor import SHORTEST
from gradstudio.gui.plots.layer_card import LayerCard
from gradstudio.gui.plots.overlay_smoothing import OverlaySmoothing
from gradstudio.gui.plots.plot_options import X_AXIS, Chosen
from gradstudio.gui.plots.policy_plot import has_policy
from gradstudio.gui.plots.ranks import has_ranks
from gradstudio.gui.plots.rewind_button import RewindButton
from gradstudio.gui.plots.stacked_plots import StackedPlots
from gradstudio.gui.plots.step_plot import StepPlot
from gradstudio.gui.theme import theme
from gradstudio.gui.widgets.viewed_step import ViewedStep
from gradstudio.session.record.run import Run
from gradstudio.session.simulator import Simulator

LOW = 310  # px of height at normal text, below which the curves take the room of the network
MANY = 30_000  # rows that take a plot so long to read that the others wait for the next frame


class PlotStack(StackedPlots):
    """The plots of the run that the simulator shows."""

    rewind_asked = Signal(int)

    def __init__(self, looked: ViewedStep | None = None) -> None:
        super().__init__(looked)
        self._axis = Chosen("all", {"x": X_AXIS})
        self.overlays.timed = self.steps.places.timed = self.is_over_time
        self._smoothing = OverlaySmoothing(self._source, self.overlays)
        self.overlays.changed.connect(self._make_room)  # before the plots draw the change
        self.overlays.grown.connect(self._follow_twin)
        self._run: Run | None = None
        self._furnished = False
        self._aside: tuple[StepPlot | LayerCard, ...] = ()  # what is hidden while one plot is shown alone
        self.clicked.connect(self._offer_rewind)
        self.left.connect(self.show_all)
        self.alone_asked.connect(lambda plot: self.show_all() if self.one_alone else self.show_alone(plot))

    def furnishing(self) -> Iterator[None]:
        """Add the plots, one in each iteration: each takes some hundredths of a second."""
        for _ in super().furnishing():
            yield
        self.loss.smoothing_chosen.connect(self._smooth)
        self.timeline.axis_asked.connect(self.choose_axis)
        self.timeline.show_axis(self._axis["x"])
        self.layers.layer_asked.connect(self.show_layer)
        self.layer_card.network.layer_asked.connect(self.show_layer)
        self.rewind = RewindButton(self)
        self.rewind.chosen.connect(self.rewind_asked)
        self.steps.changed.connect(self.rewind.hide)  # another step is under it now
        self.timeline.rewind_asked.connect(self.rewind_asked)
        for part in (self.chips, self.rewind):
            theme.apply_style(part)
        theme.changed.connect(self._fold_layers)
        self._furnished = True
        yield

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        if self._furnished:
            self._fold_layers()

    def _fold_layers(self) -> None:
        """Leave only the tabs of the network and the layers if the window is too low for more."""
        self.layer_card.fold(self.height() < LOW * theme.zoom and not self.layers.alone)

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
        self._show_what_it_has(run, simulator)
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
            # The plot now has the run that the advice is about.
            self.gradient_norm.show_limit_of(simulator, self.looked.at(run))

    def _show_what_it_has(self, run: Run, simulator: Simulator) -> None:
        """Show or hide the plots of what only some runs have."""
        twins = simulator.twins if simulator.twins and run is simulator.twins.one else None
        if twins is not None or self.has("difference"):
            self.difference.show_twins(twins)
        if self.layer_open and not self.layer_page.follow(run):
            self.show_all()
        if self._aside:
            return
        if self.has("ranks") or has_ranks(run):
            self.ranks.show_ranks(run)
        if self.has("policy") or has_policy(run):
            self.policy.show_run(run)
        if self.has("own_figures") or run.history.logged:
            self.own_figures.show_run(run)

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
            self.layer_page.setGeometry(self._room_of_a_page())
            self.layer_page.open_at(self._run, place)  # first, or the focus moves from plot to plot as each is hidden
            self._put_aside(self.timeline)
        self.layer_page.look_again()

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
