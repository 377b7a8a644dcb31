"""The rounding of a script's weights, where precision.weights asks for another format than fp32."""

from __future__ import annotations

from gradstudio.session.script.plan import Lines, Plan


def function(plan: Plan, lines: Lines) -> None:
    """Add the function that rounds stochastically."""
    if plan["precision.weights"] == "bf16_stochastic":
        lines.add('''def stochastic(weights, source):
    """Rounded to bfloat16, up with a chance that is the share of the way there (Gupta 2015)."""
    chance = torch.randint(0, 1 << 16, weights.shape, generator=source, dtype=torch.int32).to(device)
    bits = (weights.view(torch.int32) + chance) & -(1 << 16)
    return torch.where(weights.isfinite(), bits.view(torch.float32), weights)''')


def draw(plan: Plan, lines: Lines) -> None:
    """Add the lines that round the weights as they were drawn."""
    if plan["precision.weights"] != "fp32":
        _round(plan, lines, "parameter.bfloat16()", 0)


def keep(plan: Plan, lines: Lines) -> None:
    """Add the lines that round the weights after the update of a step."""
    if plan["precision.weights"] == "bf16_stochastic":
        lines.add("rounding = torch.Generator().manual_seed(seed + 7_000_003 + 1009 * step)", 1)
        _round(plan, lines, "stochastic(parameter, rounding)", 1)
    elif plan["precision.weights"] == "bf16":
        _round(plan, lines, "parameter.bfloat16()", 1)


def _round(plan: Plan, lines: Lines, rounded: str, depth: int) -> None:
    lines.add(f"with torch.no_grad():  # precision.weights = {plan['precision.weights']}", depth)
    lines.add(f"for parameter in {plan.parameters}:", depth + 1)
    lines.add(f"parameter.copy_({rounded})", depth + 2)
