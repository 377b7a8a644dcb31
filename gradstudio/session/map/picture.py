"""The picture of a map: a colour for each outcome, its shade by the loss that was reached or by how soon the run
diverged, and the boundary as a line. The colours can be told apart without seeing red and green."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes as Plot
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from gradstudio.core.experiment import Experiment
from gradstudio.core.text import number, one_line, shortened
from gradstudio.session.files.report.figures import drawing
from gradstudio.session.map import grid as grids
from gradstudio.session.map.axis import Axis
from gradstudio.session.map.grid import UNTRAINED, Grid
from gradstudio.session.map.journal import Stored
from gradstudio.session.map.outcome import OUTCOMES
from gradstudio.session.map.plan import Plan

SIDE = 4.2  # inches of a panel
LONGEST_TITLE = 80
# From the lowest loss to the highest; the lightness falls evenly, so that it reads in grey too.
LEARNED = ("#e3d94a", "#58b883", "#2c7d8e", "#3d4f8a", "#3b1d5c")
DIVERGED = ("#fdc692", "#f0812f", "#b93d02")  # from late to at once
STUCK, FAILED, UNKNOWN = "#a3a7b0", "#111111", "#ffffff"


@dataclass(frozen=True)
class Drawing:
    """What is drawn of a map. `colours`: of each cell, (panels, rows, columns, 3); `key`: what they mean."""

    plan: Plan
    outcomes: np.ndarray
    colours: np.ndarray
    key: tuple[Patch, ...]

    def name_of(self, panel: int) -> str:
        """Return the value of the third knob in a panel; "" where there is none."""
        return f"{self.plan.by} = {self.plan.panels[panel]}" if self.plan.by else ""

    def draw(self, plot: Plot, panel: int) -> None:
        """Draw a panel."""
        _panel(plot, self.plan, self.outcomes[panel], self.colours[panel])


def drawing_of(stored: Stored) -> Drawing:
    """Return what is drawn of a map."""
    plan = stored.plan
    grid = grids.filled(plan, grids.measured(plan, stored.results))
    colours, lowest, highest = _colours(grid, plan.experiment.run.steps)
    return Drawing(plan, grid.outcomes, colours, tuple(_key(grid, lowest, highest)))


def drawn(stored: Stored, kind: str) -> bytes:
    """Return the picture of a map as a PNG or SVG file."""
    made, count = drawing_of(stored), stored.plan.shape[0]
    with drawing():
        figure = Figure(figsize=(SIDE * count + 2.2, SIDE + 0.9), dpi=150, layout="constrained")
        for panel, plot in enumerate(figure.subplots(1, count, squeeze=False)[0]):
            made.draw(plot, panel)
            plot.set_title(made.name_of(panel))
        figure.suptitle(shortened(one_line(stored.plan.preset.title), LONGEST_TITLE))
        figure.legend(handles=made.key, loc="outside right upper", frameon=False)
        buffer = io.BytesIO()
        figure.savefig(buffer, format=kind, metadata={"Date": None} if kind == "svg" else None)
    return buffer.getvalue()


def _panel(plot: Plot, plan: Plan, outcomes: np.ndarray, colours: np.ndarray) -> None:
    height, width = outcomes.shape
    plot.imshow(colours, origin="lower", aspect="auto", interpolation="nearest", extent=(0, width, 0, height))
    boundary = _boundary(outcomes)
    for across, up in boundary:
        plot.plot(across, up, color="black", linewidth=0.8, solid_capstyle="projecting")
    _ticks(plot.xaxis, plan.x)
    _ticks(plot.yaxis, plan.y)
    plot.set_xlabel(_named(plan.x, plan.experiment))
    plot.set_ylabel(_named(plan.y, plan.experiment))


def _boundary(outcomes: np.ndarray) -> list[tuple[list[float], list[float]]]:
    """Return the edges between a cell that diverged and one beside it that held, as one line with gaps."""
    apart = outcomes == OUTCOMES.index("diverged")
    known = outcomes != UNTRAINED
    across: list[float] = []
    up: list[float] = []
    rows, columns = np.nonzero((apart[:, 1:] != apart[:, :-1]) & known[:, 1:] & known[:, :-1])
    for row, column in zip(rows.tolist(), columns.tolist(), strict=True):
        across += [column + 1, column + 1, np.nan]
        up += [row, row + 1, np.nan]
    rows, columns = np.nonzero((apart[1:] != apart[:-1]) & known[1:] & known[:-1])
    for row, column in zip(rows.tolist(), columns.tolist(), strict=True):
        across += [column, column + 1, np.nan]
        up += [row + 1, row + 1, np.nan]
    return [(across, up)] if across else []


def _colours(grid: Grid, steps: int) -> tuple[np.ndarray, float, float]:
    """Return the colour of each cell, (panels, rows, columns, 3), and the lowest and the highest loss that was
    learned."""
    colours = np.empty((*grid.outcomes.shape, 3))
    colours[:] = to_rgb(UNKNOWN)
    learned, diverged, stuck, failed = (
        grid.outcomes == OUTCOMES.index(name) for name in ("learned", "diverged", "stuck", "failed")
    )
    levels = grid.levels[learned]
    positive = bool(levels.size) and bool((levels > 0).all())
    shown = np.log(levels) if positive else levels
    lowest, highest = (float(shown.min()), float(shown.max())) if levels.size else (0.0, 1.0)
    colours[learned] = _shade((shown - lowest) / ((highest - lowest) or 1.0), LEARNED)
    soon = 1 - np.log1p(np.maximum(grid.steps[diverged], 0)) / np.log1p(max(steps, 1))
    colours[diverged] = _shade(soon, DIVERGED)
    colours[stuck], colours[failed] = to_rgb(STUCK), to_rgb(FAILED)
    ends = np.exp([lowest, highest]) if positive else np.array([lowest, highest])
    return colours, float(ends[0]), float(ends[1])


def _shade(shares: np.ndarray, scale: tuple[str, ...]) -> np.ndarray:
    """Return the colours at these shares (0 to 1) of a scale."""
    stops = np.array([to_rgb(colour) for colour in scale])
    places = np.linspace(0, 1, len(stops))
    return np.stack([np.interp(shares, places, stops[:, part]) for part in range(3)], axis=-1)


def _ticks(axis: Any, values: Axis) -> None:
    """Name at most six cells of an axis, at their middles."""
    places = np.unique(np.linspace(0, len(values.values) - 1, min(6, len(values.values))).round().astype(int))
    axis.set_ticks([place + 0.5 for place in places], [number(float(values.values[place])) for place in places])


def _named(axis: Axis, experiment: Experiment) -> str:
    unit = experiment.find_knob(axis.knob).unit
    return f"{axis.knob} ({unit})" if unit else axis.knob


def _key(grid: Grid, lowest: float, highest: float) -> list[Patch]:
    """Return the entries of the key: of the outcomes that the map has."""
    entries = {
        "learned": [(LEARNED[0], f"learned, loss {number(lowest)}"), (LEARNED[-1], f"learned, loss {number(highest)}")],
        "stuck": [(STUCK, "stayed at guessing")],
        "diverged": [(DIVERGED[-1], "diverged at once"), (DIVERGED[0], "diverged late")],
        "failed": [(FAILED, "failed")],
    }
    there = set(grid.outcomes.ravel().tolist())
    found = [Patch(color=colour, label=text) for index, name in enumerate(OUTCOMES) if index in there
             for colour, text in entries[name]]  # fmt: skip
    return [
        *found,
        *([Patch(facecolor=UNKNOWN, edgecolor="#888888", label="not known yet")] if UNTRAINED in there else []),
    ]
