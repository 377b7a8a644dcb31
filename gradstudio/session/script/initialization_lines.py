"""The initialization of a script: nothing for torch's default, otherwise one loop over the parameters."""

from __future__ import annotations

from gradstudio.core.experiment import LAYERED
from gradstudio.session.script import data_lines, parametrization_lines
from gradstudio.session.script.layer_lines import factor, has_layers, is_own_rnn, residual_sums
from gradstudio.session.script.plan import Lines, Plan, literal

_RECURRENT = ("rnn", "lstm", "gru")
# What names the weights whose sums go through model.activation; the gates of an LSTM or GRU have their own.
_ACTIVATED = {"rnn": '"weight_ih" in name', "transformer": '"expand" in name', "lstm": "", "gru": ""}
_OWN_GAINS = {
    "relu": "math.sqrt(2)",
    "leaky_relu": "math.sqrt(2)",
    "gelu": "math.sqrt(2)",
    "silu": "math.sqrt(2)",
    "tanh": "5 / 3",
}


def function(plan: Plan, lines: Lines) -> None:
    """Add the function that brings the sums of a weight to unit variance, for lsuv."""
    if _scaled(plan):
        gain = float(plan["model.init_gain"])
        lines.add(f'''def unit_variance(weight, sums):
    """Layer-sequential unit variance (Mishkin and Matas 2015): scale weights until outputs have deviation {gain:g}."""
    for _ in range(10):
        deviation = sums().std().item(){"" if gain == 1 else f" / {gain!r}"}
        if deviation == 0 or not math.isfinite(deviation) or abs(deviation - 1) <= 0.1:
            break
        weight.div_(deviation + 1e-8)''')


def draw(plan: Plan, lines: Lines) -> None:
    """Add the lines that draw the weights, after the model is built, on the CPU."""
    scheme, gain, bias = str(plan["model.init"]), float(plan["model.init_gain"]), float(plan["model.initial_bias"])
    if scheme == "default" and gain == 1 and bias == 0:
        _scale_branches(plan, lines)
        parametrization_lines.draw(plan, lines)
        return
    weight, biases = _weight(plan, scheme, gain), _biases(plan, scheme, bias)
    lines.add(f"with torch.no_grad():  # model.init = {scheme}")
    lines.add("for name, parameter in model.named_parameters():", 1)
    if _has_norms(plan) or _factors(plan):
        lines.add(f'if "norm" in name{_factors(plan)}:', 2)
        lines.add("continue", 3)
    if weight and biases:
        lines.add('if "bias" in name:', 2)
        lines.add(biases, 3)
        lines.add("else:", 2)
        lines.add(weight, 3)
    elif weight:
        lines.add('if "bias" not in name:', 2)
        lines.add(weight, 3)
    else:
        lines.add('if "bias" in name:', 2)
        lines.add(biases, 3)
    if _scaled(plan):
        lines.add(f"sample = {data_lines.sample(plan)}")
        lines.add("model.eval()")
        lines.add("with torch.no_grad():")
        if plan["model.kind"] in _RECURRENT:
            lines.add(_recurrent_sums(plan), 1)
        else:
            lines.add(_SUMS_OF_LAYERS if has_layers(plan) else _SUMS, 1)
        lines.add("model.train()")
    _scale_branches(plan, lines)
    parametrization_lines.draw(plan, lines)


def _factors(plan: Plan) -> str:
    """Return the condition that a parameter is the factor on a branch of a residual, behind another; "" without."""
    return ' or "factor" in name' if residual_sums(plan) and factor(plan) else ""


def _scale_branches(plan: Plan, lines: Lines) -> None:
    """Add the lines that scale what the branches of the residuals begin with, for deepnorm and fixup."""
    count, kind = residual_sums(plan), str(plan["model.residual_scaling"])
    if not count or kind not in ("deepnorm", "fixup"):
        return
    lines.add(f"with torch.no_grad():  # model.residual_scaling = {kind}")
    if kind == "fixup":
        bias = float(plan["model.initial_bias"])
        lines.add(
            f"""for block in model.blocks:
    block.attention.value.weight.mul_({count} ** -0.5)
    block.expand.weight.mul_({count} ** -0.5)
    for last in (block.attention.output, block.contract):
        last.weight.zero_()
        last.bias.{"zero_()" if bias == 0 else f"fill_({bias!r})"}
model.head.weight.zero_()
model.head.bias.zero_()""",
            1,
        )
        return
    match plan["model.kind"]:
        case "transformer":
            one = "block.attention.value, block.attention.output, block.expand, block.contract"
            lines.add(f"for layer in (each for block in model.blocks for each in ({one})):", 1)
        case "rnn":
            lines.add("for layer in model.rnn[1:]:", 1)
        case "gan":
            lines.add("for layer in (*model.generator.hidden[1:], *model.discriminator.hidden[1:]):", 1)
        case _:
            lines.add("for layer in model.hidden[1:]:", 1)
    weight = "weight_ih" if plan["model.kind"] == "rnn" else "weight"
    lines.add(f"layer.{weight}.mul_({4 * count} ** -0.25)", 2)


