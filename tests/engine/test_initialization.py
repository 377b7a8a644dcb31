from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from gradstudio.engine.initialization import INITIALIZERS, unit_variance

KINDS = ["mlp", "rnn"]


def weights(trainer, role):
    return {layer.name: parameter.detach() for layer, parameter in zip(trainer.layers, trainer.parameters, strict=True) if layer.role == role}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("init", INITIALIZERS)
def test_biases_gain_and_repetition(build, init, kind):
    made = build(f"model.init={init}", f"model.kind={kind}", "model.initial_bias=-2")
    again = build(f"model.init={init}", f"model.kind={kind}", "model.initial_bias=-2")
    larger = build(f"model.init={init}", f"model.kind={kind}", "model.initial_bias=-2", "model.init_gain=2")
    assert all(map(torch.equal, made.parameters, again.parameters))
    for role in ("weight", "recurrent") if init != "lsuv" else ():  # which scales what its layers make, as another test says
        for one, other in zip(weights(made, role).values(), weights(larger, role).values(), strict=True):
            assert other.norm().item() == pytest.approx(2 * one.norm().item(), rel=1e-5)
    bound = 1 / math.sqrt(8) if init == "default" else 0
    for name, bias in weights(made, "bias").items():
        expected = 0 if name.startswith("head.") or "bias_hh" in name else -2
        assert (bias - expected).abs().max().item() <= bound + 1e-6


def test_default_is_torch_s_own(build):
    trainer = build("run.seed=5")
    torch.manual_seed(5)
    own = [nn.Linear(64, 16), nn.Linear(16, 16), nn.Linear(16, 10)]
    assert all(torch.equal(a, b) for a, b in zip(trainer.parameters, [p for layer in own for p in layer.parameters()], strict=True))


@pytest.mark.parametrize(("init", "activation", "hidden", "head"), [
    ("xavier", "tanh", math.sqrt(2 / 512), math.sqrt(2 / 266)),
    ("he", "relu", math.sqrt(2 / 256), math.sqrt(1 / 256)),
    ("he", "tanh", math.sqrt(2 / 256), math.sqrt(1 / 256)),
    ("orthogonal", "relu", math.sqrt(2 / 256), math.sqrt(1 / 256)),
    ("orthogonal", "tanh", 5 / 3 / 16, math.sqrt(1 / 256)),
    ("orthogonal", "sigmoid", 1 / 16, math.sqrt(1 / 256)),
    ("normal", "relu", 0.02, 0.02),
    ("zeros", "relu", 0, 0),
])  # fmt: skip
def test_deviations(build, init, activation, hidden, head):
    made = weights(build(f"model.init={init}", f"model.activation={activation}", "model.width=256"), "weight")
    assert made["hidden.1.weight"].std().item() == pytest.approx(hidden, rel=0.03)
    assert made["head.weight"].std().item() == pytest.approx(head, rel=0.08)


def test_recurrent_weights_are_orthogonal_times_the_gain(build):
    made = weights(build("model.kind=rnn", "model.init=orthogonal", "model.init_gain=1.05"), "recurrent")
    for weight in made.values():
        torch.testing.assert_close(weight @ weight.T, 1.05**2 * torch.eye(16), atol=1e-5, rtol=0)


@pytest.mark.parametrize("gain", [1.0, 0.5])
@pytest.mark.parametrize("activation", ["relu", "tanh", "sigmoid"])
@pytest.mark.parametrize("kind", KINDS)
def test_lsuv_brings_every_deviation_to_one(build, kind, activation, gain):
    trainer = build(
        "model.init=lsuv", f"model.kind={kind}", f"model.activation={activation}", f"model.init_gain={gain}", "model.depth=4", "model.width=64"
    )
    trainer.model.eval()
    found = [sums().std().item() for _, sums in trainer.model.sums(trainer.task.sample())]
    assert len(found) == 5
    assert found == pytest.approx([gain] * 5, rel=0.1)


def test_lsuv_leaves_sums_that_do_not_vary(build):
    trainer = build("model.init=lsuv", "problem.input_scale=0")
    unit_variance(trainer.model, trainer.task.sample())
    assert all(torch.isfinite(parameter).all() for parameter in trainer.parameters)


def test_norm_layers_stay_as_torch_makes_them(build):
    for weight in weights(build("model.norm=layer", "model.init=he", "model.initial_bias=3"), "norm").values():
        assert weight.unique().tolist() in ([0.0], [1.0])
