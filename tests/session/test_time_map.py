"""The map of a recurrent network's gradient over time steps and steps: against a plain loop, beside a run that stays as
it is."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional as F
from waiting import PATIENCE, join, until

from gradstudio.core.experiment import Experiment
from gradstudio.core.presets import Preset
from gradstudio.engine.models.rnn import run_layer, weights_of
from gradstudio.engine.probes.stand_in_model import batches_to_come
from gradstudio.engine.trainer import Trainer
from gradstudio.session.record.run import Run
from gradstudio.session.record.snapshots import Snapshots
from gradstudio.session.running import step_sampling
from gradstudio.session.running.step_sampling import OTHERWISE, TimeMapSampler
from gradstudio.session.running.worker import Worker

KNOBS = {
    "model.kind": "rnn", "model.width": 6, "model.depth": 1, "model.activation": "tanh", "problem.batch_size": 4,
    "run.steps": 90, "run.device": "cpu",
}  # fmt: skip


def trained(snapshots: Snapshots, *, looked_at: bool = False) -> tuple[Run, list[TimeMapSampler]]:
    experiment = Experiment().with_values(KNOBS)
    run, looks = Run(Preset(id="small", title="Small", experiment=experiment), experiment), []
    worker = Worker(run, snapshots=snapshots)
    worker.start()
    if looked_at:
        until(lambda: len(run.history) > 20)
        looks.append(looked(run, snapshots, 20))
    join(worker)
    assert not worker.failure, worker.failure
    return run, looks


def looked(run: Run, snapshots: Snapshots, step: int) -> TimeMapSampler:
    look = TimeMapSampler(run, snapshots, step)
    look.start()
    look.join(PATIENCE)
    assert not look.failure, look.failure
    return look


def plain_norms(run: Run, steps: list[int]) -> np.ndarray:
    """The norms of the loss's derivative by each state, computed with a loop over time."""
    trainer, norms = Trainer(run.experiment), []
    while trainer.step <= steps[-1]:
        if trainer.step in steps:
            [batch] = batches_to_come(trainer)
            states: list[torch.Tensor] = []

            def heard(total: torch.Tensor, states: list[torch.Tensor] = states) -> torch.Tensor:
                states.append(torch.tanh(total))
                return states[-1]

            last = run_layer(batch.inputs, weights_of(trainer.model.rnn, 0), heard)[:, -1]
            loss = F.cross_entropy(trainer.model.head(last), batch.targets)
            norms.append([float(each.norm()) for each in torch.autograd.grad(loss, states)])
        next(trainer.steps())
    return np.array(norms)


def test_the_map_is_that_of_a_plain_loop_and_leaves_no_trace() -> None:
    plain, _ = trained(Snapshots())
    snapshots = Snapshots()
    run, [early] = trained(snapshots, looked_at=True)
    for name in ("loss", "grad_norm", "update_ratio", "weight_norm", "accuracy"):
        assert np.array_equal(plain.history.column(name), run.history.column(name))
    found = looked(run, snapshots, 89).sample
    assert found is not None and early.sample is not None and found.norms.shape == (60, 8)
    assert found.steps[0] == 0 and found.steps[-1] == 89 and early.sample.steps.tolist() == list(range(21))
    assert np.array_equal(early.sample.norms[0], found.norms[0])
    assert found.norms == pytest.approx(plain_norms(run, found.steps.tolist()), rel=1e-4)


def test_of_a_long_run_the_steps_with_a_snapshot_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    snapshots = Snapshots(gap=0.0)
    run, _ = trained(snapshots)
    every = looked(run, snapshots, 89).sample
    monkeypatch.setattr(step_sampling, "MOST_REPEATED", 50)
    found = looked(run, snapshots, 89).sample
    assert found is not None and every is not None
    assert set(found.steps.tolist()) <= set(snapshots.steps(run)) and len(found.steps) > 1
    both, here, there = np.intersect1d(found.steps, every.steps, return_indices=True)
    assert len(both) and np.array_equal(found.norms[here], every.norms[there])


def test_steps_that_come_out_otherwise_are_not_shown() -> None:
    snapshots = Snapshots()
    run, _ = trained(snapshots)
    run.history._rows[0][30, 1] *= 2
    look = looked(run, snapshots, 89)
    assert look.sample is None and look.problem == OTHERWISE


def test_a_look_that_is_stopped_gives_nothing() -> None:
    run, _ = trained(snapshots := Snapshots())
    look = TimeMapSampler(run, snapshots, 89)
    look.stop()
    look.start()
    look.join(PATIENCE)
    assert look.sample is None and not look.problem and not look.failure
