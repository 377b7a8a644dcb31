"""Looking into a recorded step: a separate trainer replays the steps up to it from the nearest snapshot, so that the
run on view is not touched."""

from __future__ import annotations

import threading
import traceback
from typing import TYPE_CHECKING

import numpy as np

from gradstudio.core import ranks_allowed
from gradstudio.core.layer_sample import LayerSample
from gradstudio.core.time_steps import TimeMap, TimeSteps
from gradstudio.session.record.run import Run
from gradstudio.session.record.snapshots import Snapshots
from gradstudio.session.running.investigation import replay

if TYPE_CHECKING:
    from gradstudio.core.row import Row
    from gradstudio.engine.trainer import Trainer

MOST_LOOKS = 60  # of a map of time steps
MOST_REPEATED = 2000  # steps of a run that are all made again for it
RANKS = "Not measured with several ranks: the model is in their processes."
WATCHED = "Not measured for a watched script: only that script can make its steps again."
OTHERWISE = (
    "This step came out otherwise than it was recorded, so it is not shown. "
    "Steps are the same again only with run.deterministic and on the same machine."
)


def why_not(run: Run) -> str:
    """Return why the steps of a run cannot be looked into; "" if they can."""
    if run.watched is not None:
        return WATCHED
    return RANKS if ranks_allowed.several(run.experiment) else ""


class StepDiffers(Exception):
    """The step differs from the recorded one."""


class StepSampler(threading.Thread):
    """Measures something at one step of a run. Any thread may read it; a sample or `problem` is available when it has
    ended, unless it was stopped. A subclass implements `measure`."""

    def __init__(self, run: Run, snapshots: Snapshots, step: int) -> None:
        super().__init__(name=f"looking into step {step} of {run.id}", daemon=True)
        self.looked_at, self.step = run, step
        self.problem = ""  # one sentence
        self.failure = ""  # the traceback of an error, for those who want the details
        self.at: int | None = None  # the step being replayed
        self._snapshots = snapshots
        self._stopping = False

    def measure(self) -> None:
        raise NotImplementedError

    def stop(self) -> None:
        """Make no more steps; any thread may call this."""
        self._stopping = True

    def run(self) -> None:
        from gradstudio.core.gauge_samples import Unmeasurable

        try:
            self.measure()
        except StepDiffers:
            self.problem = OTHERWISE
        except Unmeasurable as reason:
            self.problem = str(reason)
        except Exception as fault:
            self.failure = traceback.format_exc()
            text = str(fault).strip().partition("\n")[0] or "no reason given"
            self.problem = f"It could not be measured ({type(fault).__name__}: {text[:200]})."

    def trainer_before(self, ahead: int = 0) -> Trainer | None:
        """Return a trainer at the start of the step; it made at least `ahead` steps before it, if there are that many.
        None if it was stopped."""
        trainer = self.new_trainer()
        return trainer if self.bring(trainer, self.step, ahead) else None

    def new_trainer(self) -> Trainer:
        """Return a trainer of the run at its first step; the snapshots of its family are there afterwards."""
        from gradstudio.engine.trainer import Trainer

        trainer = Trainer(self.looked_at.experiment)
        self._snapshots.fetch(self.looked_at, trainer)
        return trainer

    def bring(self, trainer: Trainer, step: int, ahead: int = 0) -> bool:
        """Bring a trainer to the start of a later step, from the nearest snapshot if that is not behind it. Return
        whether it got there: not if the look was stopped."""
        snapshot = self._snapshots.nearest(self.looked_at, max(step - ahead, 0))
        if snapshot is not None and snapshot.step >= trainer.step:
            snapshot.state.restore(trainer)

        def is_stopped() -> bool:
            self.at = trainer.step
            return self._stopping

        if not replay(self.looked_at, trainer, step, is_stopped):
            return False
        trainer.skip_batches(self.is_stopped)
        return not self._stopping

    def is_stopped(self) -> bool:
        return self._stopping

    def check(self, row: Row) -> None:
        """Raise StepDiffers if the row of a step is not the recorded one."""
        loss = self.looked_at.history.value("loss", row.step)
        if row.loss != loss and row.loss == row.loss and loss == loss:  # NaN equals NaN here
            raise StepDiffers


class LayerSampler(StepSampler):
    """Measures histograms of every layer's weights, gradient and update at one step of a run."""

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


class TimeStepSampler(StepSampler):
    """Measures the gradient along the sequence that a recurrent network reads, at one step of a run."""

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


class TimeMapSampler(StepSampler):
    """Measures the gradient along the sequence at up to MOST_LOOKS steps of a run, from its first one to `step`. Steps
    are made again between them; of a long run only those with a snapshot are measured."""

    def __init__(self, run: Run, snapshots: Snapshots, step: int) -> None:
        super().__init__(run, snapshots, step)
        self.sample: TimeMap | None = None

    def measure(self) -> None:
        from gradstudio.engine.probes import unrolled

        trainer, looks = self.new_trainer(), list[TimeSteps]()
        for step in self._steps():
            if not self.bring(trainer, step):
                return
            looks.append(unrolled.measure(trainer))
            self.check(next(trainer.steps()))
        norms = np.array([look.norms for look in looks], np.float32)
        self.sample = TimeMap(np.array([look.step for look in looks]), norms)

    def _steps(self) -> list[int]:
        steps = list(range(self.step + 1))
        if len(steps) > MOST_REPEATED:
            steps = [step for step in self._snapshots.steps(self.looked_at) if step <= self.step] or steps
        return [steps[place] for place in np.unique(np.linspace(0, len(steps) - 1, MOST_LOOKS).astype(int))]