def _scaled(plan: Plan) -> bool:
    return plan["model.init"] == "lsuv" and plan["model.init_gain"] != 0


def _has_norms(plan: Plan) -> bool:
    return plan["model.kind"] == "transformer" or (plan["model.norm"] != "none" and plan["model.kind"] in LAYERED)


def _weight(plan: Plan, scheme: str, gain: float) -> str:
    """Return the lines that draw a weight called `parameter`."""
    activated = _ACTIVATED.get(str(plan["model.kind"]), '"hidden" in name')
    scaled = "" if gain == 1 else f"\nparameter.mul_({gain!r})"
    match scheme:
        case "default":
            return scaled.strip("\n")
        case "xavier":
            return f"nn.init.xavier_uniform_(parameter{'' if gain == 1 else f', {gain!r}'})"
        case "he":
            kind = f'"relu" if {activated} else "linear"' if activated else '"linear"'
            return f"nn.init.kaiming_normal_(parameter, nonlinearity={kind}){scaled}"
        case "orthogonal":
            own = _OWN_GAINS.get(str(plan["model.activation"])) if activated else None
            if own is None:
                return f"nn.init.orthogonal_(parameter, {gain!r})"
            return (
                f"nn.init.orthogonal_(parameter, {own if gain == 1 else f'{own} * {gain!r}'} if {activated} else "
                f"{gain!r})"
            )
        case "lsuv":
            if plan["model.kind"] in _RECURRENT and gain != 1:
                return f'nn.init.orthogonal_(parameter, {gain!r} if "weight_hh" in name else 1.0)'
            return "nn.init.orthogonal_(parameter)"
        case "zeros":
            return "parameter.zero_()"
        case _:
            return f"nn.init.normal_(parameter, std={0.02 * gain!r})"


def _biases(plan: Plan, scheme: str, bias: float) -> str:
    """Return the lines that set a bias called `parameter`."""
    lines = [] if scheme == "default" else ["parameter.zero_()"]
    if bias != 0:
        hidden = '"head" not in name' + (' and "bias_hh" not in name' if plan["model.kind"] in _RECURRENT else "")
        lines += [f"if {hidden}:", f"    parameter.add_({bias!r})"]
    return "\n".join(lines)


_SUMS = """for module in model.modules():
    if isinstance(module, (nn.Linear, nn.Conv2d)):
        seen = []
        hook = module.register_forward_hook(lambda module, inputs, output: seen.append(output))
        unit_variance(module.weight, lambda: (seen.clear(), model(sample), seen[0])[-1])
        hook.remove()"""
# A layer with a norm or residual gives more than its sums; they are what its base class makes of its inputs.
_SUMS_OF_LAYERS = """for module in model.modules():
    if isinstance(module, (nn.Linear, nn.Conv2d)):
        seen, base = [], nn.Conv2d if isinstance(module, nn.Conv2d) else nn.Linear
        hook = module.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
        unit_variance(module.weight, lambda: (seen.clear(), model(sample), base.forward(module, seen[0]))[-1])
        hook.remove()"""


def _recurrent_sums(plan: Plan) -> str:
    """Return the lines that scale the input weights of recurrent layers, by their sums of the states of the layer
    below."""
    kind = str(plan["model.kind"])
    head = "unit_variance(model.head.weight, lambda: model.head(state[:, -1]))"
    if is_own_rnn(plan):
        return f"""state = sample
for layer in model.rnn:
    unit_variance(layer.weight_ih, lambda: F.linear(state, layer.weight_ih))
    state = layer(state)
{head}"""
    nonlinearity = f"nonlinearity={literal(plan['model.activation'])}, " if kind == "rnn" else ""
    return f"""state = sample
for layer in range({plan["model.depth"]}):
    weight = getattr(model.{kind}, f"weight_ih_l{{layer}}")
    unit_variance(weight, lambda: F.linear(state, weight))
    alone = nn.{kind.upper()}(weight.shape[1], {plan["model.width"]}, {nonlinearity}batch_first=True, device="meta")
    for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
        setattr(alone, f"{{name}}_l0", getattr(model.{kind}, f"{{name}}_l{{layer}}"))
    state, _ = alone(state)
{head}"""
