"""The networks of a script that read sequences: recurrent ones and the transformer."""

from __future__ import annotations

import math

from gradstudio.session.script.layer_lines import (
    activation,
    answers,
    factor,
    is_own_rnn,
    norm_momentum,
    residual_sum,
    run,
    sizes,
    stack,
)
from gradstudio.session.script.model_shape import shape
from gradstudio.session.script.parametrization_lines import shrunk_query
from gradstudio.session.script.plan import Plan, literal


def recurrent(plan: Plan) -> str:
    """Return the class of a network with torch's own RNN, LSTM or GRU."""
    kind, goes = str(plan["model.kind"]), shape(plan)
    if is_own_rnn(plan):
        return own_rnn(plan)
    nonlinearity = f"nonlinearity={literal(plan['model.activation'])}, " if kind == "rnn" else ""
    sizes = f"{goes.features}, {plan['model.width']}, {plan['model.depth']}"
    return f"""class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.{kind} = nn.{kind.upper()}({sizes}, {nonlinearity}batch_first=True)
        self.head = nn.Linear({plan["model.width"]}, {goes.outputs})

    def forward(self, x):
        states, _ = {run(plan, f"self.{kind}", "x")}
        return {answers(plan, "states")}
"""


def own_rnn(plan: Plan) -> str:
    """Return the class of a recurrent network with an activation, norm or residual that nn.RNN does not have: a loop
    over time."""
    width, norm, goes = plan["model.width"], str(plan["model.norm"]), shape(plan)
    inside = norm != "none" and plan["model.norm_position"] == "pre"
    total = "inputs[:, at] + F.linear(state, self.weight_hh, self.bias_hh)"
    after = "        states = torch.stack(states, 1)\n"
    if plan["model.residual"]:
        after += f"        if self.residual:\n            states = {residual_sum(plan, 'x', 'states')}\n"
    if norm != "none" and not inside:
        after += "        states = self.norm(states.flatten(0, 1)).view_as(states)\n"
    norms = {
        "batch": f"        self.norm = nn.BatchNorm1d({width}{norm_momentum(plan)})\n",
        "layer": f"        self.norm = nn.LayerNorm({width})\n",
        "none": "",
    }
    residual = bool(plan["model.residual"])
    kept = "        self.residual = residual\n" if residual else ""
    if residual and factor(plan):
        kept += f"        if residual:\n            self.factor = {factor(plan)}\n"
    return f'''class Layer(nn.Module):
    """One layer of an nn.RNN, with what that does not have."""

    def __init__(self, size{", residual" if residual else ""}):
        super().__init__()
        bound = 1 / math.sqrt({width})
        self.weight_ih = nn.Parameter(torch.empty({width}, size).uniform_(-bound, bound))
        self.weight_hh = nn.Parameter(torch.empty({width}, {width}).uniform_(-bound, bound))
        self.bias_ih = nn.Parameter(torch.empty({width}).uniform_(-bound, bound))
        self.bias_hh = nn.Parameter(torch.empty({width}).uniform_(-bound, bound))
{norms[norm]}{kept}
    def forward(self, x):
        inputs = F.linear(x, self.weight_ih, self.bias_ih)
        state = inputs.new_zeros(len(inputs), {width})
        states = []
        for at in range(inputs.shape[1]):
            state = {activation(plan)}({f"self.norm({total})" if inside else total})
            states.append(state)
{after}        return states


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = {stack(plan, "Layer(size)", sizes(goes.features, plan))}
        self.head = nn.Linear({width}, {goes.outputs})

    def forward(self, x):
        for layer in self.rnn:
            x = {run(plan, "layer", "x")}
        return {answers(plan, "x")}
'''


def transformer(plan: Plan) -> str:
    width, goes, first = int(plan["model.width"]), shape(plan), plan["model.norm_position"] == "pre"
    heads = math.gcd(width, 4)
    causal = ", is_causal=True" if goes.answers > 1 else ""
    normed = bool(plan["model.qk_norm"])
    one = f"nn.LayerNorm({width // heads}, bias=False)"
    made = f"        self.query_norm, self.key_norm = {one}, {one}\n" if normed else ""
    used = "        q, k = self.query_norm(q), self.key_norm(k)\n" if normed else ""
    used += shrunk_query(plan)
    attention, thinking = (
        ["self.attention = Attention()"],
        ["self.expand = nn.Linear({w}, {w4})", "self.contract = nn.Linear({w4}, {w})"],
    )
    norms = ["self.attention_norm = nn.LayerNorm({w})"], ["self.mlp_norm = nn.LayerNorm({w})"]
    order = [*norms[0], *attention, *norms[1], *thinking] if first else [*attention, *norms[0], *thinking, *norms[1]]
    if factor(plan):
        order += [f"self.{part}_factor = {factor(plan)}" for part in ("attention", "mlp")]
    parts = "\n".join("        " + part.format(w=width, w4=4 * width) for part in order)
    attended = residual_sum(
        plan, "x", f"self.attention({'self.attention_norm(x)' if first else 'x'})", "self.attention_factor"
    )
    thought = f"self.contract({activation(plan)}(self.expand({'self.mlp_norm(x)' if first else 'x'})))"
    thought = residual_sum(plan, "x", thought, "self.mlp_factor")
    if not first:
        attended, thought = f"self.attention_norm({attended})", f"self.mlp_norm({thought})"
    forward = f"        x = {attended}\n        return {thought}"
    final = f"        self.final_norm = nn.LayerNorm({width})\n" if first else ""
    read = "self.final_norm(x)" if first else "x"
    read = f"{read}.mean(1)" if goes.answers == 1 else f"{read}[:, -{goes.answers}:]"
    return f"""class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.key, self.value, self.output = (nn.Linear({width}, {width}) for _ in range(4))
{made}
    def forward(self, x):
        q, k, v = (part(x).unflatten(2, ({heads}, -1)).transpose(1, 2) for part in (self.query, self.key, self.value))
{used}        return self.output(F.scaled_dot_product_attention(q, k, v{causal}).transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
{parts}

    def forward(self, x):
{forward}


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Linear({goes.features}, {width})
        column = torch.arange({width})
        angles = torch.arange({goes.time_steps}).unsqueeze(1) / 10000 ** (column // 2 * 2 / {width})
        self.register_buffer("positions", torch.where(column % 2 == 0, angles.sin(), angles.cos()))
        self.blocks = nn.ModuleList(Block() for _ in range({plan["model.depth"]}))
{final}        self.head = nn.Linear({width}, {goes.outputs})

    def forward(self, x):
        x = self.embedding(x) + self.positions
        for block in self.blocks:
            x = {run(plan, "block", "x")}
        return self.head({read})
"""
