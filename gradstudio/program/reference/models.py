"""The networks. Their hidden layers are called `hidden`, or `rnn` or `blocks`, and their output layer `head`."""

import math
from contextlib import nullcontext

import torch
from torch import nn
from torch.nn import functional as F

from gradstudio.program.reference.layers import *

if not plan.own and knobs.model_kind in ("mlp", "policy", "gan"):

    class MLP(nn.Module):
        def __init__(self, inputs, outputs):
            super().__init__()
            self.hidden = stack([inputs, *[knobs.model_width] * (knobs.model_depth - 1)])
            self.head = nn.Linear(knobs.model_width, outputs)

        def forward(self, x):
            if plan.each_step:
                steps = x.shape[:2]
                x = x.flatten(0, 1)  # each time step by itself
            elif knobs.model_kind != "gan":
                x = x.flatten(1)
            for layer in self.hidden:
                x = through(layer, x)
            if plan.each_step:
                return self.head(x).unflatten(0, steps)
            return self.head(x) if plan.answers == 1 else self.head(x).unflatten(1, (plan.answers, -1))


if not plan.own and knobs.model_kind == "gan":

    class GAN(nn.Module):
        """Scores of the real point, of the drawn one, and of the drawn one as the generator sees it."""

        def __init__(self):
            super().__init__()
            self.generator = MLP(plan.features, plan.features)
            self.discriminator = MLP(plan.features, plan.outputs)

        def forward(self, inputs):
            real, noise = inputs.unbind(1)
            drawn = self.generator(noise)
            scores = [self.discriminator(real), self.discriminator(drawn.detach())]
            self.discriminator.requires_grad_(False)  # the generator's loss does not train the discriminator
            scores.append(self.discriminator(drawn))
            self.discriminator.requires_grad_(True)
            return torch.cat(scores, 1)


if not plan.own and knobs.model_kind == "cnn":

    class CNN(nn.Module):
        def __init__(self):
            super().__init__()
            self.hidden = stack([1, *[knobs.model_width] * (knobs.model_depth - 1)])
            self.head = nn.Linear(knobs.model_width, answers() * outputs_of_task())

        def forward(self, x):
            if plan.each_step:
                steps = x.shape[:2]
                x = x.flatten(0, 1).unsqueeze(1).unsqueeze(1)  # each time step is an image
            else:
                x = x.unsqueeze(1)  # an image of one channel
            for layer in self.hidden:
                x = through(layer, x)
            outputs = self.head(x.mean((2, 3)))
            if plan.each_step:
                return outputs.unflatten(0, steps)
            return outputs if plan.answers == 1 else outputs.unflatten(1, (plan.answers, -1))


@inline
def recurrent_layers(inputs):
    """Return torch's own recurrent layers."""
    if knobs.model_kind == "lstm":
        return nn.LSTM(inputs, knobs.model_width, knobs.model_depth, batch_first=True)
    if knobs.model_kind == "gru":
        return nn.GRU(inputs, knobs.model_width, knobs.model_depth, batch_first=True)
    return nn.RNN(inputs, knobs.model_width, knobs.model_depth, nonlinearity=knobs.model_activation, batch_first=True)


if not plan.own and knobs.model_kind in ("rnn", "lstm", "gru") and not plan.own_rnn:

    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = recurrent_layers(features())
            self.head = nn.Linear(knobs.model_width, outputs_of_task())

        def forward(self, x):
            states, _ = run(self.rnn, x)
            return self.head(latest(states))


