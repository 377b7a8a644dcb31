"""muP in a script: what differs from the standard parametrization, where model.parametrization asks for it."""

from __future__ import annotations

from gradstudio.core.experiment import WITH_MUP
from gradstudio.session.script.layer_lines import is_own_rnn
from gradstudio.session.script.plan import Lines, Plan

_READS_INPUTS = {
    "transformer": "embedding.weight", "rnn": "weight_ih_l0", "lstm": "weight_ih_l0", "gru": "weight_ih_l0",
}  # fmt: skip


def of_width(plan: Plan) -> bool:
    """Return whether the width changes the parametrization."""
    other = plan["model.width"] != plan["model.base_width"]
    return plan["model.parametrization"] == "mup" and plan["model.kind"] in WITH_MUP and other and not plan.own


def function(plan: Plan, lines: Lines) -> None:
    """Add the function for the learning rate of a weight."""
    if not of_width(plan):
        return
    base, width = plan["model.base_width"], plan["model.width"]
    first = "rnn.0.weight_ih" if is_own_rnn(plan) else _READS_INPUTS.get(str(plan["model.kind"]), "hidden.0.weight")
    wide, narrow = f"{base} / {width}", "1.0"
    if plan["optimizer.kind"] == "sgd":
        wide, narrow = "1.0", f"1 / ({base} / {width})"
    lines.add(f'''def rate_factor(name, parameter):
    """muP (Yang 2021, table 3): on the learning rate, which is meant for a width of {base}."""
    if parameter.ndim > 1 and name.startswith("head."):
        return {base} / {width}
    return {wide} if parameter.ndim > 1 and "{first}" not in name else {narrow}''')


def draw(plan: Plan, lines: Lines) -> None:
    """Add the lines that shrink the head's weights, after they were drawn."""
    if of_width(plan):
        lines.add("with torch.no_grad():  # muP: the variance of the head's weights is 1 / n_in^2")
        lines.add(f"model.head.weight.mul_(({plan['model.base_width']} / {plan['model.width']}) ** 0.5)", 1)


def shrunk_query(plan: Plan) -> str:
    """Return the line in an attention that makes its logits query . key / width of a head; "" without muP."""
    if not of_width(plan):
        return ""
    return f"        q = q * ({plan['model.base_width']} / {plan['model.width']}) ** 0.5  # muP: attention over 1 / d\n"


def set_rates(plan: Plan, lines: Lines, factor: str = "") -> None:
    """Add the lines that give each weight its own learning rate, under muP, in a step."""
    lines.add("for group, (name, parameter) in zip(optimizer.param_groups, model.named_parameters()):", 1)
    lines.add(f'group["lr"] = {plan.text("optimizer.lr")} * rate_factor(name, parameter){factor}', 2)
