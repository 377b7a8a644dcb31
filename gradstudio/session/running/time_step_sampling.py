"""The gradient along the sequence that a recurrent network reads, at a recorded step, measured without touching the
run."""

from __future__ import annotations

from gradstudio.core.time_steps import TimeSteps
from gradstudio.session.record.run import Run
from gradstudio.session.record.snapshots import Snapshots
from gradstudio.session.running.step_sampling import StepSampler


class TimeStepSampler(StepSampler):
    """Measures the time steps at one step of a run."""

    def __init__(self, run: Run, snapshots: Snapshots, step: int) -> None:
        super().__init__(run, snapshots, step)
        self.sample: TimeSteps | None = None

    def measure(self) -> None:
        from gradstudio.engine.probes import unrolled

        trainer = self.trainer_before()
        if trainer is None:
            return
        time_steps = unrolled.measure(trainer)
        self.check(next(trainer.steps()))
        self.sample = time_steps
