"""The loss around the weights before a recorded step, measured without touching the run."""

from __future__ import annotations

import math

import numpy as np

from gradstudio.core.cliff import Cliff
from gradstudio.session.record.run import Run
from gradstudio.session.record.snapshots import Snapshots
from gradstudio.session.running.step_sampling import StepSampler

BACK = 40  # steps before a NaN that are searched for the one that led over the cliff


class CliffSampler(StepSampler):
    """Measures the slice at one step of a run. `cliff` is replaced by a finer one until it is complete."""

    def __init__(self, run: Run, snapshots: Snapshots, step: int) -> None:
        super().__init__(run, snapshots, step)
        self.cliff: Cliff | None = None

    def measure(self) -> None:
        from gradstudio.engine.probes import cliff_slice

        trainer = self.trainer_before(ahead=1)  # whose history also includes the update before
        if trainer is None:
            return
        for cliff in cliff_slice.measure(trainer, self.is_stopped, self.check):
            self.cliff = cliff


def step_to_look_at(run: Run) -> int:
    """Return the most interesting step: for a diverged run the one that raised the loss most; otherwise the newest."""
    rows, broke = len(run.history), run.first_nonfinite_step
    if broke is None or not broke:
        return max(rows - 1, 0)
    first = max(broke - BACK, 0)
    losses = run.history.column("loss", first, broke + 1)
    losses = np.where(np.isfinite(losses), losses, math.inf)
    with np.errstate(all="ignore"):
        rises = losses[1:] / np.maximum(np.abs(losses[:-1]), 1e-12)
    rises[~np.isfinite(losses[:-1])] = -math.inf
    worst = np.flatnonzero(rises >= 10)  # the first that is plainly over the edge
    return first + (int(worst[0]) if len(worst) else int(np.nan_to_num(rises, nan=-math.inf, posinf=1e300).argmax()))
