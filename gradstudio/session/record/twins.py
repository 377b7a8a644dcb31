"""Twins: two runs in lockstep with the same seed and batches, which differ in one knob."""

from __future__ import annotations

import math

import numpy as np

from gradstudio.core import ranks_allowed
from gradstudio.core.adjusted_knobs import with_adjustments
from gradstudio.core.experiment import Experiment
from gradstudio.core.history import History
from gradstudio.core.knobs import Knob, KnobError, Value, value_text
from gradstudio.core.presets import Preset
from gradstudio.session.record.run import Run

FIRST_TRIED: dict[str, Value] = {"clipping.kind": "norm", "precision.dtype": "fp16"}  # choices for a twin
AT_FIRST = 0.1  # share of a slider's range, for the twin of a run whose value is 0
COMPARED = ("loss", "grad_norm", "weight_norm")


def can_differ(name: str) -> bool:
    """Return whether twins can differ in this knob and still see the same batches for the same steps."""
    if name in ("run.seed", "run.steps", "run.device"):
        return False
    return not name.startswith("problem.") or name.endswith(("scaling", "scale"))


def twin_experiment(experiment: Experiment, name: str, value: Value) -> Experiment:
    """Return the experiment of a twin. KnobError if the knob does not allow the value or already has it, or if the two
    would not see the same batches."""
    if not can_differ(name):
        raise KnobError(f"twins see the same batches for the same steps, so they cannot differ in {name}")
    knobs = with_adjustments(experiment, name, value)
    for each in (experiment, knobs):
        ranks_allowed.check_alone(each, "there are no twins")
    if knobs == experiment:
        raise KnobError(f"{name} is {value_text(value)} already; twins need another value")
    return knobs


def twin_of(preset: Preset, experiment: Experiment, name: str, value: Value) -> Run:
    """Return the twin of a run of this experiment; KnobError if there is none."""
    knobs = twin_experiment(experiment, name, value)
    return Run(preset, knobs, preset.timeline, name=f"{preset.title}: {name} = {value_text(knobs[name])}")


def another_value(knob: Knob, now: Value) -> Value:
    """Return an initial value for the twin of a run that has `now`: one with a visible effect."""
    if isinstance(now, bool):
        return not now
    if isinstance(now, str):
        first = FIRST_TRIED.get(knob.name, knob.default)
        others = (first, *knob.choices)
        return next((choice for choice in others if choice != now), now)
    low, high = knob.slider or (knob.minimum, knob.maximum)
    if now == 0:
        value = high * AT_FIRST if math.isfinite(high) else 1.0
    else:
        factor = 10.0 if knob.logarithmic else 2.0
        value = now * factor if now * factor <= high else max(now / factor, low)
    return round(value) if knob.kind == "int" else float(f"{value:.6g}")


class Twins:
    """A run and its twin. Readers see the steps that both have made."""

    def __init__(self, one: Run, other: Run, knob: str) -> None:
        self.one, self.other, self.knob = one, other, knob
        self.differ_at: int | None = None  # first step at which they differ, as far as `look` has compared
        self._compared = 0

    @property
    def steps(self) -> int:
        """Number of steps that both have made."""
        return min(len(self.one.history), len(self.other.history))

    def look(self) -> int | None:
        """Return the first step at which they differ in any bit of COMPARED, so far."""
        count = self.steps
        if self.differ_at is None and count > self._compared:
            differs = np.zeros(count - self._compared, bool)
            for name in COMPARED:
                one, other = (run.history.column(name, self._compared, count) for run in (self.one, self.other))
                differs |= one.view(np.int64) != other.view(np.int64)
            if differs.any():
                self.differ_at = self._compared + int(differs.argmax())
            self._compared = count
        return self.differ_at

    def difference(self, name: str, history: History, start: int, stop: int) -> np.ndarray:
        """Return |one - other| of a column for the rows start to stop; NaN if either is NaN. `history` is the
        first run's."""
        with np.errstate(invalid="ignore"):
            return np.abs(history.column(name, start, stop) - self.other.history.column(name, start, stop))
