"""Twins: two runs in lockstep with the same seed and batches, which differ in one knob."""

from __future__ import annotations

import numpy as np

from gradstudio.core import ranks_allowed
from gradstudio.core.adjusted_knobs import with_adjustments
from gradstudio.core.experiment import Experiment
from gradstudio.core.history import History
from gradstudio.core.knobs import KnobError, Value, format_value
from gradstudio.core.presets import Preset
from gradstudio.session.record.run import Run

COMPARED = ("loss", "grad_norm", "weight_norm")


def twin_of(preset: Preset, experiment: Experiment, name: str, value: Value) -> Run:
    """Return the twin of a run of this experiment. KnobError where the knob does not allow the value or has it already,
    and where the two would not see the same batches."""
    if name in ("run.seed", "run.steps", "run.device") or (
        name.startswith("problem.") and not name.endswith(("scaling", "scale"))
    ):
        raise KnobError(f"twins see the same batches for the same steps, so they cannot differ in {name}")
    wanted = with_adjustments(experiment, name, value)
    for each in (experiment, wanted):
        ranks_allowed.check_alone(each, "there are no twins")
    if wanted == experiment:
        raise KnobError(f"{name} is {format_value(value)} already; twins need another value")
    return Run(preset, wanted, preset.timeline, name=f"{preset.title}: {name} = {format_value(wanted[name])}")


class Twins:
    """A run and its twin. Readers see the steps that both have made."""

    def __init__(self, one: Run, other: Run, knob: str) -> None:
        self.one, self.other, self.knob = one, other, knob
        self.differ_at: int | None = None  # first step at which they differ, as far as `look` has seen
        self._compared = 0

    @property
    def steps(self) -> int:
        """Number of steps that both have made."""
        return min(len(self.one.history), len(self.other.history))

    def look(self) -> int | None:
        """Return the first step at which they differ in any bit of COMPARED, as far as they have come."""
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
        """Return |one - other| of a column for the rows start to stop; NaN where either is NaN. `history` is the
        first run's."""
        with np.errstate(invalid="ignore"):
            return np.abs(history.column(name, start, stop) - self.other.history.column(name, start, stop))
