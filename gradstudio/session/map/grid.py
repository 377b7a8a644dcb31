"""The known part of a map, as arrays: the outcome of each cell over its seeds, and which trained cell represents one
that was not trained."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gradstudio.core.task_measures import loss_of_guessing
from gradstudio.session.map import refine
from gradstudio.session.map.map_plan import Job, Plan, Spot
from gradstudio.session.map.outcome import OUTCOMES, CellResult

UNTRAINED = -1
LEAST = 1e-3  # share of the loss of guessing below which a run has learned everything: no loss differs there


@dataclass(frozen=True)
class Grid:
    """The arrays of a map, each (panels, rows, columns). `outcomes`: an index into OUTCOMES, or UNTRAINED. `losses`:
    the last loss. `levels`: the mean loss of the last steps. `steps`: the last step. `held`: share of the seeds that
    did not diverge or fail. `trained` marks the cells that were trained themselves.

    With several seeds the outcome is the most frequent one, and the worse of two that are equally frequent; the numbers
    are the medians of the seeds with that outcome."""

    outcomes: np.ndarray
    losses: np.ndarray
    levels: np.ndarray
    steps: np.ndarray
    held: np.ndarray
    trained: np.ndarray


def measured_cells(plan: Plan, results: Mapping[Job, CellResult]) -> Grid:
    """Return the cells that were trained with all their seeds."""
    losses, levels, steps, held = (np.full(plan.shape, math.nan) for _ in range(4))
    outcomes, trained = np.full(plan.shape, UNTRAINED, np.int8), np.zeros(plan.shape, bool)
    grid = Grid(outcomes, losses, levels, steps, held, trained)
    for spot in {job.spot for job in results}:
        seeds = [results.get(Job(spot, seed)) for seed in range(plan.seeds)]
        of_cell = [trained for trained in seeds if trained is not None]
        if len(of_cell) == plan.seeds:
            _set_cell(grid, (spot.panel, spot.row, spot.column), of_cell)
    return grid


def fill_gaps(plan: Plan, grid: Grid) -> Grid:
    """Return a map without gaps: an untrained cell takes the values of the cell that represents it, once that is
    trained."""
    parts = [np.empty_like(part) for part in (grid.outcomes, grid.losses, grid.levels, grid.steps, grid.held)]
    for panel in range(plan.shape[0]):
        rows, columns = refine.representatives(
            grid.outcomes[panel], equate_perfect_losses(plan, grid.levels[panel]), full=plan.full
        )
        # the finest blocks may be in progress: until then their former representative is shown
        for part, source in zip(parts, (grid.outcomes, grid.losses, grid.levels, grid.steps, grid.held), strict=True):
            part[panel] = source[panel][rows, columns]
    return Grid(parts[0], parts[1], parts[2], parts[3], parts[4], grid.trained)


def next_cells(plan: Plan, grid: Grid) -> list[Spot]:
    """Return the cells to train next; [] once the map is complete. It depends only on the plan and the results, so that
    a resumed map trains the same cells as an uninterrupted one."""
    return [
        Spot(panel, int(column), int(row))
        for panel in range(plan.shape[0])
        for row, column in refine.next_cells(
            grid.outcomes[panel], equate_perfect_losses(plan, grid.levels[panel]), full=plan.full
        )
    ]


def equate_perfect_losses(plan: Plan, levels: np.ndarray) -> np.ndarray:
    """Return the losses that were reached, with all nearly perfect ones made equal."""
    least = LEAST * loss_of_guessing(plan.experiment)
    return np.maximum(levels, least) if least > 0 else levels


def next_jobs(plan: Plan, results: Mapping[Job, CellResult]) -> list[Job]:
    """Return the runs to make next; [] once the map is complete."""
    spots = next_cells(plan, measured_cells(plan, results))
    jobs = [Job(spot, seed) for seed in range(plan.seeds) for spot in spots]
    return [job for job in jobs if job not in results]


def _set_cell(grid: Grid, place: tuple[int, int, int], results: list[CellResult]) -> None:
    counts = [sum(trained.outcome == outcome for trained in results) for outcome in OUTCOMES]
    outcome = max(range(len(OUTCOMES)), key=lambda index: (counts[index], index))
    of_it = [trained for trained in results if trained.outcome == OUTCOMES[outcome]]
    grid.outcomes[place] = outcome
    grid.losses[place] = np.median([trained.loss for trained in of_it])
    grid.levels[place] = np.median([trained.reached for trained in of_it])
    grid.steps[place] = np.median([trained.step for trained in of_it])
    grid.held[place] = (counts[0] + counts[1]) / len(results)
    grid.trained[place] = True
