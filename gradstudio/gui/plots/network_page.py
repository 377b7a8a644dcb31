"""The network of the run, drawn with its gradient at one step. Why look: a gradient that fades or floods on its way
back is visible at once, and so is the place where a NaN was born."""

from __future__ import annotations

import math
import time

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QAccessible
from PySide6.QtWidgets import QFrame, QPushButton, QWidget

from gradstudio.core.provenance import PHASES, Provenance
from gradstudio.core.text import number, percent, strong
from gradstudio.core.time_steps import TimeSteps
from gradstudio.gui.drawing.network_blocks import Birth, DecadeScale, Flow, along_time, birth_of, blocks_of, flows
from gradstudio.gui.drawing.row_groups import Group
from gradstudio.gui.plots.network_picture import NetworkPicture, NetworkState
from gradstudio.gui.plots.plot_header import Legend
from gradstudio.gui.widgets.roles import role_label
from gradstudio.gui.widgets.rows import NO_MARGINS, in_column, in_row
from gradstudio.gui.widgets.viewed_step import ViewedStep
from gradstudio.session.record.run import Run

PACE = 0.2  # seconds from one picture to the next while a run is training
NO_STEP = "The network is drawn once its first step is made."
NO_LAYERS = "No layers were measured in this run."


class NetworkPage(QFrame):
    """The picture, and in its head what it shows or what the pointer reads."""

    layer_asked = Signal(int)  # whose page is to be opened: its index in forward order

    def __init__(self, looked: ViewedStep) -> None:
        super().__init__()
        self._looked = looked
        self.picture = NetworkPicture()
        self.legend = Legend()
        self.note = role_label(NO_STEP, "dim", wordWrap=True)
        self.note.setAlignment(Qt.AlignmentFlag.AlignCenter)
        in_column((self.note, 1), (self.picture, 1), of=self, margins=(1, 0, 1, 3))
        self.picture.hide()
        self._run: Run | None = None
        self._blocks: list[Group] = []
        self._names: tuple[str, ...] = ()
        self._made_of: tuple = ()  # the inputs of the blocks
        self._seen: tuple = ()  # the inputs of the picture
        self._rows = 0
        self._step = 0
        self._scale = DecadeScale()
        self._unrolled: TimeSteps | None = None  # the latest sample
        self._places: list[int] = []  # the visible time steps; none if the modules are shown
        self._due = 0.0  # when it is drawn next
        self._lit = False  # whether a step was made for which the light was not sent yet
        self.unroll = QPushButton("Time steps")
        self.unroll.setCheckable(True)
        self.unroll.setChecked(True)
        self.unroll.setProperty("role", "small")
        self.unroll.setToolTip("Shows the gradient by the state after each time step, where the run stands")
        self.unroll.toggled.connect(self.restyle)
        self.unroll.hide()
        self.head = QWidget()
        in_row((self.legend, 1), self.unroll, of=self.head, margins=NO_MARGINS)
        self.picture.read_changed.connect(self._say)
        self.picture.block_chosen.connect(self._choose)

    def refresh(self, run: Run) -> None:
        """Show the run at the viewed step. Cheap when nothing has changed."""
        rows, same = len(run.history), run is self._run
        if not same or rows < self._rows:
            self._run, self._scale, self._seen = run, DecadeScale(), ()
            self._made_of, self._unrolled, self._lit = (), None, False
        stepped = same and rows == self._rows + 1 and run.status in ("paused", "nonfinite", "finished")
        self._rows = rows
        now = time.monotonic()
        if same and self._seen and run.status == "running" and self._looked.at(run) is None and now < self._due:
            return
        self._due = now + PACE
        known = bool(rows and run.history.layers)
        if self.picture.isHidden() == known:
            self.picture.setVisible(known)
            self.note.setVisible(not known)
        if not known:
            self.note.setText(NO_LAYERS if rows else NO_STEP)
            self._say()
            return
        self._step = self.step_of(run)
        self._lit = (self._lit or stepped) and self._looked.at(run) is None and run.status != "running"
        self._show(run)
        waits = self.unroll.isVisible() and self.unroll.isChecked() and not self._places
        if self._lit and not waits:
            self._lit = False
            self.picture.send_light()

    def step_of(self, run: Run) -> int:
        """Return the visible step: the viewed one, or the newest."""
        asked, last = self._looked.at(run), len(run.history) - 1
        return last if asked is None else min(max(asked, 0), last)

    def show_time_steps(self, time_steps: TimeSteps | None, *, possible: bool) -> None:
        """Show the time steps of the visible step, once they are measured; None if the run continues."""
        self._unrolled = time_steps
        if self.unroll.isHidden() == possible:
            self.unroll.setVisible(possible)

    def restyle(self) -> None:
        self._seen = ()
        self.picture.redraw()

    # ---- inside

    def _show(self, run: Run) -> None:
        most = self.picture.most_blocks
        seen = (self._step, self._rows, most, run.provenance, run.history.layers, self._unrolled)
        if seen == self._seen:
            return
        self._seen = seen
        if self._made_of != (run.history.layers, most):  # for many layers it takes some ms
            self._made_of = run.history.layers, most
            self._names = tuple(layer.name for layer in run.history.layers)
            blocks = blocks_of(self._names, most)
            if blocks != self._blocks:
                self._blocks, self._scale = blocks, DecadeScale()
        self._scale.take(run.history, self._blocks, self._rows)
        self._places = []
        time_steps = self._unrolled
        if time_steps is not None and time_steps.step == self._step and self.unroll.isChecked():
            self._show_unrolled(run, time_steps, most)
            return
        birth = birth_of(run.provenance, self._step, self._blocks, self._names)
        self.picture.show_state(
            NetworkState(
                tuple(block.name for block in self._blocks),
                tuple(flows(run.history, self._blocks, self._step)),
                self._scale.levels, birth, _kind(run.provenance) if birth else "",
            )
        )  # fmt: skip
        self._say()

    def _show_unrolled(self, run: Run, time_steps: TimeSteps, most: int) -> None:
        born = run.provenance
        at = born.time_step if born is not None and born.step == self._step else None
        at = at if at is not None and at < len(time_steps.norms) else None
        self._places, made, levels = along_time(time_steps.norms, most, at)
        names = tuple(f"t {place + 1}" for place in self._places)
        backward = born is not None and born.phase == "backward"
        birth = Birth(self._places.index(at), backward) if at is not None else None
        self.picture.show_state(NetworkState(names, tuple(made), levels, birth, _kind(born) if birth else "", "start"))
        self._say()

    def _choose(self, block: int) -> None:
        if not self._places:
            self.layer_asked.emit(self._blocks[block].first)

    def _say(self) -> None:
        """Update the words: what is under the pointer, or what the picture means."""
        run, state = self._run, self.picture.state
        if run is None or state is None or self.picture.isHidden():
            self.legend.setText("")
            return
        read = self.picture.read
        where = strong(f"step {self._step:,}")
        birth = run.provenance
        if read is not None and read < len(state.names):
            told = self._reading(run, read)
        elif state.birth is not None and birth is not None:
            told = f"{state.what} born{_when(birth, self._step)} in the {PHASES[birth.phase]}, in {birth.short_name}"
        elif self._places:
            told = f"thick: |dL/dh| back through the steps of {self._module}"
        else:
            told = "thin: forward · thick: backward, by the gradient"
        text = self.legend.first_that_fits(f"{where} · {told}", told, where)
        if text != self.legend.text():
            self.legend.setText(text)
        if read is not None or self.picture.hasFocus() or QAccessible.isActive() or run.status != "running":
            self.picture.setAccessibleDescription(self._spoken(run, state, read))

    @property
    def _module(self) -> str:
        return self._unrolled.module if self._unrolled is not None else ""

    def _reading(self, run: Run, block: int) -> str:
        if self._places and self._unrolled is not None:
            place = self._places[block]
            return (
                f"time step {place + 1} of {len(self._unrolled.norms)}: |dL/dh| {number(self._unrolled.norms[place])}"
            )
        group, flow = self._blocks[block], flows(run.history, self._blocks, self._step)[block]
        return f"{group.name}: {_in_words(flow)}{_weights(run, group, self._step)}"

    def _spoken(self, run: Run, shown: NetworkState, read: int | None) -> str:
        if read is not None:
            return f"Step {self._step:,}. {self._reading(run, read)}"
        text = "; ".join(f"{name} {_in_words(flow)}" for name, flow in zip(shown.names, shown.flows, strict=True))
        birth = run.provenance
        born = f" {shown.what} was born in {birth.short_name}." if shown.birth and birth is not None else ""
        return f"Step {self._step:,}, from the input to the loss: {text}.{born}"


def _in_words(flow: Flow) -> str:
    if flow.state == "unknown":
        return "gradient not measured"
    if flow.state == "zero":
        return "gradient exactly 0"
    beside = f", {percent(flow.zeros)} zeros" if flow.zeros > 0 else ""
    if flow.state == "nonfinite":
        share = f", {percent(flow.nonfinite)} of it NaN or Inf" if flow.nonfinite > 0 else ""
        return f"gradient norm {number(flow.norm)}{share}{beside}"
    return f"gradient norm {number(flow.norm)}{beside}"


def _weights(run: Run, group: Group, step: int) -> str:
    """Return the norm of the weights of a block, if it was measured."""
    norms = run.history.layer_metric("weight_norm", step, step + 1)[0][group.first : group.stop].astype(float)
    norm = math.sqrt(float((norms**2).sum()))
    return f" · weight norm {number(norm)}" if math.isfinite(norm) else ""


def _when(birth: Provenance, step: int) -> str:
    return f" at step {birth.step:,}" if birth.step != step else ""


def _kind(birth: Provenance | None) -> str:
    """Return what was born: NaN or Inf."""
    first = birth.chain[0] if birth is not None and birth.chain else None
    return "Inf" if first is not None and first.given_inf and not first.given_nan else "NaN"
