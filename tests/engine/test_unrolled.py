"""The gradient along a sequence: compared with a plain loop over time."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from gradstudio.core.experiment import Experiment
from gradstudio.core.gauge_samples import Unmeasurable
from gradstudio.engine.models.rnn import run_layer, weights_of
from gradstudio.engine.probes import unrolled
from gradstudio.engine.probes.stand_in_model import batches_to_come
from gradstudio.engine.trainer import Trainer

SMALL = {
    "model.kind": "rnn", "model.width": 6, "model.depth": 1, "problem.batch_size": 4, "run.device": "cpu",
    "model.activation": "tanh",
}  # fmt: skip


def trainer_of(**values: object) -> Trainer:
    trainer = Trainer(
        Experiment().with_values(SMALL | {name.replace("__", "."): each for name, each in values.items()})
    )
    next(trainer.steps())
    return trainer


@pytest.mark.parametrize("activation", ["tanh", "sigmoid"])  # torch's own network, and a loop over time
def test_the_norms_are_those_of_a_plain_loop(activation: str) -> None:
    trainer = trainer_of(model__activation=activation)
    assert isinstance(trainer.model.rnn, nn.RNN) == (activation == "tanh")
    [batch] = batches_to_come(trainer)
    weights, states = weights_of(trainer.model.rnn, 0), []

    def heard(total: torch.Tensor) -> torch.Tensor:
        states.append(getattr(torch, activation)(total))
        return states[-1]

    last = run_layer(batch.inputs, weights, heard)[:, -1]
    loss = F.cross_entropy(trainer.model.head(last), batch.targets)
    wanted = [float(each.norm()) for each in torch.autograd.grad(loss, states)]
    before = copy.deepcopy(trainer.model.state_dict())
    found = unrolled.measure(trainer)
    assert (found.step, found.module, len(found.norms)) == (1, "rnn", trainer.task.shape.time_steps)
    assert found.norms == pytest.approx(wanted, rel=1e-4) and found.norms[0] < found.norms[-1]
    assert all(torch.equal(each, before[name]) for name, each in trainer.model.state_dict().items())
    assert "forward" not in vars(trainer.model.rnn)


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_gates_and_layers_are_read_too(kind: str) -> None:
    found = unrolled.measure(trainer_of(model__kind=kind, model__depth=2))
    assert len(found.norms) > 5 and all(each > 0 for each in found.norms)


def test_a_model_without_a_state_has_no_time_steps() -> None:
    with pytest.raises(Unmeasurable):
        unrolled.measure(trainer_of(model__kind="mlp"))
