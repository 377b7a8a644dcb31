"""Looking into the layers at a recorded step: histograms of their weights, gradients and updates."""

from __future__ import annotations

from gradstudio.core.layer_sample import LayerSample
from gradstudio.session.record.run import Run
from gradstudio.session.record.snapshots import Snapshots
from gradstudio.session.running.step_sampling import StepSampler


class LayerSampler(StepSampler):
    """Measures every layer at one step of a run."""

    def __init__(self, run: Run, snapshots: Snapshots, step: int) -> None:
        super().__init__(run, snapshots, step)
        self.sample: LayerSample | None = None

    def measure(self) -> None:
        from gradstudio.engine.gauges.layer_entries import measure

        trainer = self.trainer_before()
        if trainer is None:
            return
        before = trainer.flat.weights.data.clone()
        self.check(next(trainer.steps()))
        self.sample = measure(self.step, trainer.flat, before)
