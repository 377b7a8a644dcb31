"""The loss scaling of a script: the kinds that it needs, and their lines around backward pass and step."""

from __future__ import annotations

from gradstudio.session.script.plan import Lines, Plan, literal

_DEFAULTS = {"init_scale": 65536.0, "growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": 2000}


def kinds(plan: Plan) -> set[str]:
    """Return every kind of scaling that is in force at some step: dynamic, static, none."""
    dtype, scaling = plan["precision.dtype"], plan["precision.scaling"]
    found = {scaling if dtype == "fp16" else "none"}
    for change in plan.timeline:
        dtype = change.value if change.knob == "precision.dtype" else dtype
        scaling = change.value if change.knob == "precision.scaling" else scaling
        found.add(scaling if dtype == "fp16" else "none")
    return {str(kind) for kind in found}


def rebuilt(plan: Plan) -> bool:
    """Return whether the scaler is made anew during the run."""
    return (plan.changes("precision.dtype") or plan.changes("precision.scaling")) and kinds(plan) != {"none"}


def dynamic(plan: Plan) -> bool:
    """Return whether the script has a GradScaler."""
    return "dynamic" in kinds(plan)


def _arguments(plan: Plan) -> str:
    """Return the arguments of a GradScaler that differ from torch's defaults."""
    values = {
        name: plan.text(f"precision.{name}")
        for name, value in _DEFAULTS.items()
        if plan.values(f"precision.{name}") != [value]
    }
    return "".join(f", {name}={value}" for name, value in values.items())


def _is(plan: Plan, kind: str) -> str:
    """Return a condition for this kind of scaling, made of the knobs that change during the run."""
    wanted = {"precision.dtype": "fp16", "precision.scaling": kind}
    return " and ".join(
        f"{plan.text(name)} == {literal(value)}" for name, value in wanted.items() if plan.changes(name)
    )


def function(plan: Plan, lines: Lines) -> None:
    """Add the function that makes the scaler anew, where the run does so."""
    if rebuilt(plan) and dynamic(plan):
        lines.add("def new_scaler():")
        lines.add('"""It does nothing while it is not enabled."""', 1)
        lines.add(f"return torch.amp.GradScaler(device.type{_arguments(plan)}, enabled={_is(plan, 'dynamic')})", 1)


def build(plan: Plan, lines: Lines) -> None:
    """Add the lines before the loop."""
    if dynamic(plan):
        lines.add(
            "scaler = new_scaler()"
            if rebuilt(plan)
            else f"scaler = torch.amp.GradScaler(device.type{_arguments(plan)})"
        )
    if "static" in kinds(plan):
        _set_scale(plan, lines, 0)


def apply_change(plan: Plan, lines: Lines) -> None:
    """Add the lines inside the loop over the timeline, after a value was set."""
    if rebuilt(plan) and dynamic(plan):
        lines.add('if name in ("precision_dtype", "precision_scaling"):', 3)
        lines.add("scaler = new_scaler()", 4)
    if rebuilt(plan) and "static" in kinds(plan):
        _set_scale(plan, lines, 3)
    if dynamic(plan) and plan.changes("precision.growth_interval"):
        lines.add('if name == "precision_growth_interval":', 3)
        lines.add("scaler.set_growth_interval(value)", 4)


def _set_scale(plan: Plan, lines: Lines, depth: int) -> None:
    condition = _is(plan, "static")
    rest = f" if {condition} else 1.0" if condition else "  # fixed, without any check"
    lines.add(
        f"scale = {literal(plan['precision.init_scale'])}{rest}",
        depth,
    )


def backward(plan: Plan, share: str) -> str:
    """Return the backward pass of a share of the loss."""
    if "static" in kinds(plan):
        share += " * scale"
    if dynamic(plan):
        return f"scaler.scale({share}).backward()"
    return f"{share}.backward()" if share == "loss" else f"({share}).backward()"


def unscales(plan: Plan) -> list[str]:
    """Return the lines that take the scale out of the gradients."""
    found = ["scaler.unscale_(optimizer)"] if dynamic(plan) else []
    return found + (
        [f"for parameter in {plan.parameters}:\n    parameter.grad.mul_(1 / scale)"] if "static" in kinds(plan) else []
    )


def divided(plan: Plan) -> str:
    """Return the divisor that takes the scale out of a norm."""
    return (" / scaler.get_scale()" if dynamic(plan) else "") + (" / scale" if "static" in kinds(plan) else "")
