"""The model, its weights before the first step, and which of its parameters are trained."""

import math
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from gradstudio.program.reference.losses import *

model: Any
layer: Any


def unit_variance(weight, sums):
    """Layer-sequential unit variance (Mishkin and Matas 2015): scale each weight until its sums have the wanted
    deviation."""
    for _ in range(10):
        deviation = sums().std().item() / knobs.model_init_gain
        if deviation == 0 or not math.isfinite(deviation) or abs(deviation - 1) <= 0.1:
            break
        weight.div_(deviation + 1e-8)


def rate_factor(name, parameter):
    """muP (Yang 2021, table 3): on the learning rate, which is meant for a width of {knobs.model_base_width}."""
    if parameter.ndim > 1 and name.startswith("head."):
        return knobs.model_base_width / knobs.model_width
    if knobs.optimizer_kind == "sgd":
        if parameter.ndim > 1 and plan.first_weight not in name:
            return 1.0
        return 1 / (knobs.model_base_width / knobs.model_width)
    if parameter.ndim > 1 and plan.first_weight not in name:
        return knobs.model_base_width / knobs.model_width
    return 1.0


@inline
def is_activated(name):
    """Return whether the sums of a weight go through model.activation."""
    if knobs.model_kind == "rnn":
        return "weight_ih" in name
    if knobs.model_kind == "transformer":
        return "expand" in name
    return "hidden" in name


@inline
def draw_weight(name, parameter, nonlinearity, orthogonal_gain):
    """Draw a weight. The gates of an LSTM or GRU have their own activations."""
    if knobs.model_init == "default":
        if knobs.model_init_gain != 1:
            parameter.mul_(knobs.model_init_gain)
    elif knobs.model_init == "xavier":
        nn.init.xavier_uniform_(parameter, knobs.model_init_gain)
    elif knobs.model_init == "he":
        nn.init.kaiming_normal_(parameter, nonlinearity=nonlinearity)
        if knobs.model_init_gain != 1:
            parameter.mul_(knobs.model_init_gain)
    elif knobs.model_init == "orthogonal":
        nn.init.orthogonal_(parameter, orthogonal_gain)
    elif knobs.model_init == "lsuv" and knobs.model_kind in ("rnn", "lstm", "gru"):
        nn.init.orthogonal_(parameter, knobs.model_init_gain if "weight_hh" in name else 1.0)
    elif knobs.model_init == "lsuv":
        nn.init.orthogonal_(parameter)
    elif knobs.model_init == "zeros":
        parameter.zero_()
    else:
        nn.init.normal_(parameter, std=0.02 * knobs.model_init_gain)


@inline
def one_layer(inputs):
    """Return a recurrent layer that shares no weights with the network."""
    if knobs.model_kind == "lstm":
        return nn.LSTM(inputs, knobs.model_width, batch_first=True, device="meta")
    if knobs.model_kind == "gru":
        return nn.GRU(inputs, knobs.model_width, batch_first=True, device="meta")
    return nn.RNN(inputs, knobs.model_width, nonlinearity=knobs.model_activation, batch_first=True, device="meta")


@inline
def draw_bias(name, parameter):
    if knobs.model_init != "default":
        parameter.zero_()
    if knobs.model_initial_bias != 0 and (
        "head" not in name and (knobs.model_kind not in ("rnn", "lstm", "gru") or "bias_hh" not in name)
    ):
        parameter.add_(knobs.model_initial_bias)


if not plan.own:
    torch.manual_seed(seed)
if plan.own:
    model = build_model(**plan.arguments("build_model"))
elif knobs.model_kind == "transformer":
    model = Transformer()
elif knobs.model_kind == "gan":
    model = GAN()
elif knobs.model_kind == "cnn":
    model = CNN()
elif plan.own_rnn:
    model = RecurrentStack()
elif knobs.model_kind in ("rnn", "lstm", "gru"):
    model = Recurrent()
else:
    model = MLP((1 if plan.each_step else plan.time_steps) * features(), answers() * outputs_of_task())

if plan.draws_weights and not plan.own:
    with torch.no_grad():  # model.init = {knobs.model_init}
        for name, parameter in model.named_parameters():
            if (plan.normed or (plan.residual_sums > 0 and plan.factors)) and (
                "norm" in name or (plan.residual_sums > 0 and plan.factors and "factor" in name)
            ):
                continue
            if "bias" in name:
                draw_bias(name, parameter)
            elif knobs.model_init != "default" or knobs.model_init_gain != 1:
                draw_weight(
                    name,
                    parameter,
                    "relu" if not plan.gated and is_activated(name) else "linear",
                    (plan.own_gain or 1) * knobs.model_init_gain if is_activated(name) else knobs.model_init_gain,
                )

