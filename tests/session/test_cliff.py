"""The cliff of a recorded step: measured beside a run, which stays as it is to the last bit."""

from __future__ import annotations

import math

import numpy as np
import pytest
from waiting import PATIENCE, join, until

from gradstudio.core import presets
from gradstudio.core.experiment import Experiment
from gradstudio.core.presets import Preset
from gradstudio.engine.probes import cliff_slice
from gradstudio.session.record.run import Run
from gradstudio.session.record.snapshots import Snapshots
from gradstudio.session.running.cliff_sampling import CliffSampler, step_to_look_at
from gradstudio.session.running.worker import Worker

SMALL = {"model.width": 8, "model.depth": 1, "problem.batch_size": 16, "run.steps": 120, "run.device": "cpu"}


@pytest.fixture(autouse=True)
def whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every cell be measured, however long it takes."""
    monkeypatch.setattr(cliff_slice, "SECONDS", math.inf)


def trained(*, looked_at: bool, **values: object) -> tuple[Run, list[CliffSampler]]:
    """Train a run, and look into some of its steps meanwhile."""
    experiment = Experiment().with_values(SMALL | {name.replace("__", "."): value for name, value in values.items()})
    run = Run(Preset(id="small", title="Small", experiment=experiment), experiment)
    snapshots, looks = Snapshots(), []
    worker = Worker(run, snapshots=snapshots)
    worker.start()
    for step in (3, 40) if looked_at else ():
        until(lambda step=step: len(run.history) > step)
        looks.append(CliffSampler(run, snapshots, step))
        looks[-1].start()
    join(worker)
    for look in looks:
        look.join(PATIENCE)
    assert not worker.failure, worker.failure
    return run, looks


def test_a_look_over_the_cliff_leaves_no_trace() -> None:
    plain, _ = trained(looked_at=False)
    looked, looks = trained(looked_at=True)
    for name in ("loss", "grad_norm", "update_ratio", "weight_norm", "accuracy"):
        assert np.array_equal(plain.history.column(name), looked.history.column(name), equal_nan=True)
    for look in looks:
        assert look.cliff is not None and look.cliff.whole and not look.failure and not look.problem
        assert np.isclose(look.cliff.loss, plain.history.value("loss", look.step), rtol=1e-5)
        assert np.isclose(look.cliff.grad_norm, plain.history.value("grad_norm", look.step), rtol=1e-4)
        weights = plain.history.value("update_ratio", look.step) * plain.history.value("weight_norm", look.step)
        assert np.isclose(look.cliff.unit, weights, rtol=1e-4)


def test_the_step_over_the_edge_is_looked_at_first() -> None:
    preset = presets.load("rnn-explosion")
    run = Run(preset, preset.experiment)
    worker = Worker(run)
    worker.start()
    join(worker)
    step = step_to_look_at(run)
    losses = run.history.column("loss")
    assert run.first_nonfinite_step is not None and step < run.first_nonfinite_step
    assert losses[step] < 20 and not losses[step + 1] <= 10 * losses[step]  # how far it comes is up to the processor
    look = CliffSampler(run, Snapshots(), step)
    look.start()
    look.join(PATIENCE)
    found = look.cliff
    assert found is not None and found.whole and found.step == step
    assert not found.end <= 1e3 * found.loss and found.cell < 0.05
    clipped = [landing for landing in found.landings if landing.loss < 3 * found.loss]
    assert clipped and max(landing.max_norm for landing in clipped) < 0.5 * found.grad_norm
