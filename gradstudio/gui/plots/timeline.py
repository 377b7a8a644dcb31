"""The timeline: the progress of the run, its branch point, its knob changes, its divergence, the snapshots that are
kept, and the handle at the viewed step."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QComboBox, QGraphicsRectItem, QPushButton

from gradstudio.core.knobs import value_text
from gradstudio.core.text import duration, number, plural, strong
from gradstudio.gui.drawing.axes import Axis
from gradstudio.gui.drawing.marks import Mark, Marks
from gradstudio.gui.drawing.shared_cursor import Cursor, StepRange
from gradstudio.gui.drawing.view_box import LookBox
from gradstudio.gui.plots.playback import Playback
from gradstudio.gui.plots.playback_bar import PlaybackBar
from gradstudio.gui.plots.plot_options import X_AXIS
from gradstudio.gui.plots.run_marks import change_positions
from gradstudio.gui.plots.step_plot import StepPlot
from gradstudio.gui.theme import theme
from gradstudio.session.record.run import Run

THICK = 5  # px
MEGABYTE = 1 << 20


class Timeline(StepPlot):
    """A bar as long as the run. Dragging it views a step, and changes nothing."""

    title = "Timeline"
    left_values = False
    help = (
        "How far the run is, the changes of its knobs (circles), the step at which it diverged (cross) and the steps "
        "whose snapshots are kept (ticks below), from which a rewind goes on. Drag or click to look at a step: nothing "
        "is rewound until you press “Rewind here”."
    )
    box_kind = LookBox

    rewind_asked = Signal(int)
    axis_asked = Signal(str)  # the requested x axis of the plots

    def __init__(self, steps: StepRange, cursor: Cursor) -> None:
        self._looked, self.replay = cursor.looked, Playback(cursor.looked)
        super().__init__(steps, cursor, Axis("left"))
        self._memory = (0, 0)  # bytes of snapshots, and their budget; 0: they are on disk
        self.reach = 0  # last step that the run can be set to
        self._bars = {role: QGraphicsRectItem(self.canvas.columns) for role in ("line", "grid", "dim", "accent")}
        self._laid: dict[str, tuple[float, ...]] = {}  # their places
        for z, item in enumerate(self._bars.values()):
            item.setPen(Qt.PenStyle.NoPen)
            item.setZValue(60 + z)
        self._dots = Marks(self.canvas, "circle", 10, z=64)
        self._cross = Marks(self.canvas, "cross", 12, z=65)
        self._kept = Marks(self.canvas, "tick", 5, z=63, height=0.85)
        self._handle = Mark(self.canvas, "circle", 15, z=66)
        self.widget.write_steps()
        self.plot.showGrid(y=False)
        self.box.setYRange(0, 1, padding=0)
        assert isinstance(self.box, LookBox)
        self.box.dragged.connect(self._looked.look_at)
        self.box.clicked.connect(lambda place: self._looked.look_at(self.box.step_at(place)))
        self._looked.changed.connect(self._draw_bars)
        self.box.setCursor(Qt.CursorShape.SizeHorCursor)
        steps.changed.connect(self._show_whether_following)
        self._show_whether_following()
        self.restyle()

    def show_reach(self, reach: int, used: int, budget: int, kept: Sequence[int] = ()) -> None:
        """Show the last step that the run can be set to, how many bytes of their budget the snapshots use (0: they are
        on disk), and at which steps they are."""
        if not np.array_equal(kept, self._kept.steps):
            self._kept.show_at(np.array(kept, float))
        if (reach, -(-used // MEGABYTE), budget) != (self.reach, -(-self._memory[0] // MEGABYTE), self._memory[1]):
            # otherwise it is drawn with the run's new rows
            beyond = self.run is not None and max(reach, self.reach) > len(self.run.history)
            self.reach, self._memory, self._unsaid = reach, (used, budget), True
            self.bar.allow_rewinding(bool(reach))
            if beyond:
                self._draw_bars()

    def _lay_out(self) -> None:
        self._follow = QPushButton("Show whole run")
        self._follow.setProperty("role", "flat")
        self._follow.setToolTip("Show all steps in every plot and follow the run again (Home)")
        self._follow.clicked.connect(self._show_whole_run)
        self.bar = PlaybackBar(self.replay, self._looked)
        self.bar.rewind_asked.connect(self.rewind_here)
        self.header.addSpacing(8)
        self.header.addWidget(self.bar)
        self.header.addSpacing(8)
        self.header.addWidget(self._follow)
        self.header.addSpacing(8)
        self.header.addWidget(self._make_axis_choice())
        super()._lay_out()  # last, as Tab reaches the upper ones first

    def show_axis(self, value: str) -> None:
        """Show the kind of x axis."""
        self.axis_choice.setCurrentIndex(self.axis_choice.findData(value))

    def _make_axis_choice(self) -> QComboBox:
        self.axis_choice = QComboBox()
        self.axis_choice.setObjectName("small")
        for value, label in X_AXIS.choices.items():
            self.axis_choice.addItem(label, value)
        self.axis_choice.setAccessibleName("X axis of all plots")
        self.axis_choice.setToolTip("Choose what all plots stand over: steps, or the time that training took")
        self.axis_choice.setAccessibleDescription("X axis of all plots: steps, or the time that training took")
        self.axis_choice.activated.connect(lambda: self.axis_asked.emit(self.axis_choice.currentData()))
        return self.axis_choice

    def _show_whether_following(self) -> None:
        self._follow.setVisible(not self.steps.following)

    def legend(self) -> str:
        if self.run is None:
            return ""
        if self._looked.step is not None:
            words = self._looked.words
            shorter = (words.partition(end)[0] for end in ("; ", " of "))
            return self.header.first_that_fits(*(strong(each) for each in (words, *shorter)), "")
        changes = plural(len(self.run.timeline), "change", "changes")
        used, budget = (round(size / MEGABYTE) for size in self._memory)
        where = f"of {budget:,} MB" if budget else "MB on disk"
        memory = f" &nbsp; snapshots {max(used, 1):,} {where}" if self._memory[0] else ""
        count = len(self.run.history)
        if self.run.watched is not None:  # the number of steps of the script is unknown
            return f"{plural(count, 'step', 'steps')}{self._time()}"
        made = f"{count:,} of {self.run.experiment.run.steps:,} steps{self._time()}"
        return self.header.first_that_fits(
            f"{changes} · {made}{memory}", f"{changes} · {made}", made, f"{count:,} steps"
        )

    def _time(self) -> str:
        """Return how long the steps took, if the x axis is time."""
        clock = self.steps.places.clock
        if not self.steps.places.timed or not clock.count:
            return ""
        return f" in {number(clock.total)} s" if clock.total < 60 else f" in {duration(clock.total)}"

    def draw(self, run: Run) -> None:
        for part in (self.bar, self.axis_choice):  # before the first step there is nothing to play or to lay out
            part.setVisible(bool(len(run.history)))
        self._draw_bars()

    def _place_labels(self) -> None:
        super()._place_labels()
        self._draw_bars()

    def _draw_bars(self) -> None:
        """Draw four bars: the planned steps, those that the parent made beyond this run, those before the branch point,
        and the run's own."""
        run = self.run
        if run is None:
            return
        top, count = round((self.canvas.size[1] - THICK) / 2), len(run.history)
        self._lay("line", 0, top, run.experiment.run.steps if run.watched is None else count)
        # it is shortened where the run's own steps would hide it
        self._lay("grid", 0, top, self.reach if self.reach > count else run.parent_step)
        self._lay("dim", 0, top, run.parent_step)
        self._lay("accent", run.parent_step, top, count - run.parent_step)
        looked = self._looked.step
        self._handle.show_at((count if looked is None else looked) if count or self.reach else None)

    def _lay(self, bar: str, first: int, top: int, steps: int) -> None:
        places = self.steps.places
        left = places.of(float(first))
        # no farther than the view, as the end of the plan moves with each step on a time axis
        right = min(places.of(float(first + steps)), max(left, 2 * self.steps.right))
        if self._laid.get(bar) != (left, top, right):
            self._laid[bar] = (left, top, right)
            self._bars[bar].setRect(left, top, right - left, THICK)

    def _draw_marks(self, run: Run) -> None:
        super()._draw_marks(run)
        self._dots.show_at(change_positions(run))
        step = run.first_nonfinite_step
        self._cross.show_at(np.array([] if step is None else [step], float))
        self._say(run)

    def restyle(self) -> None:
        faint = {"dim": theme.color("dim", 150), "grid": theme.color("accent", 70)}
        for role, item in self._bars.items():
            item.setBrush(faint.get(role) or theme.color(role))
        self._dots.apply_style(theme.color("accent"), theme.color("panel"))
        self._kept.apply_style(None, theme.color("accent"))
        self._cross.apply_style(theme.color("bad"), theme.color("bad"))
        self._handle.apply_style(theme.color("panel"), theme.color("accent"))
        self.bar.restyle()
        super().restyle()
        self.setFixedHeight(round(24 + 52 * theme.zoom))

    def reading(self, run: Run, step: int) -> str:
        places = self.steps.places
        here, near = places.of(step), 0.012 * (self.steps.right - self.steps.left)  # about as wide as a mark
        changes = [change for change in list(run.timeline) if abs(places.of(change.step) - here) <= near]
        texts = [f"{change.knob} = {value_text(change.value)} since step {change.step:,}" for change in changes]
        diverged = run.first_nonfinite_step
        if diverged is not None and abs(places.of(diverged) - here) <= near:
            texts.append(f"diverged at step {diverged:,}")
        return " · ".join(texts[-3:]) or "no change here"

    def spoken(self, run: Run) -> str:
        changes, diverged = list(run.timeline), run.first_nonfinite_step
        texts = [f"{plural(len(run.history), 'step', 'steps')} made, {plural(len(changes), 'change', 'changes')}."]
        if changes:
            last = changes[-1]
            texts.append(f"The last is {last.knob} = {value_text(last.value)} at step {last.step:,}.")
        if diverged is not None:
            texts.append(f"It diverged at step {diverged:,}.")
        return " ".join(texts)

    def _say(self, run: Run) -> None:
        if self._looked.step is not None and self.step_cursor.step == self._looked.step:
            self._said, self._unsaid = time.monotonic(), run.status == "running"
            self.header.say(self.legend())
        else:
            super()._say(run)

    def rewind_here(self) -> None:
        """Rewind to the viewed step."""
        if self._looked.step is not None and self.reach:
            self.replay.stop()
            self.rewind_asked.emit(self._looked.step)
