"""What comes out of activations is measured without a trace, for every kind of network."""

from __future__ import annotations

import math

import pytest
import torch

from gradstudio.core.experiment import Experiment
from gradstudio.engine.gauges.activations import sample
from gradstudio.engine.trainer import Trainer

SMALL = ["model.depth=2", "model.width=16", "problem.batch_size=8", "run.device=cpu"]
KINDS = {
    "mlp, batch norm": ["model.norm=batch"],
    "cnn, batch norm, residual": ["model.kind=cnn", "model.norm=batch", "model.residual=true"],
    "rnn": ["model.kind=rnn", "problem.task=adding", "problem.seq_len=6"],
    "rnn, batch norm": ["model.kind=rnn", "problem.task=adding", "problem.seq_len=6", "model.norm=batch"],
    "lstm": ["model.kind=lstm", "problem.task=adding", "problem.seq_len=6"],
    "gru": ["model.kind=gru", "problem.task=copy", "problem.seq_len=3"],
    "transformer, noise": [
        "model.kind=transformer",
        "problem.task=sequential_digits",
        "problem.seq_len=8",
        "problem.noise=0.1",
    ],
    "gan": ["model.kind=gan", "problem.task=ring", "model.norm=batch"],
    "policy": ["model.kind=policy", "problem.task=pole", "problem.seq_len=20"],
    "fp16, accumulation": ["precision.dtype=fp16", "accumulation.steps=3", "clipping.kind=norm"],
    "checkpointing": ["model.checkpointing=true", "model.activation=tanh"],
}


@pytest.mark.parametrize("texts", KINDS.values(), ids=KINDS)
def test_training_is_the_same_to_the_last_bit_with_and_without(texts: list[str]) -> None:
    """Also once passes are recorded, which is after twenty of a kind."""
    watched, alone = (Trainer(Experiment().with_texts([*SMALL, *texts])) for _ in range(2))
    for step, one, other in zip(range(30), watched.steps(), alone.steps(), strict=False):
        assert (one.loss, one.grad_norm, one.update_ratio) == (other.loss, other.grad_norm, other.update_ratio), step
        assert (one.activations is not None) == (one.accumulated is not None) == (step in (1, 8, 27))
        watched.requests.activations = watched.requests.accumulation = step in (0, 7, 26)
    assert all(
        torch.equal(mine, its)
        for mine, its in zip(watched.model.state_dict().values(), alone.model.state_dict().values(), strict=True)
    )


def test_the_time_after_an_episode_is_not_measured() -> None:
    """Its states are zeros, which saturate nothing, and most of a batch where the pole falls at once."""
    wild = ["model.kind=policy", "problem.task=pole", "model.activation=tanh", "model.init_gain=1e6"]
    trainer = Trainer(Experiment().with_texts([*SMALL, *wild]))
    trainer.requests.activations = True
    assert all(layer.saturated > 0.99 for layer in next(trainer.steps()).activations.layers)


@pytest.mark.parametrize("texts", KINDS.values(), ids=KINDS)
def test_every_layer_is_there_under_the_name_of_its_weight(texts: list[str]) -> None:
    trainer = Trainer(Experiment().with_texts([*SMALL, *texts]))
    trainer.requests.activations = True
    found = next(trainer.steps()).activations
    assert found.step == 0 and len(found.layers) == (4 if "model.kind=gan" in texts else 2)
    names = [layer.name for layer in trainer.layers]
    assert [names.index(each.layer) for each in found.layers] == sorted(
        {names.index(each.layer) for each in found.layers}
    )
    assert all(math.isfinite(value) for each in found.layers for value in each[1:])


def test_dead_units_and_saturated_ones_are_counted() -> None:
    dead = Trainer(Experiment().with_texts([*SMALL, "model.init=he", "model.initial_bias=-1000"]))
    assert [each.dead for each in sample(dead.model, "relu", dead.task.sample(8))] == [1.0, 1.0]
    with torch.no_grad():
        dead.model.hidden[0].bias[:4] = 1000
        dead.model.hidden[1].bias[:] = 1000
    assert [each.dead for each in sample(dead.model, "relu", dead.task.sample(8))] == [0.75, 0.0]
    for kind in ("tanh", "sigmoid"):
        full = Trainer(Experiment().with_texts([*SMALL, f"model.activation={kind}", "model.initial_bias=1000"]))
        assert [each.saturated for each in sample(full.model, kind, full.task.sample(8))] == [1.0, 1.0]
        calm = Trainer(Experiment().with_texts([*SMALL, f"model.activation={kind}", "problem.input_scale=0.1"]))
        assert [each.saturated for each in sample(calm.model, kind, calm.task.sample(8))] == [0.0, 0.0]


def test_the_figures_are_those_of_the_outputs() -> None:
    trainer = Trainer(Experiment().with_texts([*SMALL, "model.depth=1", "model.residual=true"]))
    inputs = trainer.task.sample(8)
    outputs = torch.relu(
        torch.nn.functional.linear(inputs.flatten(1), trainer.model.hidden[0].weight, trainer.model.hidden[0].bias)
    )
    (found,) = sample(trainer.model, "relu", inputs)
    assert found.mean == pytest.approx(outputs.mean().item(), rel=1e-3)
    assert found.std == pytest.approx(outputs.std(correction=0).item(), rel=1e-3)
    assert found.dead == pytest.approx((outputs.amax(0) == 0).float().mean().item(), abs=1e-3)


@pytest.mark.parametrize("norm", ["none", "batch"])
@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16"])
def test_what_accumulates_is_the_mean_of_the_micro_batches(dtype: str, norm: str) -> None:
    """Of their own gradients: a batch norm sees each micro-batch by itself, which is no fault."""
    texts = [
        *SMALL,
        "accumulation.steps=4",
        "precision.init_scale=1024",
        f"precision.dtype={dtype}",
        f"model.norm={norm}",
    ]
    for mistake, least in (
        ("", 0.0),
        ("unscaled_accumulation", 2.9),
        ("zero_grad_each_micro_batch", 0.2),
        ("drop_last_micro_batches", 0.2),
    ):
        trainer = Trainer(Experiment().with_texts([*texts, *([f"mistakes.{mistake}=true"] if mistake else [])]))
        trainer.requests.accumulation = True
        found = next(trainer.steps()).accumulated
        assert (found.difference > found.tolerance) == bool(mistake) and found.difference >= least, mistake
