"""Curves of other programs: table_file.py reads them from CSV, json_file.py from JSON, event_file.py from a TensorBoard
log, wandb_file.py and mlflow_store.py from the files that W&B and MLflow leave on disk. May use core and
session/files/tensorboard (formats); knows nothing about runs."""

from __future__ import annotations

import os
from dataclasses import replace
from itertools import count
from pathlib import Path

from gradstudio.core import files
from gradstudio.session.files.curve_import.imported_curve import LARGEST_STEP, Curve, CurveError

__all__ = ["Curve", "CurveError", "log_in", "read"]

# The log in a folder: of Hugging Face's Trainer, Lightning, W&B or MLflow.
_IN_FOLDERS = (
    "trainer_state.json", "checkpoint-*/trainer_state.json", "metrics.csv", "version_*/metrics.csv",
    "lightning_logs/version_*/metrics.csv", "run-*.wandb", "*run*/run-*.wandb", "wandb/*run*/run-*.wandb", "mlflow.db",
)  # fmt: skip


def read(path: Path) -> list[Curve]:
    """Return every curve in a text table (such as CSV), JSON, a TensorBoard log, or what W&B or MLflow have written on
    this disk; for a folder, those of the log that it contains.

    CurveError, one line, says which file, where in it, and what is allowed. Nothing is imported that trains or draws.
    """
    try:
        curves = _read(log_in(path))
    except OSError as fault:
        raise CurveError(path, files.reason(fault)) from None
    for curve in curves:
        if max(abs(curve.steps[0]), abs(curve.steps[-1])) > LARGEST_STEP:
            raise CurveError(path, f"{curve.name}: a step beyond {LARGEST_STEP:,}, the most that is read")
    return _with_unique_names(curves)


def _read(path: Path) -> list[Curve]:
    from gradstudio.session.files.curve_import import event_file, json_file, mlflow_store, table_file, wandb_file

    if os.path.isdir(path):
        metrics = mlflow_store.folder_of(path)
        return event_file.read(path) if metrics is None else mlflow_store.read_folder(metrics)
    if "tfevents" in path.name:
        return event_file.read(path)
    readers = {".wandb": wandb_file.read, ".db": mlflow_store.read_database}
    readers |= dict.fromkeys((".json", ".jsonl", ".ndjson"), json_file.read)
    suffix = Path(path.name.lower().removesuffix(".gz")).suffix
    return readers.get(suffix, table_file.read)(path)


def log_in(path: Path) -> Path:
    """Return the latest log in a folder; any other path, and a folder of TensorBoard or MLflow, unchanged."""
    for pattern in _IN_FOLDERS if os.path.isdir(path) else ():
        if found := sorted(path.glob(pattern), key=os.path.getmtime):
            return found[-1]
    return path


def _with_unique_names(curves: list[Curve]) -> list[Curve]:
    """Return the curves with unique names: repeated names get a number."""
    taken: set[str] = set()
    for place, curve in enumerate(curves):
        names = (curve.name if number == 1 else f"{curve.name} ({number})" for number in count(1))
        name = next(name for name in names if name not in taken)
        taken.add(name)
        curves[place] = replace(curve, name=name)
    return curves
