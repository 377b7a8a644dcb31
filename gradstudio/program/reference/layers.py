"""What the layers of all networks share: activations, residuals, checkpointing."""

import math

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from gradstudio.program.reference.policy_batches import *


@inline
def activation(sums):
    if knobs.model_activation == "tanh":
        return torch.tanh(sums)
    if knobs.model_activation == "sigmoid":
        return torch.sigmoid(sums)
    if knobs.model_activation == "relu":
        return torch.relu(sums)
    if knobs.model_activation == "leaky_relu":
        return F.leaky_relu(sums)
    if knobs.model_activation == "gelu":
        return F.gelu(sums)
    return F.silu(sums)


@inline
def run(part, x):
    """Apply a part of a network. With checkpointing, its activations are computed again in the backward pass."""
    if not plan.checkpoints:
        return part(x)
    if knobs.model_kind == "gan":  # a frozen player would be computed again when it is frozen no more
        return checkpoint(part, x, use_reentrant=False) if part.weight.requires_grad else part(x)
    return checkpoint(part, x, use_reentrant=False)


@inline
def through(layer, x):
    """Apply one hidden layer."""
    if plan.layered:
        return run(layer, x)
    if not plan.checkpoints:
        return activation(layer(x))
    if knobs.model_kind == "gan":
        return (
            checkpoint(lambda x, layer=layer: activation(layer(x)), x, use_reentrant=False)
            if layer.weight.requires_grad
            else activation(layer(x))
        )
    return checkpoint(lambda x, layer=layer: activation(layer(x)), x, use_reentrant=False)


@inline
def branch_factor():
    """Return a new learned factor for a residual branch."""
    return nn.Parameter(torch.zeros(1)) if knobs.model_residual_scaling == "rezero" else nn.Parameter(torch.ones(1))


@inline
def residual_sum(x, branch, factor):
    """Return the sum of a residual and its branch, scaled as model.residual_scaling says."""
    if knobs.model_residual_scaling == "deepnorm" and plan.residual_sums > 1:
        return branch + plan.residual_sums**0.25 * x
    return x + factor * branch if plan.factors else x + branch


@inline
def features():
    """Return the number of features of a time step."""
    return len(vocabulary) if knobs.problem_task == "characters" else plan.features


@inline
def outputs_of_task():
    """Return the number of outputs per answer; naive_variance needs a variance beside each."""
    if knobs.problem_task == "characters":
        return (2 if knobs.loss_kind == "naive_variance" else 1) * len(vocabulary)
    return (2 if knobs.loss_kind == "naive_variance" else 1) * plan.outputs


@inline
def answers():
    """Return how many answers the network gives to one example."""
    return 1 if plan.each_step else plan.answers


@inline
def latest(states):
    """Return the states from which a sequence network gives its answers."""
    return states[:, -1] if plan.answers == 1 else states[:, -plan.answers :]


if plan.layered and knobs.model_kind != "rnn":

    class Layer(nn.Conv2d if knobs.model_kind == "cnn" else nn.Linear):  # pyright: ignore[reportGeneralTypeIssues]
        def __init__(self, inputs, residual=knobs.model_residual):
            if knobs.model_kind == "cnn":
                super().__init__(inputs, knobs.model_width, 3, padding=1)
            else:
                super().__init__(inputs, knobs.model_width)
            if knobs.model_norm == "batch" and knobs.model_kind == "cnn":
                self.norm = nn.BatchNorm2d(knobs.model_width, momentum=knobs.model_norm_momentum)
            elif knobs.model_norm == "batch":
                self.norm = nn.BatchNorm1d(knobs.model_width, momentum=knobs.model_norm_momentum)
            elif knobs.model_norm == "layer" and knobs.model_kind == "cnn":
                self.norm = nn.GroupNorm(1, knobs.model_width)
            elif knobs.model_norm == "layer":
                self.norm = nn.LayerNorm(knobs.model_width)
            elif knobs.model_norm == "group":
                self.norm = nn.GroupNorm(math.gcd(knobs.model_width, 8), knobs.model_width)
            elif knobs.model_norm == "rms":
                self.norm = nn.RMSNorm(knobs.model_width)
            if knobs.model_residual:
                self.residual = residual
                if plan.factors and residual:
                    self.factor = branch_factor()

        def forward(self, x):
            if knobs.model_norm != "none" and knobs.model_norm_position == "pre":
                y = activation(self.norm(super().forward(x)))
            else:
                y = activation(super().forward(x))
            if knobs.model_residual and self.residual:
                y = residual_sum(x, y, plan.factors and self.factor)
            return self.norm(y) if knobs.model_norm != "none" and knobs.model_norm_position == "post" else y


@inline
def hidden_layer(inputs):
    """Return a hidden layer without norm and residual."""
    if knobs.model_kind == "cnn":
        return nn.Conv2d(inputs, knobs.model_width, 3, padding=1)
    return nn.Linear(inputs, knobs.model_width)


@inline
def stack(sizes):
    """Return hidden layers with these numbers of inputs."""
    if not plan.layered:
        return nn.ModuleList([hidden_layer(size) for size in sizes])
    if knobs.model_residual:
        return nn.ModuleList([Layer(size, index > 0) for index, size in enumerate(sizes)])
    return nn.ModuleList([Layer(size) for size in sizes])
