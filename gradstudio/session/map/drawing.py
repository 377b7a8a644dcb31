"""The content of a map's picture: a colour for each cell, shaded by the loss that was reached or by how soon the run
diverged, the boundary, and the legend. The colours can be told apart without seeing red and green."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from gradstudio.core.experiment import Experiment
from gradstudio.core.text import number
from gradstudio.session.map import grid as grids
from gradstudio.session.map.axis import Axis, name_in_words, short_value
from gradstudio.session.map.grid import UNTRAINED, Grid
from gradstudio.session.map.journal import JournalContent
from gradstudio.session.map.map_plan import Plan
from gradstudio.session.map.outcome import OUTCOMES

# From the lowest loss to the highest; the lightness falls evenly, so that it also works in grey.
LEARNED = ("#e3d94a", "#58b883", "#2c7d8e", "#3d4f8a", "#3b1d5c")
DIVERGED = ("#fdc692", "#f0812f", "#b93d02")  # from late to at once
STUCK, FAILED, UNKNOWN = "#a3a7b0", "#111111", "#ffffff"
TICKS = 6  # cells of an axis with a label, at most


@dataclass(frozen=True)
class Drawing:
    """The content of the picture. `grid` has gaps only where nothing is known yet; `colours`: of each cell, (panels,
    rows, columns, 3), from 0 to 1; `key`: colours and their meaning."""

    plan: Plan
    grid: Grid
    colours: np.ndarray
    key: tuple[tuple[str, str], ...]

    def name_of(self, panel: int) -> str:
        """Return the value of the third knob in a panel; "" if there is none."""
        return f"{name_in_words(self.plan.by)}: {short_value(self.plan.panels[panel])}" if self.plan.by else ""

    def boundary(self, panel: int) -> list[tuple[tuple[int, int], tuple[int, int]]]:
        """Return the edges between a cell that diverged and a neighbour that held, each from one corner (column, row)
        to another."""
        outcomes = self.grid.outcomes[panel]
        apart, known = outcomes == OUTCOMES.index("diverged"), outcomes != UNTRAINED
        upright = np.argwhere((apart[:, 1:] != apart[:, :-1]) & known[:, 1:] & known[:, :-1]).tolist()
        level = np.argwhere((apart[1:] != apart[:-1]) & known[1:] & known[:-1]).tolist()
        return [
            *(((column + 1, row), (column + 1, row + 1)) for row, column in upright),
            *(((column, row + 1), (column + 1, row + 1)) for row, column in level),
        ]


def drawing_of(stored: JournalContent) -> Drawing:
    """Return the content of the picture of a map."""
    plan = stored.plan
    grid = grids.fill_gaps(plan, grids.measured_cells(plan, stored.results))
    colours, lowest, highest = _colours(grid, grids.equate_perfect_losses(plan, grid.levels), plan.experiment.run.steps)
    return Drawing(plan, grid, colours, tuple(_key(grid, lowest, highest)))


def ticks(axis: Axis) -> list[tuple[float, str]]:
    """Return the ticks of an axis: round values, and their positions, in cells from its beginning; the middle of the
    first cell is 0.5."""
    values = np.array(axis.values, float)
    scale = np.log if axis.log else np.asarray
    told = values if len(values) <= TICKS else _round_values(float(values[0]), float(values[-1]), log=axis.log)
    places = np.interp(scale(told), scale(values), np.arange(len(values))) + 0.5
    return [(place, number(value)) for place, value in zip(places.tolist(), told.tolist(), strict=True)]


def name_with_unit(axis: Axis, experiment: Experiment) -> str:
    """Return the name of an axis with its unit."""
    unit = experiment.find_knob(axis.knob).unit
    words = name_in_words(axis.knob)
    return f"{words} ({unit})" if unit and unit not in words else words


def _round_values(low: float, high: float, *, log: bool) -> np.ndarray:
    """Return at most TICKS round values in a range: powers of ten, or those and 2 and 5 times them, on a logarithmic
    axis that has two of these."""
    candidates: list[list[float]] = []
    if log:
        powers = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 1)
        candidates = [[part * 10.0**power for power in powers for part in parts] for parts in ((1, 2, 5), (1, 3), (1,))]
        candidates += [[10.0**power for power in powers if power % every == 0] for every in (2, 3, 5, 10, 20)]
    unit = 10.0 ** math.floor(math.log10(high - low))
    for step in (part * unit for part in (0.1, 0.2, 0.5, 1, 2, 5)):
        if (high - low) / step <= 2 * TICKS:
            candidates.append([step * index for index in range(math.ceil(low / step), int(high / step) + 1)])
    inside = [
        [value for value in values if low <= value * (1 + 1e-9) and value <= high * (1 + 1e-9)] for values in candidates
    ]
    return np.array(next((values for values in inside if 2 <= len(values) <= TICKS), [low, high]))


def _colours(grid: Grid, levels: np.ndarray, steps: int) -> tuple[np.ndarray, float, float]:
    """Return the colour of each cell, (panels, rows, columns, 3), and the lowest and the highest loss among cells that
    learned."""
    colours = np.empty((*grid.outcomes.shape, 3))
    colours[:] = _parts(UNKNOWN)
    learned, diverged, stuck, failed = (
        grid.outcomes == OUTCOMES.index(name) for name in ("learned", "diverged", "stuck", "failed")
    )
    levels = levels[learned]
    positive = bool(levels.size) and bool((levels > 0).all())
    shown = np.log(levels) if positive else levels
    lowest, highest = (float(shown.min()), float(shown.max())) if levels.size else (0.0, 1.0)
    colours[learned] = _shade((shown - lowest) / ((highest - lowest) or 1.0), LEARNED)
    soon = 1 - np.log1p(np.maximum(grid.steps[diverged], 0)) / np.log1p(max(steps, 1))
    colours[diverged] = _shade(soon, DIVERGED)
    colours[stuck], colours[failed] = _parts(STUCK), _parts(FAILED)
    ends = np.exp([lowest, highest]) if positive else np.array([lowest, highest])
    return colours, float(ends[0]), float(ends[1])


def _shade(shares: np.ndarray, scale: tuple[str, ...]) -> np.ndarray:
    """Return the colours at these shares (0 to 1) of a scale."""
    stops = np.array([_parts(colour) for colour in scale])
    places = np.linspace(0, 1, len(stops))
    return np.stack([np.interp(shares, places, stops[:, part]) for part in range(3)], axis=-1)


def _parts(colour: str) -> tuple[float, float, float]:
    """Return red, green and blue of #rrggbb, from 0 to 1."""
    red, green, blue = bytes.fromhex(colour[1:])
    return red / 255, green / 255, blue / 255


def _key(grid: Grid, lowest: float, highest: float) -> list[tuple[str, str]]:
    """Return the entries of the legend: for the outcomes that the map has."""
    less = " or less" if (grid.levels[grid.outcomes == OUTCOMES.index("learned")] < lowest).any() else ""
    best = (LEARNED[0], f"learned, loss {number(lowest)}{less}")
    worst = (LEARNED[-1], f"learned, loss {number(highest)}")
    entries = {
        "learned": [best] if number(lowest) == number(highest) and not less else [best, worst],
        "stuck": [(STUCK, "stayed at guessing")],
        "diverged": [(DIVERGED[-1], "diverged at once"), (DIVERGED[0], "diverged late")],
        "failed": [(FAILED, "failed")],
    }
    there = set(grid.outcomes.ravel().tolist())
    listed = [entry for index, name in enumerate(OUTCOMES) if index in there for entry in entries[name]]
    return [*listed, *([(UNKNOWN, "not known yet")] if UNTRAINED in there else [])]
