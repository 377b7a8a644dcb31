"""The periodic measurements of a run: activations, attention, the test set, a comparison with one large batch, and
once for every way of accumulating whether the sum is correct."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from gradstudio.core.experiment import Experiment
from gradstudio.core.history import LOOK_EVERY, SAMPLE_EVERY
from gradstudio.core.ranks_allowed import several
from gradstudio.core.row import Row
from gradstudio.session.record.run import Run

if TYPE_CHECKING:
    from gradstudio.engine.trainer import Trainer


class DueMeasurements:
    """Requests the measurements that are due from the trainer of a run."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._compare_at = frozenset(run.compare_at)
        self._knobs: Experiment | None = None
        self._test_every = 1  # steps between two measurements of the test set
        self._accumulation: tuple[object, ...] | None = None  # how the gradient is accumulated now
        self._checked: tuple[object, ...] | None = None  # the way of accumulating that was checked last

    def resume(self) -> None:
        """Read from the run's rows which way of accumulating was checked last."""
        steps = [check.step for check in self._run.history.accumulated if math.isfinite(check.difference)]
        self._checked = _way_of_accumulating(self._run.values_at(steps[-1])) if steps else None

    def request(self, trainer: Trainer) -> None:
        """Request from the next step what is due."""
        requests, step, knobs = trainer.requests, trainer.step, self._run.in_force
        requests.compare |= step in self._compare_at
        requests.activations = step % SAMPLE_EVERY == 0
        requests.attention = step % LOOK_EVERY == 0 and knobs.applies("model.qk_norm")
        requests.time_gradient = step % SAMPLE_EVERY == 0 and _answers_after_last_step(knobs)
        if knobs is not self._knobs:
            self._knobs, self._accumulation = knobs, _way_of_accumulating(knobs)
            self._test_every = trainer.test_interval
        requests.test = step % self._test_every == 0
        summed = knobs.accumulation.steps > 1 and knobs.clipping.kind != "per_example"
        requests.accumulation = summed and self._accumulation != self._checked

    def take(self, row: Row) -> None:
        """Record that a row contains the accumulation check. An overflow of the loss scale proves nothing about it."""
        if row.accumulated is not None and math.isfinite(row.accumulated.difference):
            self._checked = self._accumulation


def _answers_after_last_step(knobs: Experiment) -> bool:
    recurrent = knobs.studio_file is None and knobs.model.kind in ("rnn", "lstm", "gru") and not several(knobs)
    return recurrent and knobs.problem.task in ("digits", "sequential_digits", "adding")


def _way_of_accumulating(knobs: Experiment) -> tuple[object, ...]:
    """Return the values that determine whether the sum over micro-batches is correct."""
    return knobs.accumulation, knobs.mistakes, knobs.precision.dtype
