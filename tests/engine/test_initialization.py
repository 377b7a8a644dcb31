"""How weights are drawn: deviations, gains and biases for every network, and lsuv against what the layers really
make."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from gradstudio.engine.models import MODELS, in_head
from gradstudio.engine.models.initialization import INITIALIZERS, unit_variance

TASKS = {"gan": ["problem.task=ring"], "policy": ["problem.task=pole"]}
RECURRENT = ("rnn", "lstm", "gru")


@pytest.fixture
def make(build):
    """A trainer of a network of that kind, on a task that it can learn."""
    return lambda kind, *assignments: build(*TASKS.get(kind, []), f"model.kind={kind}", *assignments)


def weights(trainer, role):
    return {
        layer.name: parameter.detach()
        for layer, parameter in zip(trainer.layers, trainer.flat.parameters, strict=True)
        if layer.role == role
    }


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("init", INITIALIZERS)
def test_biases_gain_and_repetition(make, init, kind):
    plain = make(kind, f"model.init={init}")
    made, again = (make(kind, f"model.init={init}", "model.initial_bias=-2") for _ in range(2))
    larger = make(kind, f"model.init={init}", "model.init_gain=2")
    assert all(map(torch.equal, made.flat.parameters, again.flat.parameters))
    for role in (
        ("weight", "recurrent") if init != "lsuv" else ()
    ):  # which scales what its layers make, as another test says
        for one, other in zip(weights(plain, role).values(), weights(larger, role).values(), strict=True):
            assert other.norm().item() == pytest.approx(2 * one.norm().item(), rel=1e-5)
    before = weights(plain, "bias")
    for name, bias in weights(made, "bias").items():
        if init != "default":
            assert before[name].count_nonzero() == 0
        expected = 0 if in_head(name) or "bias_hh" in name else -2
        torch.testing.assert_close(bias - before[name], torch.full_like(bias, expected))


# What a script writes to have the same weights: torch's own modules, made in this order.
PLAIN = {
    "mlp": lambda: [nn.Linear(64, 16), nn.Linear(16, 16), nn.Linear(16, 10)],
    "rnn": lambda: [nn.RNN(8, 16, 2), nn.Linear(16, 10)],
    "lstm": lambda: [nn.LSTM(8, 16, 2), nn.Linear(16, 10)],
    "gru": lambda: [nn.GRU(8, 16, 2), nn.Linear(16, 10)],
    "cnn": lambda: [nn.Conv2d(1, 16, 3), nn.Conv2d(16, 16, 3), nn.Linear(16, 10)],
    "transformer": lambda: [nn.Linear(8, 16), *block(16), *block(16), nn.LayerNorm(16), nn.Linear(16, 10)],
    "gan": lambda: [
        nn.Linear(2, 16),
        nn.Linear(16, 16),
        nn.Linear(16, 2),
        nn.Linear(2, 16),
        nn.Linear(16, 16),
        nn.Linear(16, 1),
    ],
    "policy": lambda: [nn.Linear(4, 16), nn.Linear(16, 16), nn.Linear(16, 2)],
}


def block(width):
    attention = [nn.LayerNorm(width), *(nn.Linear(width, width) for _ in range(4))]
    return [*attention, nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)]


@pytest.mark.parametrize("kind", MODELS)
def test_default_is_torch_s_own(make, kind):
    trainer = make(kind, "run.seed=5")
    torch.manual_seed(5)
    own = [parameter for module in PLAIN[kind]() for parameter in module.parameters()]
    assert all(torch.equal(a, b) for a, b in zip(trainer.flat.parameters, own, strict=True))


@pytest.mark.parametrize("init", ["xavier", "he", "orthogonal", "normal"])
@pytest.mark.parametrize("kind", MODELS)
def test_weights_are_drawn_one_after_the_other(make, kind, init):
    trainer = make(kind, f"model.init={init}", "run.seed=5")
    torch.manual_seed(5)
    drawn = {
        "xavier": nn.init.xavier_uniform_,
        "he": lambda weight: nn.init.kaiming_normal_(weight, nonlinearity="linear"),
        "orthogonal": nn.init.orthogonal_,
        "normal": lambda weight: nn.init.normal_(weight, std=0.02),
    }[init]
    own = [parameter for module in PLAIN[kind]() for parameter in module.parameters()]
    for layer, found, parameter in zip(trainer.layers, trainer.flat.parameters, own, strict=True):
        if layer.role in ("weight", "recurrent"):
            expected = drawn(parameter.data)
            torch.testing.assert_close(found.data / found.norm(), expected / expected.norm())


W = 256  # width


@pytest.mark.parametrize(("kind", "name", "init", "activation", "expected"), [
    ("mlp", "hidden.1.weight", "xavier", "tanh", math.sqrt(2 / (W + W))),
    ("mlp", "hidden.1.weight", "he", "relu", math.sqrt(2 / W)),
    ("mlp", "hidden.1.weight", "he", "tanh", math.sqrt(2 / W)),
    ("mlp", "hidden.1.weight", "orthogonal", "relu", math.sqrt(2 / W)),
    ("mlp", "hidden.1.weight", "orthogonal", "tanh", 5 / 3 / math.sqrt(W)),
    ("mlp", "hidden.1.weight", "orthogonal", "sigmoid", 1 / math.sqrt(W)),
    ("mlp", "hidden.1.weight", "normal", "relu", 0.02),
    ("mlp", "hidden.1.weight", "zeros", "relu", 0),
    ("mlp", "head.weight", "xavier", "relu", math.sqrt(2 / (W + 10))),
    ("mlp", "head.weight", "he", "relu", math.sqrt(1 / W)),
    ("mlp", "head.weight", "orthogonal", "tanh", math.sqrt(1 / W)),
    ("rnn", "rnn.weight_ih_l1", "he", "relu", math.sqrt(2 / W)),
    ("rnn", "rnn.weight_hh_l1", "he", "relu", math.sqrt(1 / W)),
    ("lstm", "lstm.weight_ih_l1", "xavier", "relu", math.sqrt(2 / (W + 4 * W))),
    ("lstm", "lstm.weight_ih_l1", "he", "relu", math.sqrt(1 / W)),
    ("lstm", "lstm.weight_ih_l1", "orthogonal", "relu", math.sqrt(1 / (4 * W))),
    ("gru", "gru.weight_hh_l0", "xavier", "relu", math.sqrt(2 / (W + 3 * W))),
    ("gru", "gru.weight_hh_l0", "he", "tanh", math.sqrt(1 / W)),
    ("cnn", "hidden.1.weight", "xavier", "relu", math.sqrt(2 / (9 * W + 9 * W))),
    ("cnn", "hidden.1.weight", "he", "relu", math.sqrt(2 / (9 * W))),
    ("cnn", "hidden.1.weight", "orthogonal", "tanh", 5 / 3 / math.sqrt(9 * W)),
    ("cnn", "head.weight", "he", "relu", math.sqrt(1 / W)),
    ("transformer", "blocks.0.attention.query.weight", "he", "relu", math.sqrt(1 / W)),
    ("transformer", "blocks.1.mlp.expand.weight", "he", "relu", math.sqrt(2 / W)),
    ("transformer", "blocks.1.mlp.contract.weight", "he", "relu", math.sqrt(1 / (4 * W))),
    ("transformer", "embedding.weight", "orthogonal", "relu", math.sqrt(1 / W)),
    ("gan", "generator.hidden.1.weight", "he", "relu", math.sqrt(2 / W)),
    ("gan", "discriminator.head.weight", "he", "relu", math.sqrt(1 / W)),
    ("policy", "hidden.1.weight", "orthogonal", "tanh", 5 / 3 / math.sqrt(W)),
])  # fmt: skip
def test_deviations(make, kind, name, init, activation, expected):
    made = make(kind, f"model.init={init}", f"model.activation={activation}", f"model.width={W}")
    found = (weights(made, "weight") | weights(made, "recurrent"))[name]
    assert found.std().item() == pytest.approx(expected, rel=0.12 if "head" in name else 0.03)


@pytest.mark.parametrize("kind", RECURRENT)
def test_recurrent_weights_are_orthogonal_times_the_gain(make, kind):
    for weight in weights(make(kind, "model.init=orthogonal", "model.init_gain=1.05"), "recurrent").values():
        torch.testing.assert_close(weight.T @ weight, 1.05**2 * torch.eye(16), atol=1e-5, rtol=0)


@pytest.mark.parametrize("gain", [1.0, 0.5])
@pytest.mark.parametrize("activation", ["relu", "tanh", "sigmoid"])
@pytest.mark.parametrize("kind", MODELS)
def test_lsuv_brings_every_deviation_to_one(make, kind, activation, gain):
    trainer = make(
        kind,
        "model.init=lsuv",
        f"model.activation={activation}",
        f"model.init_gain={gain}",
        "model.depth=4",
        "model.width=64",
    )
    trainer.model.eval()
    found = [(weight, sums().std().item()) for weight, sums in trainer.model.sums(trainer.task.sample())]
    assert all(one is other for one, (other, _) in zip(model_weights(trainer), found, strict=True))
    assert [deviation for _, deviation in found] == pytest.approx([gain] * len(found), rel=0.1)


def model_weights(trainer):
    return [
        parameter
        for layer, parameter in zip(trainer.layers, trainer.flat.parameters, strict=True)
        if layer.role == "weight"
    ]


@pytest.mark.parametrize("position", ["pre", "post"])
@pytest.mark.parametrize("norm", ["none", "layer"])
@pytest.mark.parametrize("kind", [kind for kind in MODELS if kind not in RECURRENT])
def test_lsuv_measures_what_the_layers_make(make, kind, norm, position):
    trainer = make(
        kind, f"model.norm={norm}", f"model.norm_position={position}", "model.depth=3", "model.residual=true"
    )
    model, sample = trainer.model.eval(), trainer.task.sample(8)
    given = {}

    def keep_the_first(module, inputs):
        given.setdefault(module, inputs[0])

    for module in model.modules():
        if isinstance(module, (nn.Linear, nn.Conv2d)):
            module.register_forward_pre_hook(keep_the_first)
    model(sample)
    by_weight = {module.weight: (module, inputs) for module, inputs in given.items()}
    for weight, sums in model.sums(sample):
        module, inputs = by_weight[weight]
        convolved = isinstance(module, nn.Conv2d)
        expected = (
            F.conv2d(inputs, weight, module.bias, padding=1) if convolved else F.linear(inputs, weight, module.bias)
        )
        torch.testing.assert_close(sums(), expected)


@pytest.mark.parametrize("kind", MODELS)
def test_lsuv_leaves_sums_that_do_not_vary(make, kind):
    trainer = make(kind, "model.init=lsuv", "problem.input_scale=0")
    unit_variance(trainer.model, trainer.task.sample())
    assert all(torch.isfinite(parameter).all() for parameter in trainer.flat.parameters)


@pytest.mark.parametrize("kind", ["mlp", "rnn", "cnn", "transformer", "gan", "policy"])
def test_norm_layers_stay_as_torch_makes_them(make, kind):
    found = weights(make(kind, "model.norm=layer", "model.init=he", "model.initial_bias=3"), "norm").values()
    assert found
    for weight in found:
        assert weight.unique().tolist() in ([0.0], [1.0])
