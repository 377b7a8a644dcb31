"""A map as data: the JSON object of `--json`, the rows of the CSV file, the arrays of the npz file."""

from __future__ import annotations

from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from gradstudio.session.files import csv_table
from gradstudio.session.map import grid as grids
from gradstudio.session.map.axis import Axis
from gradstudio.session.map.grid import UNTRAINED, Grid
from gradstudio.session.map.journal import JournalContent, worker_seconds
from gradstudio.session.map.outcome import OUTCOMES


def as_json(stored: JournalContent, path: Path) -> dict[str, Any]:
    """Return a map as one object. `outcomes` and `losses` have a list for each row, from the lowest y on, and an entry
    for every cell, null if unknown; with panels, a list for each. `run` and `failed` count the trained cells, each seed
    by itself; `seconds` are the total of all workers."""
    plan, grid = stored.plan, grids.fill_gaps(stored.plan, grids.measured_cells(stored.plan, stored.results))
    names = [None if index == UNTRAINED else OUTCOMES[index] for index in grid.outcomes.ravel().tolist()]
    outcomes = np.array(names, object).reshape(plan.shape).tolist()
    losses = _values(grid.losses, grid)
    more: dict[str, Any] = {"by": {"knob": plan.by, "values": list(plan.panels)}} if plan.by else {}
    if plan.seeds > 1:
        held = _values(grid.held, grid)
        more |= {"seeds": plan.seeds, "held": held if plan.by else held[0]}
    return {
        "map": str(path),
        "x": _axis(plan.x),
        "y": _axis(plan.y),
        "cells": plan.cells,
        "run": len(stored.results),
        "failed": sum(trained.outcome == "failed" for trained in stored.results.values()),
        "outcomes": outcomes if plan.by else outcomes[0],
        "losses": losses if plan.by else losses[0],
        "seconds": worker_seconds(stored.results),
        **more,
    }


def write_csv(stored: JournalContent, file: BinaryIO) -> None:
    """Write a row for each trained cell, in the order of the map. With panels the first column names them."""
    plan = stored.plan
    file.write(csv_table.line([*([plan.by] if plan.by else []), "x", "y", "seed", *_COLUMNS]))
    for (spot, seed), trained in sorted(stored.results.items()):
        third = [plan.panels[spot.panel]] if plan.by else []
        file.write(
            csv_table.line(
                [
                    *third, plan.x.values[spot.column], plan.y.values[spot.row], plan.experiment.run.seed + seed,
                    trained.outcome, trained.step, trained.loss, int(trained.run_again),
                ]
            )
        )  # fmt: skip


_COLUMNS = ("outcome", "step", "loss", "run_again")


def write_npz(stored: JournalContent, file: BinaryIO) -> None:
    """Write the arrays of a map, each (panels, rows, columns), with the values of its axes."""
    plan, grid = stored.plan, grids.fill_gaps(stored.plan, grids.measured_cells(stored.plan, stored.results))
    contents: dict[str, Any] = {
        "x": np.array(plan.x.values), "y": np.array(plan.y.values),
        "panels": np.array([str(each) for each in plan.panels]), "outcome_names": np.array(OUTCOMES),
    }  # fmt: skip
    for name in ("outcomes", "losses", "levels", "steps", "held", "trained"):
        contents[name] = getattr(grid, name)
    np.savez_compressed(file, **contents)


def _values(values: np.ndarray, grid: Grid) -> list[Any]:
    """Return the values of all cells, None for an unknown one."""
    values_or_none = values.astype(object)
    values_or_none[grid.outcomes == UNTRAINED] = None
    return values_or_none.tolist()


def _axis(axis: Axis) -> dict[str, Any]:
    return {"knob": axis.knob, "scale": "log" if axis.log else "linear", "values": list(axis.values)}
