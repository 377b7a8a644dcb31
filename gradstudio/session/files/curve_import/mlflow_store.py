"""Curves from what MLflow has stored on this disk: a run's folder below `mlruns`, or the latest run in `mlflow.db`.
MLflow need not be installed."""

from __future__ import annotations

import math
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np

from gradstudio.session.files.curve_import.imported_curve import Curve, CurveError, load

LARGEST = 1.7976931348623157e308  # MLflow's representation of Inf


def folder_of(path: Path) -> Path | None:
    """Return the metrics folder of a run, or of the latest run below this folder; None if there is none."""
    if path.name == "metrics" or (path / "metrics").is_dir():
        return path if path.name == "metrics" else path / "metrics"
    runs = [folder for folder in path.glob("*/*/metrics") if any(folder.iterdir())]
    runs += [folder for folder in path.glob("*/metrics") if any(folder.iterdir())]
    return max(runs, key=lambda folder: folder.stat().st_mtime, default=None)


def read_folder(folder: Path) -> list[Curve]:
    """Return the curves of a run: a file for each, with the lines 'time value step'."""
    curves = []
    for path in sorted(each for each in folder.rglob("*") if each.is_file()):
        rows = [line.split() for line in load(path).decode(errors="replace").splitlines() if line.strip()]
        try:
            points = [(float(row[2]) if len(row) > 2 else place, float(row[1])) for place, row in enumerate(rows)]
        except (ValueError, IndexError):
            raise CurveError(path, "no metric of MLflow; allowed: lines of time, value and step") from None
        curves += [_curve(path.relative_to(folder).as_posix(), points)] * bool(points)
    if not curves:
        raise CurveError(folder, "no metrics in this run")
    return curves


def read_database(path: Path) -> list[Curve]:
    """Return the curves of the most recently updated run."""
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as store:
            run = store.execute("SELECT run_uuid FROM metrics ORDER BY timestamp DESC LIMIT 1").fetchone()
            lines = store.execute("SELECT key, step, value, is_nan FROM metrics WHERE run_uuid = ?", run or ("",))
            series: dict[str, list[tuple[float, float]]] = {}
            for key, step, value, is_nan in lines:
                series.setdefault(str(key), []).append((float(step), math.nan if is_nan else _finite(float(value))))
    except (sqlite3.Error, TypeError, ValueError) as fault:
        raise CurveError(path, f"no store of MLflow: {fault}") from None
    if not series:
        raise CurveError(path, "no metrics in this store")
    return [_curve(name, points) for name, points in sorted(series.items())]


def _finite(value: float) -> float:
    return math.copysign(math.inf, value) if abs(value) >= LARGEST else value


def _curve(name: str, points: list[tuple[float, float]]) -> Curve:
    steps, values = np.array(sorted(points, key=lambda point: point[0])).T
    return Curve(name, steps.copy(), values.copy())
