"""The network of a script, written for the knobs as they are: what is switched off is not there."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from gradstudio.core.combinations import PIXELS
from gradstudio.session.script.plan import Lines, Plan, literal

ACTIVATIONS = {
    "tanh": "torch.tanh", "sigmoid": "torch.sigmoid", "relu": "torch.relu", "leaky_relu": "F.leaky_relu", "gelu": "F.gelu", "silu": "F.silu",
}  # fmt: skip
COPIED = 10  # symbols that the copy task repeats


class Shape(NamedTuple):
    """What goes in and what comes out, as the task has it; as Python writes it, for the characters' number is known only when the script runs."""

    time_steps: int
    features: int | str
    outputs: int | str
    answers: int = 1


def shape(plan: Plan) -> Shape:
    steps = int(plan["problem.seq_len"])
    found = {
        "digits": Shape(8, 8, 10),
        "sequential_digits": Shape(steps, PIXELS // min(steps, PIXELS), 10),
        "adding": Shape(steps, 2, 1),
        "copy": Shape(COPIED + steps + 1 + COPIED, 10, 8, COPIED),
        "characters": Shape(steps, "len(vocabulary)", "len(vocabulary)", steps),
        "spirals": Shape(1, 2, 2),
        "ring": Shape(1, 2, 1),
        "pole": Shape(1, 4, 2),
    }[str(plan["problem.task"])]
    double = plan["loss.kind"] == "naive_variance"
    return found._replace(outputs=product(2, found.outputs)) if double else found


def each_step(plan: Plan) -> bool:
    """Whether a network that remembers nothing answers every time step by itself."""
    goes = shape(plan)
    return plan["model.kind"] == "policy" or (plan["model.kind"] in ("mlp", "cnn") and goes.answers == goes.time_steps > 1)


def product(*factors: int | str) -> int | str:
    """A product, worked out as far as it is known."""
    number, names = 1, []
    for factor in factors:
        if isinstance(factor, int):
            number *= factor
        else:
            names.append(factor)
    if not names:
        return number
    return " * ".join([*([str(number)] if number != 1 else []), *names])


def model(plan: Plan, lines: Lines) -> None:
    """The network's class."""
    lines.add(CLASSES[str(plan["model.kind"])](plan) + "\n")


def build(plan: Plan) -> str:
    """What makes it."""
    return {"gan": "GAN()", "policy": "Policy()"}.get(str(plan["model.kind"]), "Network()")


# ---- parts


def _run(plan: Plan, part: str, inputs: str) -> str:
    """part(inputs), forgotten and computed again in the backward pass where checkpointing is on."""
    return _checkpointed(plan, part, inputs) if checkpoints(plan) else f"{part}({inputs})"


def _checkpointed(plan: Plan, part: str, inputs: str, plain: str = "") -> str:
    call = f"checkpoint({part}, {inputs}, use_reentrant=False)"
    if plan["model.kind"] == "gan":  # a frozen player would be computed again when it is frozen no more
        call += f" if layer.weight.requires_grad else {plain or f'{part}({inputs})'}"
    return call


def checkpoints(plan: Plan) -> bool:
    """A policy with batch norm is left without: a second pass would move the running statistics that it plays by."""
    return bool(plan["model.checkpointing"]) and not (plan["model.kind"] == "policy" and plan["model.norm"] == "batch")


def _has_norm(plan: Plan) -> bool:
    return plan["model.norm"] != "none"


def has_layers(plan: Plan) -> bool:
    """Whether hidden layers are of a class of their own, with a norm or a residual."""
    return plan["model.kind"] in ("mlp", "rnn", "cnn", "gan", "policy") and (_has_norm(plan) or bool(plan["model.residual"]))


def _activation(plan: Plan) -> str:
    return ACTIVATIONS[str(plan["model.activation"])]


def _answers(plan: Plan, state: str) -> str:
    """The head on what a sequence network says at its last steps."""
    count = shape(plan).answers
    return f"self.head({state}[:, -1])" if count == 1 else f"self.head({state}[:, -{count}:])"


def _unflatten(plan: Plan) -> str:
    """After a head that gives all answers in one row."""
    if each_step(plan):
        return ".unflatten(0, steps)"
    count = shape(plan).answers
    return "" if count == 1 else f".unflatten(1, ({count}, -1))"


def _layer(plan: Plan, name: str, base: str, arguments: str, norms: dict[str, str]) -> str:
    """A hidden layer with a norm, a residual or both around it; "" where a bare layer and an activation do."""
    norm, residual, first = str(plan["model.norm"]), bool(plan["model.residual"]), plan["model.norm_position"] == "pre"
    if norm == "none" and not residual:
        return ""
    sums = "self.norm(super().forward(x))" if norm != "none" and first else "super().forward(x)"
    lines = [f"class {name}({base}):"]
    keeps = ["inputs", "residual"] if residual else ["inputs"]
    lines += [f"    def __init__(self, {', '.join(keeps)}):", f"        super().__init__({arguments})"]
    if norm != "none":
        lines.append(f"        self.norm = {norms[norm]}")
    if residual:
        lines.append("        self.residual = residual")
    lines += ["", "    def forward(self, x):", f"        y = {_activation(plan)}({sums})"]
    if residual:
        lines += ["        if self.residual:", "            y = y + x"]
    lines.append("        return self.norm(y)" if norm != "none" and not first else "        return y")
    return "\n".join(lines) + "\n\n\n"


def _stack(plan: Plan, layer: str, bare: str, sizes: str) -> str:
    """A list of hidden layers; `sizes` are the numbers of their inputs."""
    if not _has_norm(plan) and not plan["model.residual"]:
        return f"nn.ModuleList({bare} for size in {sizes})"
    if plan["model.residual"]:
        return f"nn.ModuleList({layer}(size, index > 0) for index, size in enumerate({sizes}))"
    return f"nn.ModuleList({layer}(size) for size in {sizes})"


def _through(plan: Plan) -> str:
    """One hidden layer of a stack applied to x."""
    if _has_norm(plan) or plan["model.residual"]:
        return _run(plan, "layer", "x")
    if checkpoints(plan):
        return _checkpointed(plan, f"lambda x, layer=layer: {_activation(plan)}(layer(x))", "x", f"{_activation(plan)}(layer(x))")
    return f"{_activation(plan)}(layer(x))"


def _sizes(first: int | str, plan: Plan) -> str:
    width, depth = plan["model.width"], int(plan["model.depth"])
    if depth == 1:
        return f"[{first}]"
    return f"[{first}, {width}]" if depth == 2 else f"[{first}] + [{width}] * {depth - 1}"


# ---- networks


def mlp(plan: Plan) -> str:
    """Also the two players of a gan and a policy."""
    width, kind, goes = plan["model.width"], str(plan["model.kind"]), shape(plan)
    norms = {"batch": f"nn.BatchNorm1d({width})", "layer": f"nn.LayerNorm({width})"}
    layer = _layer(plan, "Layer", "nn.Linear", f"inputs, {width}", norms)
    several = kind == "gan"
    name = {"gan": "MLP", "policy": "Policy"}.get(kind, "Network")
    alone = each_step(plan)
    inputs = "inputs" if several else goes.features if alone else product(goes.time_steps, goes.features)
    outputs = "outputs" if several else goes.outputs if alone else product(goes.answers, goes.outputs)
    flat = "        x = x.flatten(1)\n" if not alone else "        steps = x.shape[:2]\n        x = x.flatten(0, 1)  # each time step by itself\n"
    flat = "" if several else flat
    end = "" if several else _unflatten(plan)
    return f"""{layer}class {name}(nn.Module):
    def __init__(self{", inputs, outputs" if several else ""}):
        super().__init__()
        self.hidden = {_stack(plan, "Layer", f"nn.Linear(size, {width})", _sizes(inputs, plan))}
        self.head = nn.Linear({width}, {outputs})

    def forward(self, x):
{flat}        for layer in self.hidden:
            x = {_through(plan)}
        return self.head(x){end}
"""


def gan(plan: Plan) -> str:
    goes = shape(plan)
    return (
        mlp(plan)
        + f'''

class GAN(nn.Module):
    """Scores of the real point, of the drawn one, and of the drawn one as the generator sees it."""

    def __init__(self):
        super().__init__()
        self.generator = MLP({goes.features}, {goes.features})
        self.discriminator = MLP({goes.features}, {goes.outputs})

    def forward(self, inputs):
        real, noise = inputs.unbind(1)
        drawn = self.generator(noise)
        scores = [self.discriminator(real), self.discriminator(drawn.detach())]
        self.discriminator.requires_grad_(False)  # the generator's loss does not train the discriminator
        scores.append(self.discriminator(drawn))
        self.discriminator.requires_grad_(True)
        return torch.cat(scores, 1)
'''
    )


def cnn(plan: Plan) -> str:
    width, goes = plan["model.width"], shape(plan)
    norms = {"batch": f"nn.BatchNorm2d({width})", "layer": f"nn.GroupNorm(1, {width})"}
    layer = _layer(plan, "Layer", "nn.Conv2d", f"inputs, {width}, 3, padding=1", norms)
    image = "        x = x.unsqueeze(1)  # an image of one channel\n"
    if each_step(plan):
        image = "        steps = x.shape[:2]\n        x = x.flatten(0, 1).unsqueeze(1).unsqueeze(1)  # each time step is an image\n"
    return f"""{layer}class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = {_stack(plan, "Layer", f"nn.Conv2d(size, {width}, 3, padding=1)", _sizes(1, plan))}
        self.head = nn.Linear({width}, {goes.outputs if each_step(plan) else product(goes.answers, goes.outputs)})

    def forward(self, x):
{image}        for layer in self.hidden:
            x = {_through(plan)}
        return self.head(x.mean((2, 3))){_unflatten(plan)}
"""


def recurrent(plan: Plan) -> str:
    """torch's own RNN, LSTM or GRU."""
    kind, goes = str(plan["model.kind"]), shape(plan)
    if is_own_rnn(plan):
        return own_rnn(plan)
    nonlinearity = f"nonlinearity={literal(plan['model.activation'])}, " if kind == "rnn" else ""
    return f"""class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.{kind} = nn.{kind.upper()}({goes.features}, {plan["model.width"]}, {plan["model.depth"]}, {nonlinearity}batch_first=True)
        self.head = nn.Linear({plan["model.width"]}, {goes.outputs})

    def forward(self, x):
        states, _ = {_run(plan, f"self.{kind}", "x")}
        return {_answers(plan, "states")}
"""


def is_own_rnn(plan: Plan) -> bool:
    """Whether nn.RNN cannot do what the knobs ask for."""
    return plan["model.kind"] == "rnn" and (plan["model.activation"] not in ("tanh", "relu") or _has_norm(plan) or bool(plan["model.residual"]))


def own_rnn(plan: Plan) -> str:
    """nn.RNN has no such activation, norm or residual: the same maths in a loop over time."""
    width, norm, goes = plan["model.width"], str(plan["model.norm"]), shape(plan)
    inside = norm != "none" and plan["model.norm_position"] == "pre"
    total = "inputs[:, at] + F.linear(state, self.weight_hh, self.bias_hh)"
    after = "        states = torch.stack(states, 1)\n"
    if plan["model.residual"]:
        after += "        if self.residual:\n            states = states + x\n"
    if norm != "none" and not inside:
        after += "        states = self.norm(states.flatten(0, 1)).view_as(states)\n"
    norms = {"batch": f"        self.norm = nn.BatchNorm1d({width})\n", "layer": f"        self.norm = nn.LayerNorm({width})\n", "none": ""}
    residual = bool(plan["model.residual"])
    return f'''class Layer(nn.Module):
    """One layer of an nn.RNN, with what that does not have."""

    def __init__(self, size{", residual" if residual else ""}):
        super().__init__()
        bound = 1 / math.sqrt({width})
        self.weight_ih = nn.Parameter(torch.empty({width}, size).uniform_(-bound, bound))
        self.weight_hh = nn.Parameter(torch.empty({width}, {width}).uniform_(-bound, bound))
        self.bias_ih = nn.Parameter(torch.empty({width}).uniform_(-bound, bound))
        self.bias_hh = nn.Parameter(torch.empty({width}).uniform_(-bound, bound))
{norms[norm]}{"        self.residual = residual" + chr(10) if residual else ""}
    def forward(self, x):
        inputs = F.linear(x, self.weight_ih, self.bias_ih)
        state = inputs.new_zeros(len(inputs), {width})
        states = []
        for at in range(inputs.shape[1]):
            state = {_activation(plan)}({f"self.norm({total})" if inside else total})
            states.append(state)
{after}        return states


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = {_stack(plan, "Layer", "Layer(size)", _sizes(goes.features, plan))}
        self.head = nn.Linear({width}, {goes.outputs})

    def forward(self, x):
        for layer in self.rnn:
            x = {_run(plan, "layer", "x")}
        return {_answers(plan, "x")}
'''


def transformer(plan: Plan) -> str:
    width, goes, first = int(plan["model.width"]), shape(plan), plan["model.norm_position"] == "pre"
    heads = next(count for count in (4, 2, 1) if width % count == 0)
    causal = ", is_causal=True" if goes.answers > 1 else ""
    attention, thinking = ["self.attention = Attention()"], ["self.expand = nn.Linear({w}, {w4})", "self.contract = nn.Linear({w4}, {w})"]
    norms = ["self.attention_norm = nn.LayerNorm({w})"], ["self.mlp_norm = nn.LayerNorm({w})"]
    order = [*norms[0], *attention, *norms[1], *thinking] if first else [*attention, *norms[0], *thinking, *norms[1]]
    parts = "\n".join("        " + part.format(w=width, w4=4 * width) for part in order)
    mlp_of = f"self.contract({_activation(plan)}(self.expand({{}})))"
    forward = (
        f"        x = x + self.attention(self.attention_norm(x))\n        return x + {mlp_of.format('self.mlp_norm(x)')}"
        if first
        else f"        x = self.attention_norm(x + self.attention(x))\n        return self.mlp_norm(x + {mlp_of.format('x')})"
    )
    final = f"        self.final_norm = nn.LayerNorm({width})\n" if first else ""
    read = "self.final_norm(x)" if first else "x"
    read = f"{read}.mean(1)" if goes.answers == 1 else f"{read}[:, -{goes.answers}:]"
    return f"""class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.key, self.value, self.output = (nn.Linear({width}, {width}) for _ in range(4))

    def forward(self, x):
        q, k, v = (part(x).unflatten(2, ({heads}, -1)).transpose(1, 2) for part in (self.query, self.key, self.value))
        return self.output(F.scaled_dot_product_attention(q, k, v{causal}).transpose(1, 2).flatten(2))


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
            x = {_run(plan, "block", "x")}
        return self.head({read})
"""


CLASSES: dict[str, Callable[[Plan], str]] = {
    "mlp": mlp,
    "rnn": recurrent,
    "lstm": recurrent,
    "gru": recurrent,
    "cnn": cnn,
    "transformer": transformer,
    "gan": gan,
    "policy": mlp,
}
