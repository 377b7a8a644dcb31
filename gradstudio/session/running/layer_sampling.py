"""Looking into the layers at a recorded step: a trainer of its own makes that step again from the nearest snapshot, so
the run that a person looks at is not touched."""

from __future__ import annotations

import threading
import traceback

from gradstudio.core import ranks_allowed
from gradstudio.core.layer_sample import LayerSample
from gradstudio.session.record.run import Run
from gradstudio.session.record.snapshots import Snapshots
from gradstudio.session.running.investigation import replay

RANKS = "Not measured with several ranks: the model is in their processes."
WATCHED = "Not measured for a watched script: only that script can make its steps again."


def why_not(run: Run) -> str:
    """Return why the entries of a run's layers cannot be measured; "" where they can."""
    if run.watched is not None:
        return WATCHED
    return RANKS if ranks_allowed.several(run.experiment) else ""


class LayerSampler(threading.Thread):
    """Measures every layer at one step of a run. Any thread may read it; `sample` or `problem` is there when it has
    ended, unless it was stopped."""

    def __init__(self, run: Run, snapshots: Snapshots, step: int) -> None:
        super().__init__(name=f"looking into step {step} of {run.id}", daemon=True)
        self.looked_at, self.step = run, step
        self.sample: LayerSample | None = None
        self.problem = ""  # one sentence
        self.failure = ""  # the traceback of a fault, for whoever wants the details
        self.at: int | None = None  # the step that is made again just now
        self._snapshots = snapshots
        self._stopping = False

    def stop(self) -> None:
        """Make no more steps, from any thread."""
        self._stopping = True

    def run(self) -> None:
        try:
            self._measure()
        except Exception as fault:
            self.failure = traceback.format_exc()
            text = str(fault).strip().partition("\n")[0] or "no reason given"
            self.problem = f"It could not be measured ({type(fault).__name__}: {text[:200]})."

    def _stopped(self) -> bool:
        return self._stopping

    def _measure(self) -> None:
        from gradstudio.engine.gauges.layer_entries import measure
        from gradstudio.engine.trainer import Trainer

        run = self.looked_at
        trainer = Trainer(run.experiment)
        self._snapshots.fetch(run, trainer)
        kept = self._snapshots.nearest(run, self.step)
        if kept is not None:
            kept.state.restore(trainer)

        def stopped() -> bool:
            self.at = trainer.step
            return self._stopping

        if not replay(run, trainer, self.step, stopped):
            return
        before = trainer.flat.weights.data.clone()
        trainer.pass_over(self._stopped)
        if self._stopping:
            return
        row = next(trainer.steps())
        loss = run.history.value("loss", self.step)
        if row.loss != loss and row.loss == row.loss and loss == loss:  # NaN is equal to NaN here
            self.problem = (
                "This step came out otherwise than it was recorded, so its entries are not shown. "
                "Steps are the same again only with run.deterministic and on the same machine."
            )
            return
        self.sample = measure(self.step, trainer.flat, before)
