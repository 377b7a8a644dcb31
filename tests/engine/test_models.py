"""Every network against the same maths written another way, and what all of them must keep to."""

from __future__ import annotations

import math
import re
from itertools import islice, product

import numpy as np
import pytest
import torch
from pairs import pairs
from torch import nn
from torch.nn import functional as F

from gradstudio.core.experiment import KNOBS
from gradstudio.core.knobs import KnobError
from gradstudio.core.sections.loop_knobs import Precision
from gradstudio.core.sections.task_knobs import Model
from gradstudio.engine.models import MODELS, cnn, mlp, named_parameters, role
from gradstudio.engine.models.freezing import frozen
from gradstudio.engine.models.gated import one_layer
from gradstudio.engine.models.initialization import initialize
from gradstudio.engine.models.nonlinearities import ACTIVATIONS
from gradstudio.engine.models.rnn import RNN, RecurrentStack, run_layer, weights_of
from gradstudio.engine.models.transformer import sinusoids
from gradstudio.engine.shape import Shape
from gradstudio.engine.step import precision

DIGITS, RING, POLE = Shape(8, 8, 10), Shape(2, 2, 1), Shape(9, 4, 2, 9)
# digits, pixel by pixel, adding, copy, characters, spirals, and digits with a mean and a variance for each class
SUPERVISED = (
    DIGITS,
    Shape(64, 1, 10),
    Shape(20, 2, 1),
    Shape(25, 10, 8, 10),
    Shape(12, 30, 30, 12),
    Shape(1, 2, 2),
    Shape(8, 8, 20),
)
SHAPES = {kind: {"gan": (RING,), "policy": (POLE, Shape(1, 4, 2))}.get(kind, SUPERVISED) for kind in MODELS}
TASKS = {"gan": ["problem.task=ring"], "policy": ["problem.task=pole", "problem.seq_len=8"]}
LAYERED = ("mlp", "rnn", "cnn", "gan", "policy")  # to which norm, norm_position and residual apply
PLACES = [("none", "pre"), *product(("batch", "layer"), ("pre", "post"))]
OTHERS = [
    *product(("lstm", "gru"), PLACES[:1], (False,)),
    ("transformer", ("none", "pre"), False),
    ("transformer", ("none", "post"), False),
]
VARIANTS = [*product(LAYERED, PLACES, (False, True)), *OTHERS]


def make(kind, shape=None, **knobs):
    torch.manual_seed(0)
    return MODELS[kind](Model(**{"kind": kind, "width": 16, "depth": 2, **knobs}), shape or SHAPES[kind][0])


def inputs_for(shape, examples=6):
    return torch.randn(examples, shape.time_steps, shape.features, generator=torch.Generator().manual_seed(1))


def assignments(kind, place=("none", "pre"), residual=False):
    norm, position = place
    knobs = {"kind": kind, "norm": norm, "norm_position": position, "residual": str(residual).lower()}
    return [*TASKS.get(kind, []), *(f"model.{name}={value}" for name, value in knobs.items())]


def test_every_choice_is_there():
    for knob, table in (
        ("model.kind", MODELS),
        ("model.activation", ACTIVATIONS),
        ("model.norm", mlp.NORMS),
        ("model.norm", {**cnn.NORMS, "rms": None}),  # which no convolution has
    ):
        assert set(KNOBS[knob].choices) == set(table)


@pytest.mark.parametrize("kind", MODELS)
def test_every_activation_trains(train, kind):
    for activation in ACTIVATIONS:
        rows = train(2, *assignments(kind), f"model.activation={activation}")
        assert all(np.isfinite(row.loss) and row.grad_norm > 0 for row in rows)


