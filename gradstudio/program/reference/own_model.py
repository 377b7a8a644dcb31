"""The weights of a studio file's model, and which of its parameters are trained."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import nn

from gradstudio.program.reference.given import inline

if TYPE_CHECKING:
    from gradstudio.program.reference.device import device
    from gradstudio.program.reference.given import knobs, plan
    from gradstudio.program.reference.weights import model


@inline
def draw_weight_of_layer(parameter):
    """Draw a weight of a layer that counts as followed by a relu."""
    if knobs.model_init == "he":
        nn.init.kaiming_normal_(parameter, nonlinearity="relu")
        if knobs.model_init_gain != 1:
            parameter.mul_(knobs.model_init_gain)
    else:
        nn.init.orthogonal_(parameter, math.sqrt(2) * knobs.model_init_gain)


@inline
def draw_recurrent_weight(parameter):
    if knobs.model_init == "default" and knobs.model_init_gain != 1:
        parameter.mul_(knobs.model_init_gain)
    elif knobs.model_init == "xavier":
        nn.init.xavier_uniform_(parameter, knobs.model_init_gain)
    elif knobs.model_init == "he":
        nn.init.kaiming_normal_(parameter, nonlinearity="linear")
        if knobs.model_init_gain != 1:
            parameter.mul_(knobs.model_init_gain)
    elif knobs.model_init == "orthogonal":
        nn.init.orthogonal_(parameter, knobs.model_init_gain)
    elif knobs.model_init == "zeros":
        parameter.zero_()
    elif knobs.model_init == "normal":
        nn.init.normal_(parameter, std=0.02 * knobs.model_init_gain)


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
                if knobs.model_init in ("he", "orthogonal"):
                    if name == "weight":
                        draw_weight_of_layer(parameter)
                    if name.startswith(("weight_ih", "weight_hh")):
                        draw_recurrent_weight(parameter)
                elif name == "weight" or name.startswith(("weight_ih", "weight_hh")):
                    draw_recurrent_weight(parameter)

if knobs.run_device != "cpu":
    model.to(device)
if plan.own:
    model.train()
    named = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
    parameters = [parameter for _, parameter in named]
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)


@inline
def trained():
    """Return the parameters that are trained."""
    return parameters if plan.own else model.parameters()


@inline
def named_trained():
    return named if plan.own else model.named_parameters()
