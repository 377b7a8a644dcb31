"""The run along its steps: how far it is, where it branched, what was changed, where it broke; and the handle that takes it back."""

from __future__ import annotations

import numpy as np
from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QGraphicsRectItem, QPushButton

from gradstudio.core.knobs import format_value
from gradstudio.core.text import plural
from gradstudio.gui.plots.axes import Axis
from gradstudio.gui.plots.canvas import Mark, Marks
from gradstudio.gui.plots.shared import Cursor, StepRange
from gradstudio.gui.plots.step_plot import StepPlot, changed_at
from gradstudio.gui.plots.view_box import RewindBox
from gradstudio.gui.theme import theme
from gradstudio.session.run import Run

THICK = 5  # px
MEGABYTE = 1 << 20


class Timeline(StepPlot):
    title = "Timeline"
    left_values = False
    help = (
        "How far the run is, the knobs that were changed on the way (circles), and the first non-finite step (cross). Drag to go back to any "
        "step: what went on from there stays, and to go on with a changed knob makes a branch."
    )
    box_kind = RewindBox

    rewind_asked = Signal(int)

    def __init__(self, steps: StepRange, cursor: Cursor) -> None:
        super().__init__(steps, cursor, Axis("left"))
        self._memory = (0, 0)  # bytes of snapshots, and how many there may be
        self.reach = 0  # steps that one can go to
        self._held: int | None = None  # where the handle is held
        self._bars = {role: QGraphicsRectItem(self.canvas.columns) for role in ("line", "grid", "dim", "accent")}
        self._laid: dict[str, tuple[int, ...]] = {}  # where each of them lies
        for z, item in enumerate(self._bars.values()):
            item.setPen(Qt.PenStyle.NoPen)
            item.setZValue(60 + z)
        self._dots = Marks(self.canvas, "o", 10, z=64)
        self._cross = Marks(self.canvas, "x", 12, z=65)
        self._handle = Mark(self.canvas, "o", 15, z=66)
        bottom = self.plot.getAxis("bottom")
        bottom.linkToView(self.box)
        bottom.setStyle(showValues=True)
        bottom.setHeight(None)
        self.plot.showGrid(y=False)
        self.box.setYRange(0, 1, padding=0)
        self.box.dragged.connect(self._drag)
        self.box.setCursor(Qt.CursorShape.SizeHorCursor)
        self._follow = QPushButton("Show the whole run")
        self._follow.setProperty("role", "flat")
        self._follow.setToolTip("The plots show a part of the run and do not move on with it: press to follow it again (Home)")
        self._follow.clicked.connect(self._show_whole_run)
        self.header.addWidget(self._follow)
        steps.changed.connect(self._show_whether_following)
        self._show_whether_following()
        self.restyle()

    def show_reach(self, reach: int, used: int, budget: int) -> None:
        """One can go to so many steps; snapshots take so many bytes of those that they may."""
        if (reach, used // MEGABYTE, budget) != (self.reach, self._memory[0] // MEGABYTE, self._memory[1]):
            beyond = self.run is not None and max(reach, self.reach) > len(self.run.history)  # else it is drawn with the run's new rows
            self.reach, self._memory, self._unsaid = reach, (used, budget), True
            if beyond:
                self._draw_bars()

    def _show_whether_following(self) -> None:
        self._follow.setVisible(not self.steps.following)

    def legend(self) -> str:
        if self.run is None:
            return ""
        if self._held is not None:
            return f"<b>let go to be back at step {self._held:,}</b>"
        changes = plural(len(self.run.timeline), "change", "changes")
        used, budget = (round(size / MEGABYTE) for size in self._memory)
        memory = f" &nbsp; drag to go back · snapshots {max(used, 1):,} of {budget:,} MB" if self._memory[0] else ""
        return f"{changes} · {len(self.run.history):,} of {self.run.experiment.run.steps:,} steps{memory}"

    def draw(self, run: Run) -> None:
        self._draw_bars()

    def _place_labels(self) -> None:
        super()._place_labels()
        self._draw_bars()

    def _draw_bars(self) -> None:
        """The steps there are to do, those that the run that was left has made, those before the fork, and those since."""
        run = self.run
        if run is None:
            return
        top, count = round((self.canvas.size[1] - THICK) / 2), len(run.history)
        self._lay("line", 0, top, run.experiment.run.steps)
        self._lay("grid", 0, top, self.reach if self.reach > count else run.parent_step)  # else it would lie under the last of them
        self._lay("dim", 0, top, run.parent_step)
        self._lay("accent", run.parent_step, top, count - run.parent_step)
        self._handle.show_at((count if self._held is None else self._held) if count or self.reach else None)

    def _lay(self, bar: str, *place: int) -> None:
        if self._laid.get(bar) != place:
            self._laid[bar] = place
            self._bars[bar].setRect(*place, THICK)

    def _draw_marks(self, run: Run) -> None:
        super()._draw_marks(run)
        self._dots.show_at(changed_at(run))
        step = run.first_nonfinite_step
        self._cross.show_at(np.array([] if step is None else [step], float))
        self._say(run)

    def restyle(self) -> None:
        for role, item in self._bars.items():
            item.setBrush(theme.color(role, 150) if role == "dim" else theme.color("accent", 70) if role == "grid" else theme.color(role))
        self._dots.dress(theme.color("accent"), theme.color("panel"))
        self._cross.dress(theme.color("bad"), theme.color("bad"))
        self._handle.dress(theme.color("panel"), theme.color("accent"))
        super().restyle()
        self.setFixedHeight(round(76 * theme.zoom))
        self.plot.getAxis("bottom").setHeight(None)

    def reading(self, run: Run, step: int) -> str:
        near = 0.012 * (self.steps.last - self.steps.first)  # about as wide as a mark
        if self._held is not None:
            return "let go to be back here"
        changes = [change for change in list(run.timeline) if abs(change.step - step) <= near]
        texts = [f"{change.knob} = {format_value(change.value)} since step {change.step:,}" for change in changes]
        broke = run.first_nonfinite_step
        if broke is not None and abs(broke - step) <= near:
            texts.append(f"first non-finite step {broke:,}")
        return " · ".join(texts[-3:]) or "nothing changed"

    def _drag(self, step: int, let_go: bool) -> None:
        if not self.reach:
            return
        step = min(max(step, 0), self.reach)
        self._held = None if let_go else step
        self.step_cursor.move(step)
        self._draw_bars()
        if self.run is not None:
            self._say(self.run)
        if let_go:
            self.rewind_asked.emit(step)