@pytest.mark.parametrize("kind", MODELS)
def test_every_shape_goes_in_and_comes_out(kind):
    torch.use_deterministic_algorithms(True)
    for shape, examples, width in product(SHAPES[kind], (1, 3), (16, 7)):
        model, inputs = make(kind, shape, width=width, residual=True, norm="layer"), inputs_for(shape, examples)
        outputs = model(inputs)
        if kind == "gan":
            assert outputs.shape == (examples, 5)
        elif kind == "policy":
            assert outputs.shape == (examples, shape.time_steps, 2)
        else:
            assert outputs.shape == (
                (examples, shape.outputs) if shape.answers == 1 else (examples, shape.answers, shape.outputs)
            )
        outputs.sum().backward()
        assert all(parameter.grad is not None for parameter in model.parameters())
        torch.testing.assert_close(model.eval()(inputs), outputs, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
@pytest.mark.parametrize("kind", MODELS)
def test_every_format_is_near_fp32_or_refused(kind, dtype):
    model, inputs, knobs = make(kind), inputs_for(SHAPES[kind][0]), Precision(dtype=dtype)
    expected = model(inputs)
    try:
        precision.check(model, inputs, knobs, "cpu", kind)
    except KnobError as refusal:  # where the processor has no instructions for it
        assert kind == "lstm" and f"precision.dtype = {dtype}" in str(refusal) and "fp32" in str(refusal)
        return
    with precision.autocast(knobs, "cpu"):
        outputs = model(inputs).float()
    assert not torch.equal(outputs, expected)
    torch.testing.assert_close(outputs, expected, rtol=0.02, atol=0.02)


@pytest.mark.parametrize(("kind", "place", "residual"), [*pairs(LAYERED, PLACES, (False, True)), *OTHERS])
def test_checkpointing_changes_no_bit(build, kind, place, residual):
    knobs = [*assignments(kind, place, residual), "model.depth=3"]
    if place[0] == "layer" and kind != "rnn":
        knobs.append("precision.dtype=bf16")
    plain, saving = build(*knobs), build(*knobs, "model.checkpointing=true")
    for one, other in islice(zip(plain.steps(), saving.steps(), strict=False), 3):
        assert (one.loss, one.grad_norm) == (other.loss, other.grad_norm)
    assert all(map(torch.equal, plain.flat.parameters, saving.flat.parameters))
    assert all(
        torch.equal(a, b)
        for a, b in zip(plain.model.buffers(), saving.model.buffers(), strict=True)
        if a.is_floating_point()
    )
    assert plain.evaluate() == saving.evaluate()


@pytest.mark.parametrize(("kind", "place", "residual"), VARIANTS)
def test_layers_stand_in_forward_order(kind, place, residual):
    model = make(kind, norm=place[0], norm_position=place[1], residual=residual)
    names = [name for name, _ in named_parameters(model)]
    assert names[-2:] in (["head.weight", "head.bias"], ["discriminator.head.weight", "discriminator.head.bias"])
    if kind in ("rnn", "lstm", "gru"):
        first = ["_l0" in name for name in names[:-2]]
        assert first == sorted(first, reverse=True) and sum(first) == len(first) / 2
    else:
        assert list(dict.fromkeys(name.rpartition(".")[0] for name in names)) == called(
            model, inputs_for(SHAPES[kind][0])
        )
    if kind != "rnn" or place[0] == "none":  # so that model.parameters() is in this order, too
        assert names == [name for name, _ in model.named_parameters()]
    expected = {"weight", "bias"} | ({"recurrent"} if kind in ("rnn", "lstm", "gru") else set())
    assert {role(name) for name in names} == expected | (
        {"norm"} if place[0] != "none" or kind == "transformer" else set()
    )


def called(model, inputs):
    """Names of the modules that have parameters of their own, in the order in which a forward pass first comes to
    them."""
    order = []
    for name, module in model.named_modules():
        if list(module.parameters(recurse=False)):
            module.register_forward_pre_hook(lambda module, given, name=name: order.append(name))
    model(inputs)
    return list(dict.fromkeys(order))


@pytest.mark.parametrize(("name", "expected"), [
    ("hidden.0.weight", "weight"), ("hidden.0.norm.weight", "norm"), ("rnn.weight_hh_l0", "recurrent"),
    ("rnn.weight_ih_l0", "weight"),
    ("rnn.bias_hh_l0", "bias"), ("rnn.norm_l0.bias", "norm"), ("head.bias", "bias"), ("lstm.weight_hh_l1", "recurrent"),
    ("gru.weight_ih_l1", "weight"), ("blocks.0.attention.query.weight", "weight"),
    ("blocks.0.attention_norm.weight", "norm"),
    ("final_norm.bias", "norm"), ("blocks.1.mlp.expand.bias", "bias"), ("discriminator.hidden.0.norm.bias", "norm"),
])  # fmt: skip
def test_roles(name, expected):
    assert role(name) == expected


# ---- mlp and rnn


def test_residual_and_norm_stand_where_they_are_said_to():
    images = inputs_for(DIGITS)
    for position in ("pre", "post"):
        model = make("mlp", width=64, norm="layer", norm_position=position, residual=True)
        first, second = model.hidden
        state = images.flatten(1)
        for layer, around in ((first, 0), (second, 1)):
            sums = state @ layer.weight.T + layer.bias
            if position == "pre":
                state = torch.relu(F.layer_norm(sums, (64,))) + around * state
            else:
                state = F.layer_norm(torch.relu(sums) + around * state, (64,))
        torch.testing.assert_close(model(images), state @ model.head.weight.T + model.head.bias, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_the_plain_time_loop_is_nn_rnn(activation):
    torch.manual_seed(0)
    own = nn.RNN(3, 8, nonlinearity=activation, batch_first=True)
    inputs = torch.randn(5, 7, 3)
    torch.testing.assert_close(
        run_layer(inputs, weights_of(own, 0), ACTIVATIONS[activation]), own(inputs)[0], rtol=1e-5, atol=1e-6
    )


def test_a_stack_has_the_names_and_starting_values_of_nn_rnn():
    torch.manual_seed(1)
    own = nn.RNN(3, 8, num_layers=2, batch_first=True)
    torch.manual_seed(1)
    stack = RecurrentStack(3, Model(width=8, depth=2, activation="gelu"))
    assert {name: value.tolist() for name, value in own.named_parameters()} == {
        name: value.tolist() for name, value in stack.named_parameters()
    }


def test_torch_s_own_rnn_is_used_where_it_can_be():
    assert isinstance(RNN(Model(activation="tanh"), DIGITS).rnn, nn.RNN)
    for knobs in ({"activation": "sigmoid"}, {"residual": True}, {"norm": "layer"}):
        assert isinstance(RNN(Model(**knobs), DIGITS).rnn, RecurrentStack)


# ---- lstm and gru


def lstm_step(inputs, hidden, cell, weights):
    entered = weights.weight_ih @ inputs + weights.bias_ih + weights.weight_hh @ hidden + weights.bias_hh
    enter, forget, new, leave = entered.chunk(4)
    cell = torch.sigmoid(forget) * cell + torch.sigmoid(enter) * torch.tanh(new)
    return torch.sigmoid(leave) * torch.tanh(cell), cell


def gru_step(inputs, hidden, cell, weights):
    reset, keep, new = (weights.weight_ih @ inputs + weights.bias_ih).chunk(3)
    reset_hidden, keep_hidden, new_hidden = (weights.weight_hh @ hidden + weights.bias_hh).chunk(3)
    keep = torch.sigmoid(keep + keep_hidden)
    return (1 - keep) * torch.tanh(new + torch.sigmoid(reset + reset_hidden) * new_hidden) + keep * hidden, cell


@pytest.mark.parametrize("answers", [1, 3])
@pytest.mark.parametrize(("kind", "step"), [("lstm", lstm_step), ("gru", gru_step)])
def test_gates_written_out(kind, step, answers):
    shape = Shape(5, 3, 4, answers)
    model, inputs = make(kind, shape, width=6), inputs_for(shape, 2)
    for example, outputs in zip(inputs, model(inputs), strict=True):
        states = list(example)
        for layer in range(2):
            hidden, cell, weights, above = torch.zeros(6), torch.zeros(6), weights_of(model.recurrent, layer), []
            for state in states:
                hidden, cell = step(state, hidden, cell, weights)
                above.append(hidden)
            states = above
        expected = torch.stack([model.head.weight @ state + model.head.bias for state in states[-answers:]])
        torch.testing.assert_close(outputs, expected[0] if answers == 1 else expected)


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_a_stack_is_its_layers_one_after_the_other(kind):
    model, state = make(kind, depth=3), inputs_for(DIGITS)
    drawn, expected = torch.get_rng_state(), model.recurrent(state)[0]
    for layer in range(3):
        state, _ = one_layer(model.recurrent, layer)(state)
    torch.testing.assert_close(state, expected)
    assert torch.equal(drawn, torch.get_rng_state())


# ---- cnn


def group_normed(state, module):
    axes = (1, 2, 3) if isinstance(module, nn.GroupNorm) else (0, 2, 3)
    return (state - state.mean(axes, keepdims=True)) / np.sqrt(state.var(axes, keepdims=True) + 1e-5)


@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("place", PLACES)
def test_convolutions_written_out(place, residual):
    shape = Shape(5, 3, 2, 4)
    model, inputs = (
        make("cnn", shape, norm=place[0], norm_position=place[1], residual=residual, depth=3, activation="tanh"),
        inputs_for(shape),
    )
    state = inputs.double().numpy()[:, None]
    for index, layer in enumerate(model.hidden):
        windows = np.lib.stride_tricks.sliding_window_view(
            np.pad(state, ((0, 0), (0, 0), (1, 1), (1, 1))), (3, 3), (2, 3)
        )
        weight, bias = (parameter.detach().double().numpy() for parameter in (layer.weight, layer.bias))
        after = np.einsum("bchwij,ocij->bohw", windows, weight) + bias[:, None, None]
        after = np.tanh(group_normed(after, layer.norm) if layer.norm and place[1] == "pre" else after) + (
            state if residual and index else 0
        )
        state = group_normed(after, layer.norm) if layer.norm and place[1] == "post" else after
    expected = (
        state.mean((2, 3)) @ model.head.weight.detach().double().numpy().T + model.head.bias.detach().double().numpy()
    )
    np.testing.assert_allclose(model(inputs).detach().numpy(), expected.reshape(6, 4, 2), rtol=1e-3, atol=1e-5)


# ---- transformer


def torch_s_own(block, width, activation, position):
    """nn.TransformerEncoderLayer with the weights of a Block."""
    own = nn.TransformerEncoderLayer(
        width, math.gcd(width, 4), 4 * width, 0.0, activation, batch_first=True, norm_first=position == "pre"
    )
    asking = (block.attention.query, block.attention.key, block.attention.value)
    own.load_state_dict({
        "self_attn.in_proj_weight": torch.cat([part.weight for part in asking]),
        "self_attn.in_proj_bias": torch.cat([part.bias for part in asking]),
        **{f"self_attn.out_proj.{name}": value for name, value in block.attention.output.state_dict().items()},
        **{f"linear1.{name}": value for name, value in block.mlp.expand.state_dict().items()},
        **{f"linear2.{name}": value for name, value in block.mlp.contract.state_dict().items()},
        **{f"norm1.{name}": value for name, value in block.attention_norm.state_dict().items()},
        **{f"norm2.{name}": value for name, value in block.mlp_norm.state_dict().items()},
    })  # fmt: skip
    return own


@pytest.mark.parametrize("answers", [1, 4])
@pytest.mark.parametrize("width", [16, 6, 7])
@pytest.mark.parametrize("position", ["pre", "post"])
def test_blocks_are_torch_s_own(position, width, answers):
    shape = Shape(7, 3, 5, answers)
    model, inputs = (
        make("transformer", shape, width=width, norm_position=position, activation="gelu"),
        inputs_for(shape),
    )
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape))  # norms and biases too
    state = F.linear(inputs, model.embedding.weight, model.embedding.bias) + sinusoids(7, width)
    mask = nn.Transformer.generate_square_subsequent_mask(7) if answers > 1 else None
    for block in model.blocks:
        state = torch_s_own(block, width, "gelu", position)(state, mask)
    if position == "pre":
        state = F.layer_norm(state, (width,), model.final_norm.weight, model.final_norm.bias)
    state = state.mean(1) if answers == 1 else state[:, -answers:]
    torch.testing.assert_close(model(inputs), F.linear(state, model.head.weight, model.head.bias), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("width", [1, 7, 16])
def test_positions_are_those_of_the_paper(width):
    expected = [
        [
            (math.sin if column % 2 == 0 else math.cos)(step / 10000 ** (column // 2 * 2 / width))
            for column in range(width)
        ]
        for step in range(70)
    ]
    torch.testing.assert_close(sinusoids(70, width), torch.tensor(expected), rtol=1e-4, atol=1e-5)


def test_no_answer_knows_what_comes_after_it():
    shape = Shape(9, 4, 3, 5)
    model, inputs = make("transformer", shape), inputs_for(shape)
    later = inputs.clone()
    later[:, 6] += 1  # the second of the answered steps
    changed = (model(inputs) != model(later)).any(2).any(0)
    assert changed.tolist() == [False, False, True, True, True]


# ---- gan and policy


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("residual", [False, True])
def test_each_player_gets_the_gradient_of_its_own_loss(place, residual):
    knobs = {"norm": place[0], "norm_position": place[1], "residual": residual}
    inputs, model, usual = inputs_for(RING, 16), make("gan", **knobs), make("gan", **knobs)
    outputs = model(inputs)
    (0.5 * ((outputs[:, 0] - 1) ** 2 + outputs[:, 1] ** 2 + (outputs[:, 2] - 1) ** 2).mean()).backward()

    real, noise = inputs[:, 0], inputs[:, 1]
    drawn = usual.generator(noise)
    scores = (
        0.5 * ((usual.discriminator(real) - 1) ** 2).mean() + 0.5 * (usual.discriminator(drawn.detach()) ** 2).mean()
    )
    fooled = 0.5 * ((usual.discriminator(drawn) - 1) ** 2).mean()
    expected = [
        *torch.autograd.grad(fooled, list(usual.generator.parameters()), retain_graph=True),
        *torch.autograd.grad(scores, list(usual.discriminator.parameters())),
    ]
    for parameter, grad in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, grad, rtol=1e-5, atol=1e-7)
    assert torch.equal(outputs[:, 3:], drawn.detach()) and torch.equal(outputs[:, 1], outputs[:, 2])
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_what_was_frozen_thaws_after_an_error():
    part = nn.Linear(2, 1)
    part.bias.requires_grad_(False)
    with pytest.raises(RuntimeError), frozen(part):
        assert not part.weight.requires_grad
        part(torch.ones(3))
    assert part.weight.requires_grad and not part.bias.requires_grad


def test_a_policy_looks_at_each_step_by_itself():
    model, states = make("policy", residual=True, norm="layer").eval(), inputs_for(POLE)
    step_by_step = torch.cat([model(states[:, at : at + 1]) for at in range(states.shape[1])], 1)
    torch.testing.assert_close(model(states), step_by_step)


def test_a_policy_s_batch_norm_sees_every_step():
    model, same, states = make("policy", norm="batch"), make("mlp", Shape(1, 4, 2), norm="batch"), inputs_for(POLE)
    assert torch.equal(model(states).flatten(0, 1), same(states.flatten(0, 1)))
    assert all(map(torch.equal, model.buffers(), same.buffers()))


@pytest.mark.parametrize("kind", ["rezero", "fixup", "deepnorm"])
def test_residual_scaling_is_the_formula_of_its_paper(kind):
    """The first sum of a block of a post-norm transformer of 3 layers, and what the weights were multiplied by."""
    knobs = {"depth": 3, "norm_position": "post", "init": "xavier"}
    drawn = {}
    for scaling in ("none", kind):
        network = make("transformer", residual_scaling=scaling, **knobs)
        initialize(network, Model(kind="transformer", width=16, residual_scaling=scaling, **knobs), inputs_for(DIGITS))
        drawn[scaling] = dict(network.named_parameters())
    block, layers = network.blocks[0], 3
    shares = {  # of query, value, output, expand, contract and the head
        "rezero": (1, 1, 1, 1, 1, 1),
        "fixup": (1, (2 * layers) ** (-1 / (2 * 2 - 2)), 0, (2 * layers) ** (-1 / (2 * 2 - 2)), 0, 0),
        "deepnorm": (1, *4 * [(8 * layers) ** -0.25], 1),
    }[kind]
    parts = ("attention.query", "attention.value", "attention.output", "mlp.expand", "mlp.contract")
    for name, share in zip([*(f"blocks.0.{part}.weight" for part in parts), "head.weight"], shares, strict=True):
        assert torch.allclose(drawn[kind][name], share * drawn["none"][name], rtol=1e-6), name
    state = torch.randn(2, 8, 16)
    torch.nn.init.normal_(block.attention.output.weight)
    branch = block.attention(state)
    expected = {"rezero": state, "fixup": state + branch, "deepnorm": (2 * layers) ** 0.25 * state + branch}[kind]
    assert torch.allclose(block.attend(state), F.layer_norm(expected, (16,)), atol=1e-6)
    if kind == "rezero":
        block.attention_residual.factor.data.fill_(0.5)
        assert torch.allclose(block.attend(state), F.layer_norm(state + 0.5 * branch, (16,)), atol=1e-6)


@pytest.mark.parametrize("kind", ["mlp", "rnn", "cnn"])
def test_a_branch_of_one_layer_is_scaled_from_the_second_layer_on(kind):
    """Four layers have three sums: alpha = 3^(1/4), beta = 12^(-1/4); ReZero begins as what goes around."""
    inputs, knobs = inputs_for(DIGITS), {"depth": 4, "residual": True, "init": "orthogonal", "activation": "gelu"}
    plain, deep, zero = (make(kind, residual_scaling=scaling, **knobs) for scaling in ("none", "deepnorm", "rezero"))
    for network, scaling in ((plain, "none"), (deep, "deepnorm"), (zero, "rezero")):
        torch.manual_seed(0)
        initialize(network, Model(kind=kind, width=16, residual_scaling=scaling, **knobs), inputs)
    others = dict(plain.named_parameters())
    for name, parameter in deep.named_parameters():
        scaled = re.search(r"hidden\.[123]\.weight|weight_ih_l[123]", name)
        assert torch.allclose(parameter, others[name] * (12**-0.25 if scaled else 1)), name
    state = torch.randn(5, 16, *[3, 3][: 2 * (kind == "cnn")])
    if kind == "rnn":
        through = deep.rnn.through(1, state[None])[0]
        branch = run_layer(state[None], weights_of(deep.rnn, 1), F.gelu)[0]
        assert torch.equal(zero.rnn.through(2, state[None])[0], state)
    else:
        layer = deep.hidden[1]
        through, branch = layer(state), F.gelu(sums_of(layer, state))
        assert torch.equal(zero.hidden[2](state), state)
    assert torch.allclose(through, 3**0.25 * state + branch, atol=1e-6)


def sums_of(layer, state):
    if isinstance(layer, nn.Linear):
        return F.linear(state, layer.weight, layer.bias)
    return F.conv2d(state, layer.weight, layer.bias, padding=1)
