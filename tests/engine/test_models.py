from __future__ import annotations

from itertools import islice, product

import numpy as np
import pytest
import torch

from gradstudio.core.experiment import KNOBS, Model
from gradstudio.engine.models import MODELS, role
from gradstudio.engine.models.activations import ACTIVATIONS
from gradstudio.engine.models.mlp import NORMS
from gradstudio.engine.models.rnn import RNN, RecurrentStack, run_layer, weights_of

VARIANTS = list(product(MODELS, NORMS, ["pre", "post"], [False, True]))


def test_every_choice_is_there():
    for knob, table in (("model.kind", MODELS), ("model.activation", ACTIVATIONS), ("model.norm", NORMS)):
        assert set(KNOBS[knob].choices) == set(table)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("kind", MODELS)
def test_every_activation_trains(train, kind, activation):
    rows = train(2, f"model.kind={kind}", f"model.activation={activation}")
    assert all(np.isfinite(row.loss) and row.grad_norm > 0 for row in rows)


@pytest.mark.parametrize(("kind", "norm", "position", "residual"), VARIANTS)
def test_checkpointing_changes_no_bit(build, kind, norm, position, residual):
    knobs = [
        f"model.kind={kind}",
        f"model.norm={norm}",
        f"model.norm_position={position}",
        f"model.residual={str(residual).lower()}",
        "model.depth=3",
    ]
    plain, saving = build(*knobs), build(*knobs, "model.checkpointing=true")
    for one, other in islice(zip(plain.steps(), saving.steps(), strict=False), 5):
        assert (one.loss, one.grad_norm) == (other.loss, other.grad_norm)
    assert all(map(torch.equal, plain.parameters, saving.parameters))
    assert all(torch.equal(a, b) for a, b in zip(plain.model.buffers(), saving.model.buffers(), strict=True) if a.is_floating_point())
    assert plain.evaluate() == saving.evaluate()


@pytest.mark.parametrize(("kind", "norm", "position", "residual"), VARIANTS)
def test_layers_stand_in_forward_order(build, kind, norm, position, residual):
    layers = build(f"model.kind={kind}", f"model.norm={norm}", f"model.norm_position={position}", f"model.residual={str(residual).lower()}").layers
    names = [layer.name for layer in layers]
    assert names[-2:] == ["head.weight", "head.bias"]
    first, second = ("_l0", "_l1") if kind == "rnn" else ("hidden.0.", "hidden.1.")
    assert [first in name for name in names[:-2]] == sorted([first in name for name in names[:-2]], reverse=True)
    assert sum(second in name for name in names) == (len(names) - 2) / 2
    assert {layer.role for layer in layers} == {"weight", "bias"} | ({"recurrent"} if kind == "rnn" else set()) | (
        {"norm"} if norm != "none" else set()
    )


@pytest.mark.parametrize(("name", "expected"), [
    ("hidden.0.weight", "weight"), ("hidden.0.norm.weight", "norm"), ("rnn.weight_hh_l0", "recurrent"), ("rnn.weight_ih_l0", "weight"),
    ("rnn.bias_hh_l0", "bias"), ("rnn.norm_l0.bias", "norm"), ("head.bias", "bias"),
])  # fmt: skip
def test_roles(name, expected):
    assert role(name) == expected


@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_the_plain_time_loop_is_nn_rnn(activation):
    torch.manual_seed(0)
    own = torch.nn.RNN(3, 8, nonlinearity=activation, batch_first=True)
    inputs = torch.randn(5, 7, 3)
    torch.testing.assert_close(run_layer(inputs, weights_of(own, 0), ACTIVATIONS[activation]), own(inputs)[0], rtol=1e-5, atol=1e-6)


def test_a_stack_has_the_names_and_starting_values_of_nn_rnn():
    torch.manual_seed(1)
    own = torch.nn.RNN(3, 8, num_layers=2, batch_first=True)
    torch.manual_seed(1)
    stack = RecurrentStack(3, Model(width=8, depth=2, activation="gelu"))
    assert {name: value.tolist() for name, value in own.named_parameters()} == {name: value.tolist() for name, value in stack.named_parameters()}


def test_torch_s_own_rnn_is_used_where_it_can_be():
    assert isinstance(RNN(Model(activation="tanh"), 8, 8, 10).rnn, torch.nn.RNN)
    for knobs in ({"activation": "sigmoid"}, {"residual": True}, {"norm": "layer"}):
        assert isinstance(RNN(Model(**knobs), 8, 8, 10).rnn, RecurrentStack)


def test_residual_and_norm_stand_where_they_are_said_to():
    torch.manual_seed(0)
    images = torch.randn(6, 8, 8)
    for position in ("pre", "post"):
        model = MODELS["mlp"](Model(width=64, depth=2, norm="layer", norm_position=position, residual=True), 8, 8, 10)
        first, second = model.hidden
        normed = torch.nn.functional.layer_norm
        state = images.flatten(1)
        for layer, around in ((first, 0), (second, 1)):
            sums = state @ layer.weight.T + layer.bias
            if position == "pre":
                state = torch.relu(normed(sums, (64,))) + around * state
            else:
                state = normed(torch.relu(sums) + around * state, (64,))
        torch.testing.assert_close(model(images), state @ model.head.weight.T + model.head.bias, rtol=1e-4, atol=1e-5)
