"""Figures that a script logs and that plug-ins measure. Why look: what one knows about one's own task, besides what
every training has."""

from __future__ import annotations

import math
from functools import partial
from html import escape
from typing import BinaryIO

import numpy as np

from gradstudio.core.files import Content
from gradstudio.core.row import Logged
from gradstudio.core.text import number
from gradstudio.gui.drawing.axes import Axis
from gradstudio.gui.drawing.dots import Dots
from gradstudio.gui.drawing.marks import Marks
from gradstudio.gui.drawing.nan_marks import SIZE
from gradstudio.gui.drawing.shared_cursor import Cursor, StepRange
from gradstudio.gui.plots.step_plot import StepPlot
from gradstudio.gui.theme import theme
from gradstudio.session.files import csv_table
from gradstudio.session.record.run import Run

EDGE = 0.12  # of a row's height, free above and below its dots
ROLES = ("accent", "good", "warning", "dim")  # colours of the first figures; the others are in the report


class OwnFiguresPlot(StepPlot):
    """A plot that is shown only if there are such figures."""

    title = "Own figures"
    left_values = False
    help = (
        "What the script told by watched.log, and what columns and gauges of plug-ins measured: a dot at each step "
        "that has one. Each has its own scale, from its least to its largest value on view."
    )

    def __init__(self, steps: StepRange, cursor: Cursor) -> None:
        super().__init__(steps, cursor, Axis("left"))
        self.plot.showGrid(y=False)
        self.dots = [Dots(self.canvas, 15) for _ in ROLES]
        self._broken = Marks(self.canvas, "cross", SIZE, z=30, height=0.04)
        self._forget()
        self.restyle()
        self.hide()

    def show_run(self, run: Run) -> None:
        """Show or hide the plot, depending on whether a run has such figures."""
        if bool(run.history.logged) == self.isHidden():
            self.setVisible(bool(run.history.logged))

    def _forget(self) -> None:
        self.points: dict[str, list[Logged]] = {}
        self.ranges: dict[str, tuple[float, float]] = {}  # of the values on view
        self._taken = 0

    def clear(self) -> None:
        super().clear()
        self._forget()

    def read(self, run: Run, start: int, stop: int) -> None:
        notes = run.history.logged[self._taken :]
        self._taken += len(notes)
        for note in notes:
            if note.name in self.points or len(self.points) < len(ROLES):
                self.points.setdefault(note.name, []).append(note)

    def draw(self, run: Run) -> None:
        """Draw each figure in a row of its own, from its least to its largest value on view: one may be a thousand
        times another."""
        broken, self.ranges = [np.empty(0)], {}
        figures = [*self.points.items(), *[("", list[Logged]())] * len(ROLES)]
        for place, (dots, (name, notes)) in enumerate(zip(self.dots, figures, strict=False)):
            steps, values = np.array([(note.step, note.value) for note in notes], float).reshape(-1, 2).T
            broken.append(steps[~np.isfinite(values)])
            seen = values[np.isfinite(values) & (steps >= self.steps.first) & (steps <= self.steps.last)]
            low, high = (float(seen.min()), float(seen.max())) if len(seen) else (0.0, 0.0)
            foot, half = len(self.points) - 1 - place + (EDGE if low < high else 0.5), max(high / 2 - low / 2, 1e-300)
            heights = foot + (1 - 2 * EDGE) * ((values / 2 - low / 2) / half)  # halves, as twice one may overflow
            dots.show_at(steps, heights)
            if len(seen):
                self.ranges[name] = (low, high)
        self._broken.show_at(np.unique(np.concatenate(broken)))
        self.widget.set_y(0.0, float(max(len(self.points), 1)), least=1.0)

    def legend(self) -> str:
        told = []
        for role, name in zip(ROLES, self.points, strict=False):
            low, high = map(number, self.ranges.get(name, (math.nan, math.nan)))
            span = "" if name not in self.ranges else f" {low}" if low == high else f" {low} to {high}"
            told.append((f"<span style='color:{getattr(theme.colors, role)}'>• {escape(name)}", span))
        texts = (" &nbsp; ".join(f"{name}{span * full}</span>" for name, span in told) for full in (True, False))
        return self.header.first_that_fits(*texts)

    def reading(self, run: Run, step: int) -> str:
        told = {note.name: number(note.value) for each in self.points.values() for note in each if note.step == step}
        return " · ".join(f"{name} {value}" for name, value in told.items()) or "not measured"

    def own_data(self) -> Content | None:
        notes = sorted((note for each in self.points.values() for note in each), key=lambda note: note.step)
        return partial(_write, notes)

    def restyle(self) -> None:
        for dots, role in zip(self.dots, ROLES, strict=True):
            dots.apply_style(theme.color(role), hollow=role == "dim")
        self._broken.apply_style(None, theme.color("bad"))
        super().restyle()


def _write(notes: list[Logged], file: BinaryIO) -> None:
    """Write a line for each figure."""
    file.write(csv_table.line(("step", "name", "value")))
    for note in notes:
        file.write(csv_table.line(note))
