"""The optimizer of a script, with its changes during the run."""

from __future__ import annotations

from gradstudio.session.script import parametrization_lines, schedule_lines
from gradstudio.session.script.plan import Lines, Plan

_NAMES = {"sgd": "SGD", "adam": "Adam", "adamw": "AdamW", "rmsprop": "RMSprop"}
_KNOBS = {"sgd": ("momentum",), "adam": ("betas", "eps"), "adamw": ("betas", "eps"), "rmsprop": ("momentum", "eps")}
_TORCH = {"momentum": "0.0", "betas": "(0.9, 0.999)", "eps": "1e-08", "weight_decay": "0.0"}  # torch's own defaults


def build(plan: Plan, lines: Lines) -> None:
    """Add the line that makes the optimizer."""
    kind = str(plan["optimizer.kind"])
    values = {name: _text(plan, name, start=True) for name in (*_KNOBS[kind], "weight_decay")}
    default = _TORCH | ({"weight_decay": "0.01"} if kind == "adamw" else {})
    given = "".join(f", {name}={value}" for name, value in values.items() if value != default[name])
    trained = plan.parameters
    if two_rates(plan):
        rate = f"{plan['optimizer.lr']!r} * {plan['optimizer.discriminator_factor']!r}"
        lines.add("players = [")
        lines.add('{"params": model.generator.parameters()},', 1)
        lines.add(f'{{"params": model.discriminator.parameters(), "lr": {rate}}},', 1)
        lines.add("]")
        trained = "players"
    if parametrization_lines.of_width(plan):
        lines.add("weights = [")
        lines.add(f'{{"params": [parameter], "lr": {plan["optimizer.lr"]!r} * rate_factor(name, parameter)}}', 1)
        lines.add("for name, parameter in model.named_parameters()", 1)
        lines.add("]")
        trained = "weights"
    lines.add(f"optimizer = torch.optim.{_NAMES[kind]}({trained}, lr={plan['optimizer.lr']!r}{given})")


def two_rates(plan: Plan) -> bool:
    """Return whether the discriminator of a gan has, at some step, another learning rate than the generator."""
    return plan["model.kind"] == "gan" and plan.values("optimizer.discriminator_factor") != [1.0]


def apply_changes(plan: Plan, lines: Lines) -> None:
    """Add the lines that bring changed knobs to the optimizer, at the start of a step."""
    kind = str(plan["optimizer.kind"])
    changing = [name for name in (*_KNOBS[kind], "weight_decay") if _changes(plan, name)]
    values = [f"{name}={_text(plan, name)}" for name in changing]
    rates = plan.changes("optimizer.lr") or (two_rates(plan) and plan.changes("optimizer.discriminator_factor"))
    rates = rates and not schedule_lines.scheduled(plan)
    if rates and parametrization_lines.of_width(plan):
        parametrization_lines.set_rates(plan, lines)
        rates = False
    if rates:
        values.insert(0, f"lr={plan.text('optimizer.lr')}")
    if values:
        lines.add("for group in optimizer.param_groups:", 1)
        lines.add(f"group.update({', '.join(values)})", 2)
    if rates and two_rates(plan):
        rate = f"{plan.text('optimizer.lr')} * {plan.text('optimizer.discriminator_factor')}"
        lines.add(f'optimizer.param_groups[1]["lr"] = {rate}', 1)
    if kind == "rmsprop" and "momentum" in changing and plan["optimizer.momentum"] == 0:
        lines.add(
            "for parameter, state in optimizer.state.items():  # RMSprop makes its momentum buffer at its first step "
            "or never",
            1,
        )
        lines.add('state.setdefault("momentum_buffer", torch.zeros_like(parameter))', 2)


def _changes(plan: Plan, name: str) -> bool:
    if name == "betas":
        return plan.changes("optimizer.beta1") or plan.changes("optimizer.beta2")
    return plan.changes(f"optimizer.{name}")


def _text(plan: Plan, name: str, *, start: bool = False) -> str:
    """Return the value in an expression; at the start, as a literal."""
    write = (lambda knob: repr(plan[knob])) if start else plan.text
    return (
        f"({write('optimizer.beta1')}, {write('optimizer.beta2')})" if name == "betas" else write(f"optimizer.{name}")
    )