if not plan.own and plan.own_rnn:

    class RecurrentLayer(nn.Module):
        """One layer of an nn.RNN, with what that does not have."""

        def __init__(self, size, residual=knobs.model_residual):
            super().__init__()
            width = knobs.model_width
            bound = 1 / math.sqrt(width)
            self.weight_ih = nn.Parameter(torch.empty(width, size).uniform_(-bound, bound))
            self.weight_hh = nn.Parameter(torch.empty(width, width).uniform_(-bound, bound))
            self.bias_ih = nn.Parameter(torch.empty(width).uniform_(-bound, bound))
            self.bias_hh = nn.Parameter(torch.empty(width).uniform_(-bound, bound))
            if knobs.model_norm == "batch":
                self.norm = nn.BatchNorm1d(width, momentum=knobs.model_norm_momentum)
            elif knobs.model_norm == "layer":
                self.norm = nn.LayerNorm(width)
            elif knobs.model_norm == "group":
                self.norm = nn.GroupNorm(math.gcd(width, 8), width)
            elif knobs.model_norm == "rms":
                self.norm = nn.RMSNorm(width)
            if knobs.model_residual:
                self.residual = residual
                if plan.factors and residual:
                    self.factor = branch_factor()

        def forward(self, x):
            inputs = F.linear(x, self.weight_ih, self.bias_ih)
            state = inputs.new_zeros(len(inputs), knobs.model_width)
            states = []
            for at in range(inputs.shape[1]):
                sums = inputs[:, at] + F.linear(state, self.weight_hh, self.bias_hh)
                if knobs.model_norm != "none" and knobs.model_norm_position == "pre":
                    sums = self.norm(sums)
                state = activation(sums)
                states.append(state)
            states = torch.stack(states, 1)
            if knobs.model_residual and self.residual:
                states = residual_sum(x, states, plan.factors and self.factor)
            if knobs.model_norm != "none" and knobs.model_norm_position == "post":
                states = self.norm(states.flatten(0, 1)).view_as(states)
            return states

    @inline
    def recurrent_stack(sizes):
        """Return the recurrent layers with these numbers of inputs."""
        if knobs.model_residual:
            return nn.ModuleList([RecurrentLayer(size, index > 0) for index, size in enumerate(sizes)])
        return nn.ModuleList([RecurrentLayer(size) for size in sizes])

    class RecurrentStack(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = recurrent_stack([features(), *[knobs.model_width] * (knobs.model_depth - 1)])
            self.head = nn.Linear(knobs.model_width, outputs_of_task())

        def forward(self, x):
            for layer in self.rnn:
                x = run(layer, x)
            return self.head(latest(x))


if not plan.own and knobs.model_kind == "transformer":

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            width = knobs.model_width
            self.query, self.key, self.value, self.output = (nn.Linear(width, width) for _ in range(4))
            if plan.limits_logits:
                self.largest = torch.zeros(plan.heads, device=device)  # logit of each head in a step
            if knobs.model_qk_norm:
                self.query_norm = nn.LayerNorm(width // plan.heads, bias=False)
                self.key_norm = nn.LayerNorm(width // plan.heads, bias=False)

        def forward(self, x):
            parts = (self.query, self.key, self.value)
            q, k, v = (part(x).unflatten(2, (plan.heads, -1)).transpose(1, 2) for part in parts)
            if knobs.model_qk_norm:
                q, k = self.query_norm(q), self.key_norm(k)
            if plan.mup:
                q = q * (knobs.model_base_width / knobs.model_width) ** 0.5  # muP: attention over 1 / d
            if plan.limits_logits and self.training:
                self.note_logits(q, k)
            attended = F.scaled_dot_product_attention(q, k, v, is_causal=plan.answers > 1)
            return self.output(attended.transpose(1, 2).flatten(2))

        if plan.limits_logits:

            @torch.no_grad()
            def note_logits(self, q, k):
                with torch.autocast(device.type, enabled=False) if plan.autocasts else nullcontext():
                    logits = q.float() @ k.float().transpose(-2, -1) / math.sqrt(knobs.model_width // plan.heads)
                seen = (logits.tril() if plan.answers > 1 else logits).amax((0, 2, 3))  # 0 where masked
                self.largest = torch.maximum(self.largest, seen)

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            width = knobs.model_width
            if knobs.model_norm_position == "pre":
                self.attention_norm = nn.LayerNorm(width)
            self.attention = Attention()
            if knobs.model_norm_position == "post":
                self.attention_norm = nn.LayerNorm(width)
            else:
                self.mlp_norm = nn.LayerNorm(width)
            self.expand = nn.Linear(width, 4 * width)
            self.contract = nn.Linear(4 * width, width)
            if knobs.model_norm_position == "post":
                self.mlp_norm = nn.LayerNorm(width)
            if plan.factors:
                self.attention_factor = branch_factor()
                self.mlp_factor = branch_factor()

        def feed_forward(self, x):
            return self.contract(activation(self.expand(x)))

        def forward(self, x):
            if knobs.model_norm_position == "post":
                x = self.attention_norm(residual_sum(x, self.attention(x), plan.factors and self.attention_factor))
                return self.mlp_norm(residual_sum(x, self.feed_forward(x), plan.factors and self.mlp_factor))
            x = residual_sum(x, self.attention(self.attention_norm(x)), plan.factors and self.attention_factor)
            return residual_sum(x, self.feed_forward(self.mlp_norm(x)), plan.factors and self.mlp_factor)

    class Transformer(nn.Module):
        def __init__(self):
            super().__init__()
            width = knobs.model_width
            self.embedding = nn.Linear(features(), width)
            column = torch.arange(width)
            angles = torch.arange(plan.time_steps).unsqueeze(1) / 10000 ** (column // 2 * 2 / width)
            self.register_buffer("positions", torch.where(column % 2 == 0, angles.sin(), angles.cos()))
            self.blocks = nn.ModuleList([Block() for _ in range(knobs.model_depth)])
            if knobs.model_norm_position == "pre":
                self.final_norm = nn.LayerNorm(width)
            self.head = nn.Linear(width, outputs_of_task())

        def forward(self, x):
            x = self.embedding(x) + self.positions
            for block in self.blocks:
                x = run(block, x)
            if knobs.model_norm_position == "pre":
                x = self.final_norm(x)
            return self.head(x.mean(1) if plan.answers == 1 else latest(x))