if not plan.own and knobs.model_init == "lsuv" and knobs.model_init_gain != 0:
    if plan.dataset:
        sample = all_inputs[:256].cpu()
    elif knobs.problem_task == "pole":
        sample = first_states(256, at_random := torch.Generator().manual_seed(seed + 5_000_011))
        for _ in range(10):
            sample = push(sample, torch.rand(256, generator=at_random).numpy() < 0.5)
        sample = torch.from_numpy(sample).float().unsqueeze(1) * knobs.problem_input_scale
    else:
        sample = draw(256, torch.Generator().manual_seed(seed + 5_000_011))[0] * knobs.problem_input_scale
    model.eval()
    with torch.no_grad():
        if plan.own_rnn:
            state = sample
            for layer in model.rnn:
                unit_variance(layer.weight_ih, lambda: F.linear(state, layer.weight_ih))
                state = layer(state)
            unit_variance(model.head.weight, lambda: model.head(state[:, -1]))
        elif knobs.model_kind in ("rnn", "lstm", "gru"):
            state = sample
            for layer in range(knobs.model_depth):
                weight = getattr(model.rnn, f"weight_ih_l{layer}")
                unit_variance(weight, lambda: F.linear(state, weight))
                alone = one_layer(weight.shape[1])
                for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
                    setattr(alone, f"{name}_l0", getattr(model.rnn, f"{name}_l{layer}"))
                state, _ = alone(state)
            unit_variance(model.head.weight, lambda: model.head(state[:, -1]))
        else:
            for module in model.modules():
                if isinstance(module, (nn.Linear, nn.Conv2d)):
                    # A layer may give more than its sums; they are what its base class makes of its inputs
                    seen, base = [], nn.Conv2d if isinstance(module, nn.Conv2d) else nn.Linear
                    hook = module.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
                    unit_variance(
                        module.weight, lambda: (seen.clear(), model(sample), base.forward(module, seen[0]))[-1]
                    )
                    hook.remove()
    model.train()


@inline
def weights_of_branches():
    """Return the weights on the branch of each residual."""
    if knobs.model_kind == "transformer":
        return [
            layer.weight
            for block in model.blocks
            for layer in (block.attention.value, block.attention.output, block.expand, block.contract)
        ]
    if knobs.model_kind == "rnn":
        return [layer.weight_ih for layer in model.rnn[1:]]
    if knobs.model_kind == "gan":
        return [layer.weight for layer in (*model.generator.hidden[1:], *model.discriminator.hidden[1:])]
    return [layer.weight for layer in model.hidden[1:]]


if knobs.model_residual_scaling == "fixup" and plan.residual_sums > 0:
    with torch.no_grad():  # model.residual_scaling = fixup
        for block in model.blocks:
            block.attention.value.weight.mul_(plan.residual_sums**-0.5)
            block.expand.weight.mul_(plan.residual_sums**-0.5)
            for last in (block.attention.output, block.contract):
                last.weight.zero_()
                last.bias.fill_(knobs.model_initial_bias)
        model.head.weight.zero_()
        model.head.bias.zero_()
elif knobs.model_residual_scaling == "deepnorm" and plan.residual_sums > 0:
    with torch.no_grad():  # model.residual_scaling = deepnorm
        for weight in weights_of_branches():
            weight.mul_((4 * plan.residual_sums) ** -0.25)
if plan.mup:
    with torch.no_grad():  # muP: the variance of the head's weights is 1 / n_in^2
        model.head.weight.mul_((knobs.model_base_width / knobs.model_width) ** 0.5)


if plan.own and plan.draws_weights:
    kinds = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.RNNBase)
    layers = [module for module in model.modules() if isinstance(module, kinds)]
    with torch.no_grad():  # model.init = {knobs.model_init}
        for layer in layers:
            for name, parameter in layer.named_parameters(recurse=False):
                if (knobs.model_init != "default" or knobs.model_initial_bias != 0) and name.startswith("bias"):
                    if knobs.model_init != "default":
                        parameter.zero_()
                    if knobs.model_initial_bias != 0 and layer is not layers[-1] and not name.startswith("bias_hh"):
                        parameter.add_(knobs.model_initial_bias)
                if name == "weight" or name.startswith(("weight_ih", "weight_hh")):
                    # a weight of a layer counts as followed by a relu
                    draw_weight(
                        name,
                        parameter,
                        "relu" if name == "weight" else "linear",
                        math.sqrt(2) * knobs.model_init_gain if name == "weight" else knobs.model_init_gain,
                    )

if knobs.run_device != "cpu":
    model.to(device)
if plan.own:
    model.train()
    named = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
    parameters = [parameter for _, parameter in named]
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)


@inline
def trainable():
    """Return the parameters that are trained."""
    return parameters if plan.own else model.parameters()


@inline
def named_trained():
    return named if plan.own else model.named_parameters()
