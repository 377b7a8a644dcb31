"""The page of one layer in place of the plots: all of its measurements over the steps, and its entries at one of
them."""

from __future__ import annotations

from PySide6.QtCore import QPointF, Qt, Signal
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QComboBox, QFrame, QLabel, QPushButton, QWidget

from gradstudio.core.row import Layer
from gradstudio.core.text import number, percent, plural
from gradstudio.gui.drawing.shared_cursor import Cursor, StepRange
from gradstudio.gui.plots.layer_histograms import LayerHistograms
from gradstudio.gui.plots.layer_plots import LayerLargest, LayerNorms, LayerPlot, LayerShares, LayerUpdates
from gradstudio.gui.theme import theme
from gradstudio.gui.widgets.parts_label import PartsLabel
from gradstudio.gui.widgets.rows import NO_MARGINS, in_column, in_row
from gradstudio.session.record.run import Run

KINDS = {
    "weight": "weight", "recurrent": "recurrent weight", "embedding": "embedding", "bias": "bias",
    "norm": "normalization", "factor": "factor",
}  # fmt: skip


class LayerPage(QWidget):
    """Head, four plots and the histograms. `place` is the index of the layer in forward order."""

    left = Signal()
    step_asked = Signal(int)  # whose entries are to be shown
    turned = Signal()  # to another layer

    def __init__(self, steps: StepRange, cursor: Cursor) -> None:
        super().__init__()
        self.place = 0
        self._layers: tuple[Layer, ...] = ()
        self._name = ""  # of the layer, which may have another index in another run
        self._sampled_at = -1  # step of the activations described
        self.norms, self.updates = LayerNorms(steps, cursor), LayerUpdates(steps, cursor)
        self.largest, self.zeros = LayerLargest(steps, cursor), LayerShares(steps, cursor)
        self.plots: tuple[LayerPlot, ...] = (self.norms, self.updates, self.largest, self.zeros)
        self.histograms = LayerHistograms()
        self.histograms.step_asked.connect(self.step_asked)
        column = in_column(self._make_head(), of=self, margins=NO_MARGINS, spacing=8)
        for plot, share in zip(self.plots, (30, 26, 22, 18), strict=True):
            column.addWidget(plot, share)
            plot.box.clicked.connect(lambda place, plot=plot: self._on_click(plot, place))
        column.addWidget(self.histograms)
        self.hide()

    @property
    def layer(self) -> str:
        """Name of the visible layer."""
        return self._name

    def open_at(self, run: Run, place: int) -> None:
        """Show the layer with this index."""
        self._take(run)
        self._turn_to(place)
        self.show()
        self.norms.widget.setFocus()

    def follow(self, run: Run) -> bool:
        """Show the same layer of another run, if it has one with this name. Return whether it has, or may have."""
        if run.history.layers is not self._layers:
            names = [layer.name for layer in run.history.layers]
            if names and self._name not in names:
                return False
            self._take(run)
            self._turn_to(names.index(self._name) if names else 0, told=False)
        self.histograms.reach(len(run.history))
        self._tell(run)
        return True

    def turn(self, by: int) -> None:
        """Show the next layer, or the previous one; after the last comes the first."""
        if self._layers:
            self._turn_to((self.place + by) % len(self._layers))

    def look_again(self) -> None:
        """Redraw all plots at the next refresh."""
        for plot in self.plots:
            plot.look_again()

    def mark_step(self, step: int | None) -> None:
        """Mark in the plots the step whose entries are shown."""
        for plot in self.plots:
            plot.mark_step(step)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        key = event.key()
        if key == Qt.Key.Key_Escape:
            self.left.emit()
        elif key in (Qt.Key.Key_Up, Qt.Key.Key_Down):
            self.turn(1 if key == Qt.Key.Key_Down else -1)
        elif key in (Qt.Key.Key_Return, Qt.Key.Key_Enter) and self.norms.step_cursor.step is not None:
            self._ask(self.norms.step_cursor.step)
        else:
            super().keyPressEvent(event)

    # ---- inside

    def _make_head(self) -> QFrame:
        head = QFrame()
        self.back, self.before, self.after = QPushButton("‹ All plots"), QPushButton(), QPushButton()
        for button, name, tip, call in (
            (self.back, "Back to all plots", "Shows all plots again (Esc)", self.left.emit),
            (self.before, "Previous layer", "Shows the layer above (Up, Alt+Up)", lambda: self.turn(-1)),
            (self.after, "Next layer", "Shows the layer below (Down, Alt+Down)", lambda: self.turn(1)),
        ):
            button.setProperty("role", "small")
            button.setAccessibleName(name)
            button.setToolTip(tip)
            button.clicked.connect(call)
        self.choice = QComboBox(maxVisibleItems=24)
        self.choice.setObjectName("small")
        self.choice.setAccessibleName("Layer")
        self.choice.setToolTip("Choose the layer of this page; lines stand between modules")
        self.choice.setAccessibleDescription("Layer: choose the layer of this page")
        self.choice.activated.connect(self._chosen)
        self.about, self.outputs = PartsLabel(), QLabel()
        row = in_row(self.back, self.before, self.after, self.choice, spacing=6)
        row.addSpacing(6)
        row.addWidget(self.about, 1)
        in_column(row, self.outputs, of=head, margins=(2, 0, 2, 0), spacing=3)
        for label in (self.about, self.outputs):
            label.setProperty("role", "dim")
            label.setWordWrap(label is self.outputs)
        self.outputs.hide()
        self._draw_icons()
        theme.apply_style(head, self._draw_icons)
        return head

    def _draw_icons(self) -> None:
        self.before.setIcon(theme.icon("chevron_up", "accent"))
        self.after.setIcon(theme.icon("chevron", "accent"))

    def _chosen(self, row: int) -> None:
        """Show the layer of a row of the choice; a line between two modules is none."""
        place = self.choice.itemData(row)
        self._turn_to(self.place if place is None else int(place))

    def _take(self, run: Run) -> None:
        """Put the layers of a run into the choice, with a line between two modules."""
        self._sampled_at = -1
        if run.history.layers is not self._layers:  # as releasing 120 entries takes some ms
            self._layers = run.history.layers
            self._fill_choice()
        self.histograms.reach(len(run.history))
        if len(run.history):
            broke = run.first_nonfinite_step
            self.histograms.step.setValue(len(run.history) - 1 if broke is None else broke)

    def _fill_choice(self) -> None:
        self.choice.blockSignals(True)
        self.choice.clear()
        of = modules(self._layers)
        for place, layer in enumerate(self._layers):
            if place and of[place] != of[place - 1]:
                self.choice.insertSeparator(self.choice.count())
            self.choice.addItem(layer.name, place)
        self.choice.blockSignals(False)

    def _turn_to(self, place: int, *, told: bool = True) -> None:
        self.place = place
        layer = self._layers[place] if self._layers else None
        for plot in self.plots:
            plot.look_at(layer, place)
        if layer is not None:
            self._name, self._sampled_at = layer.name, -1
            self.choice.setCurrentIndex(self.choice.findData(place))
        if told:
            self.turned.emit()

    def _tell(self, run: Run) -> None:
        """Describe the layer, and its activation at the latest sample."""
        if not self._layers:
            self.about.say(("The run has made no step yet.",) if not len(run.history) else ())
            self.outputs.hide()
            return
        latest = run.history.activations[-1] if run.history.activations else None
        step = latest.step if latest is not None else -2
        if step == self._sampled_at:
            return
        self._sampled_at = step
        layer = self._layers[self.place]
        count = f"layer {self.place + 1} of {len(self._layers)}"
        self.about.say((count, KINDS[layer.role], plural(layer.size, "entry", "entries")))
        told = [each for each in (latest.layers if latest is not None else ()) if each.layer == layer.name]
        self.outputs.setVisible(bool(told))
        for each in told:
            self.outputs.setText(
                f"Outputs at step {step:,}: {percent(each.saturated)} saturated, {percent(each.dead)} dead, "
                f"mean {number(each.mean)}, std {number(each.std)}"
            )

    def _on_click(self, plot: LayerPlot, place: QPointF) -> None:
        self._ask(plot.box.step_at(place))

    def _ask(self, step: int) -> None:
        if 0 <= step <= self.histograms.step.maximum() and self.histograms.look.isEnabled():
            self.histograms.step.setValue(step)
            self.step_asked.emit(step)


def modules(layers: tuple[Layer, ...]) -> list[str]:
    """Return the module of each layer: its name without the last part, "" if it has none."""
    return [layer.name.rpartition(".")[0] for layer in layers]
