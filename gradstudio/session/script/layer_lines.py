"""The layers of a script's networks: activations, norms, residuals, checkpointing."""

from __future__ import annotations

from gradstudio.core.experiment import LAYERED
from gradstudio.session.script.model_shape import each_step, shape
from gradstudio.session.script.plan import Plan

ACTIVATIONS = {
    "tanh": "torch.tanh", "sigmoid": "torch.sigmoid", "relu": "torch.relu", "leaky_relu": "F.leaky_relu",
    "gelu": "F.gelu", "silu": "F.silu",
}  # fmt: skip


def run(plan: Plan, part: str, inputs: str) -> str:
    """Return part(inputs), inside checkpoint() where checkpointing is on."""
    return _checkpointed(plan, part, inputs) if checkpoints(plan) else f"{part}({inputs})"


def _checkpointed(plan: Plan, part: str, inputs: str, plain: str = "") -> str:
    call = f"checkpoint({part}, {inputs}, use_reentrant=False)"
    if plan["model.kind"] == "gan":  # a frozen player would be computed again when it is frozen no more
        call += f" if layer.weight.requires_grad else {plain or f'{part}({inputs})'}"
    return call


def checkpoints(plan: Plan) -> bool:
    """Return whether activations are checkpointed. Not in a policy with batch norm: a second pass would change its
    running statistics."""
    return bool(plan["model.checkpointing"]) and not (plan["model.kind"] == "policy" and plan["model.norm"] == "batch")


def has_layers(plan: Plan) -> bool:
    """Return whether hidden layers have a class of their own, for a norm or a residual."""
    return plan["model.kind"] in LAYERED and (plan["model.norm"] != "none" or bool(plan["model.residual"]))


def is_own_rnn(plan: Plan) -> bool:
    """Return whether nn.RNN cannot do what the knobs ask for."""
    return plan["model.kind"] == "rnn" and (plan["model.activation"] not in ("tanh", "relu") or has_layers(plan))


def activation(plan: Plan) -> str:
    return ACTIVATIONS[str(plan["model.activation"])]


def norm_momentum(plan: Plan) -> str:
    """Return the argument of a batch norm for model.norm_momentum; "" for torch's own 0.1."""
    momentum = float(plan["model.norm_momentum"])
    return "" if momentum == 0.1 else f", momentum={momentum!r}"


def answers(plan: Plan, state: str) -> str:
    """Return the head on the last states of a sequence network."""
    count = shape(plan).answers
    return f"self.head({state}[:, -1])" if count == 1 else f"self.head({state}[:, -{count}:])"


def unflatten(plan: Plan) -> str:
    """Return the reshaping behind a head that gives all answers in one row."""
    if each_step(plan):
        return ".unflatten(0, steps)"
    count = shape(plan).answers
    return "" if count == 1 else f".unflatten(1, ({count}, -1))"


def layer_class(plan: Plan, base: str, arguments: str, norms: dict[str, str]) -> str:
    """Return the class of a hidden layer with a norm, a residual or both; "" where neither is needed."""
    norm, residual, first = str(plan["model.norm"]), bool(plan["model.residual"]), plan["model.norm_position"] == "pre"
    if not has_layers(plan):
        return ""
    sums = "self.norm(super().forward(x))" if norm != "none" and first else "super().forward(x)"
    lines = [f"class Layer({base}):"]
    keeps = ["inputs", "residual"] if residual else ["inputs"]
    lines += [f"    def __init__(self, {', '.join(keeps)}):", f"        super().__init__({arguments})"]
    if norm != "none":
        lines.append(f"        self.norm = {norms[norm]}")
    if residual:
        lines.append("        self.residual = residual")
    if residual and factor(plan):
        lines += ["        if residual:", f"            self.factor = {factor(plan)}"]
    lines += ["", "    def forward(self, x):", f"        y = {activation(plan)}({sums})"]
    if residual:
        lines += ["        if self.residual:", f"            y = {residual_sum(plan, 'x', 'y')}"]
    lines.append("        return self.norm(y)" if norm != "none" and not first else "        return y")
    return "\n".join(lines) + "\n\n\n"


def factor(plan: Plan) -> str:
    """Return the learned factor on a branch, as it is made; "" where there is none."""
    makers = {"rezero": "nn.Parameter(torch.zeros(1))", "fixup": "nn.Parameter(torch.ones(1))"}
    return makers.get(str(plan["model.residual_scaling"]), "")


def residual_sum(plan: Plan, inputs: str, branch: str, factor: str = "self.factor") -> str:
    """Return the sum of what goes around a branch and what comes out of it."""
    match plan["model.residual_scaling"]:
        case "rezero" | "fixup":
            return f"{inputs} + {factor} * {branch}"
        case "deepnorm" if residual_sums(plan) > 1:
            return f"{branch} + {residual_sums(plan)} ** 0.25 * {inputs}"
    return f"{inputs} + {branch}"


def residual_sums(plan: Plan) -> int:
    """Return the number of residual sums between input and output of the network."""
    depth = int(plan["model.depth"])
    if plan["model.kind"] == "transformer":
        return 2 * depth
    return depth - 1 if plan["model.kind"] in LAYERED and plan["model.residual"] else 0


def stack(plan: Plan, bare: str, sizes: str) -> str:
    """Return a list of hidden layers; `sizes` are the numbers of their inputs."""
    if not has_layers(plan):
        return f"nn.ModuleList({bare} for size in {sizes})"
    if plan["model.residual"]:
        return f"nn.ModuleList(Layer(size, index > 0) for index, size in enumerate({sizes}))"
    return f"nn.ModuleList(Layer(size) for size in {sizes})"


def through(plan: Plan) -> str:
    """Return one hidden layer of a stack, applied to x."""
    if has_layers(plan):
        return run(plan, "layer", "x")
    if checkpoints(plan):
        return _checkpointed(
            plan, f"lambda x, layer=layer: {activation(plan)}(layer(x))", "x", f"{activation(plan)}(layer(x))"
        )
    return f"{activation(plan)}(layer(x))"


def sizes(first: int | str, plan: Plan) -> str:
    width, depth = plan["model.width"], int(plan["model.depth"])
    if depth == 1:
        return f"[{first}]"
    return f"[{first}, {width}]" if depth == 2 else f"[{first}] + [{width}] * {depth - 1}"
