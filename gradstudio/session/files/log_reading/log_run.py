"""A finished training as recorded in its log: a run like a watched one, in which everything that was not logged is
unknown."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gradstudio.core.columns import COLUMNS, LAYER_METRICS
from gradstudio.core.experiment import Experiment
from gradstudio.core.knobs import KnobError
from gradstudio.core.presets import Preset
from gradstudio.core.row import Logged, Row, loss_broke
from gradstudio.core.text import LONGEST_TITLE, clean, shorten
from gradstudio.core.unknown import UNKNOWN, is_known, known_mask
from gradstudio.session.files import curve_import
from gradstudio.session.files.curve_import import Curve, CurveError
from gradstudio.session.files.log_reading.column_names import guess_columns
from gradstudio.session.record.run import Run
from gradstudio.session.record.run_writer import RunWriter
from gradstudio.session.record.watched_script import WatchedScript

_RARELY = ("test_accuracy", "val_loss", "reward", "kl")  # measured now and then: they go to the nearest row
_LAYERS = np.empty((len(LAYER_METRICS), 0), np.float32)
_ENDS = 2  # consecutive rows without a finite norm up to the end: too many for a scaler to have skipped them all


class Log(NamedTuple):
    """The contents of a log. `columns`: the name in the log for each of our quantities; `unused`: the other names;
    `notes`: the file that was chosen from a folder, and how repeated steps were handled."""

    run: Run
    columns: Mapping[str, str]
    unused: tuple[str, ...]
    notes: tuple[str, ...]


def read(path: Path, said: Mapping[str, str]) -> Log:
    """Return the run of a log. CurveError, one line, if there is none."""
    file = curve_import.log_in(path)
    curves = {curve.name: curve for curve in curve_import.read(file)}
    for quantity, name in said.items():
        if name not in curves:
            raise CurveError(path, f"no column {name} for {quantity}; there are: {', '.join(list(curves)[:20])}")
    columns = guess_columns(curves, said)
    base = next((columns[name] for name in ("loss", "reward", "grad_norm") if name in columns), None)
    if base is None:
        there = ", ".join(list(curves)[:10])
        raise CurveError(path, f"no column looks like a loss; say it, as in --columns loss=NAME; there are: {there}")
    unused = tuple(name for name in curves if name not in columns.values())
    notes = (*([f"the latest log here is {file.relative_to(path)}"] if file != path else []), curves[base].note)
    notes = tuple(filter(None, notes))
    return Log(_run(path, columns, curves, base, notes), columns, unused, notes)


def _run(path: Path, columns: Mapping[str, str], curves: Mapping[str, Curve], base: str, notes: Iterable[str]) -> Run:
    places = np.unique(curves[base].steps)
    # otherwise of epochs
    steps = places.astype(np.int64) if (places == np.rint(places)).all() else np.arange(len(places))
    table = {quantity: _aligned(curves[name], places, quantity in _RARELY) for quantity, name in columns.items()}
    run = _empty(path, columns, table, steps)
    writer = RunWriter(run)
    writer.begin((), {})
    for row in _rows(table, steps):
        writer.record(row)
    for note in notes:
        writer.note("notice", clean(note), 0)
    if any(_of_the_filter(table, row) for row in range(len(steps))):
        writer.note("notice", "a loss of 0 beside a norm that is not finite: Hugging Face's Trainer leaves NaN out", 0)
    if not math.isfinite(run.seconds):
        vars(run)["seconds"] = UNKNOWN
    writer.end("finished" if run.first_nonfinite_step is None else "nonfinite", "", None)
    return run


def _empty(path: Path, columns: Mapping[str, str], table: Mapping[str, np.ndarray], steps: np.ndarray) -> Run:
    """Return the run before its first row."""
    facts = [(f"column {quantity}", clean(name)) for quantity, name in columns.items()]
    facts.append(("rows", f"{len(steps):,}, of steps {steps[0]:,} to {steps[-1]:,}"))
    experiment = Experiment()
    values: dict[str, Any] = {}
    if "lr" in table and math.isfinite(rate := float(table["lr"][known_mask(table["lr"])][-1])):
        values["optimizer.lr"] = rate
    if "scale" in table and (table["scale"][known_mask(table["scale"])] != 1).any():
        values |= {"precision.dtype": "fp16", "precision.scaling": "dynamic"}
    for name, value in values.items():
        try:
            experiment = experiment.with_values({name: value})
        except KnobError:
            continue  # beyond the range of a knob
    title = shorten(clean(path.resolve().name), LONGEST_TITLE)
    script = WatchedScript(title, (), "", 1, tuple(facts), log=True)
    preset = Preset(id="log", title=title, experiment=experiment)
    return Run(preset, experiment, watched=script)


def _rows(table: Mapping[str, np.ndarray], steps: np.ndarray) -> Iterator[Row]:
    """Yield the rows. A non-finite loss did no harm if a finite one follows; a non-finite norm reached the weights if
    no finite one follows."""
    losses, norms = (table.get(name, np.full(len(steps), UNKNOWN)) for name in ("loss", "grad_norm"))
    last_finite_loss = max(np.flatnonzero(np.isfinite(losses) & (losses != 0)), default=-1)
    last_finite_norm = max(np.flatnonzero(np.isfinite(norms)), default=-1)
    broken_from = last_finite_norm + 1 if known_mask(norms[last_finite_norm + 1 :]).sum() >= _ENDS else len(steps)
    for row, step in enumerate(steps.tolist()):
        values: Any = {name: UNKNOWN for name in COLUMNS}
        values |= {name: float(column[row]) for name, column in table.items() if name in COLUMNS}
        if _of_the_filter(table, row):
            values["loss"] = UNKNOWN
        if row >= broken_from and known_mask(norms[row : row + 1])[0]:
            values["nonfinite"] = 1.0  # one at least
        harmless = loss_broke(values["loss"]) and bool(row < last_finite_loss)
        told = ((name, float(column[row])) for name, column in table.items() if name not in COLUMNS)
        logged = tuple(Logged(row, name, value) for name, value in told if is_known(value))
        yield Row(**values | {"step": step}, layers=_LAYERS, harmless=harmless, logged=logged)


def _of_the_filter(table: Mapping[str, np.ndarray], row: int) -> bool:
    """Return whether a loss of 0 was not measured: Hugging Face's Trainer leaves NaN out of its mean."""
    if "loss" not in table or "grad_norm" not in table:
        return False
    norm = table["grad_norm"][row : row + 1]
    return bool(table["loss"][row] == 0 and known_mask(norm)[0] and not math.isfinite(float(norm[0])))


def _aligned(curve: Curve, places: np.ndarray, rarely: bool) -> np.ndarray:
    """Return the values of a curve at the rows: each at the nearest row, if that is no farther than half the distance
    between two rows, or if it is measured `rarely`."""
    column = np.full(len(places), UNKNOWN)
    after = np.clip(np.searchsorted(places, curve.steps), 0, len(places) - 1)
    before = np.maximum(after - 1, 0)
    nearest = np.where(curve.steps - places[before] < places[after] - curve.steps, before, after)
    spacing = float(np.median(np.diff(places))) if len(places) > 1 else math.inf
    near = rarely | (np.abs(places[nearest] - curve.steps) <= spacing / 2)
    column[nearest[near]] = curve.values[near]
    return column
