"""The learning rate of a script: torch's scheduler, or a function of the step where a live change needs one."""

from __future__ import annotations

from gradstudio.session.script import parametrization_lines
from gradstudio.session.script.plan import Lines, Plan, literal

_FALLS = {
    "constant": "1.0",
    "cosine": "0.5 * (1 + math.cos(math.pi * share))",
    "linear": "1.0 - share",
    "exponential": "0.01**share",
    "one_cycle": "one_cycle(share)",
}
_COURSES = tuple(kind for kind in _FALLS if kind != "constant")
_ONE_CYCLE = '''def one_cycle(share):
    """Up from 1/25 in the first 30 %, then down to 1/250,000 (Smith 2018), as torch's OneCycleLR does."""
    if share < 0.3:
        return 1 / 25 + (1 - 1 / 25) * 0.5 * (1 - math.cos(math.pi * share / 0.3))
    return 1 / 250_000 + (1 - 1 / 250_000) * 0.5 * (1 + math.cos(math.pi * (share - 0.3) / (1 - 0.3)))


'''


def scheduled(plan: Plan) -> bool:
    """Return whether the learning rate depends on the step."""
    return plan.ever("schedule.kind", *_COURSES) or plan.above("schedule.warmup_steps", 1)


def live(plan: Plan) -> bool:
    """Return whether a live change touches what the scheduler must know from the start."""
    return any(
        plan.changes(name)
        for name in (
            "optimizer.lr", "optimizer.discriminator_factor", "schedule.kind", "schedule.warmup_steps",
            "schedule.total_steps",
        )
    )  # fmt: skip


def function(plan: Plan, lines: Lines) -> None:
    """Add the function for the factor on the learning rate."""
    if not scheduled(plan):
        return
    if plan.ever("schedule.kind", "one_cycle"):
        lines.add(_ONE_CYCLE)
    lines.add("def factor(taken):")
    lines.add('"""On the learning rate, after so many optimizer steps."""', 1)
    falls = plan.ever("schedule.kind", *_COURSES)
    rises = plan.above("schedule.warmup_steps", 0 if falls else 1)
    steps = plan.text("schedule.warmup_steps")
    if rises:
        lines.add(f"if taken < {steps}:  # warmup", 1)
        lines.add(f"return (taken + 1) / {steps}", 2)
    if falls:
        lines.add(f"share = min(1.0, {_finished(plan, rises)})", 1)
    first, *others = (str(kind) for kind in plan.values("schedule.kind"))
    for kind in others:
        lines.add(f"if {plan.text('schedule.kind')} == {literal(kind)}:", 1)
        lines.add(f"return {_FALLS[kind]}", 2)
    lines.add(f"return {_FALLS[first]}", 1)


def _finished(plan: Plan, rises: bool) -> str:
    """Return the share of the fall that is over; the fall begins after the warmup."""
    steps, end = plan.text("schedule.warmup_steps"), plan.text("schedule.total_steps")
    if not rises:
        return f"taken / {end}"
    live = plan.changes("schedule.warmup_steps") or plan.changes("schedule.total_steps")
    return f"(taken - {steps}) / {f'max({end} - {steps}, 1)' if live else max(int(end) - int(steps), 1)}"


def build(plan: Plan, lines: Lines) -> None:
    """Add the scheduler, after the optimizer."""
    if scheduled(plan):
        lines.add(
            "taken = 0  # optimizer steps"
            if live(plan)
            else "scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)"
        )


def advance(plan: Plan) -> str:
    """Return the line after an optimizer step."""
    return "taken += 1" if live(plan) else "scheduler.step()"


def set_rate(plan: Plan, lines: Lines) -> None:
    """Add the lines that set the learning rate before the step, where no scheduler does."""
    if scheduled(plan) and live(plan) and parametrization_lines.of_width(plan):
        parametrization_lines.set_rates(plan, lines, " * factor(taken)")
    elif scheduled(plan) and live(plan):
        lines.add("for group in optimizer.param_groups:", 1)
        lines.add(f'group["lr"] = {plan.text("optimizer.lr")} * factor(taken)', 2)
        if plan["model.kind"] == "gan" and plan.values("optimizer.discriminator_factor") != [1.0]:
            rate = f"{plan.text('optimizer.lr')} * {plan.text('optimizer.discriminator_factor')}"
            lines.add(f'optimizer.param_groups[1]["lr"] = {rate} * factor(taken)', 1)
