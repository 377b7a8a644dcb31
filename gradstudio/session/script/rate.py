"""The learning rate in a script: torch's scheduler, or a function of the step where a person changed the rate itself."""

from __future__ import annotations

from gradstudio.session.script.plan import Lines, Plan, literal

_FALLS = {"constant": "1.0", "cosine": "0.5 * (1 + math.cos(math.pi * share))", "linear": "(1.0 - share)"}


def scheduled(plan: Plan) -> bool:
    """Whether the rate depends on the steps taken at all."""
    return plan.ever("schedule.kind", "cosine", "linear") or plan.above("schedule.warmup_steps", 1)


def live(plan: Plan) -> bool:
    """Whether a person changed what the scheduler would have to know from the start."""
    return any(plan.changes(name) for name in ("optimizer.lr", "schedule.kind", "schedule.warmup_steps", "schedule.total_steps"))


def function(plan: Plan, lines: Lines) -> None:
    """The factor on the rate."""
    if not scheduled(plan):
        return
    lines.add("def factor(taken):")
    lines.add('"""On the learning rate, after so many optimizer steps."""', 1)
    warmup = ""
    if plan.above("schedule.warmup_steps", 1):
        steps = plan.text("schedule.warmup_steps")
        lines.add(f"warmup = min(1.0, (taken + 1) / {f'max({steps}, 1)' if plan.ever('schedule.warmup_steps', 0) else steps})", 1)
        warmup = "warmup * "
    if plan.ever("schedule.kind", "cosine", "linear"):
        lines.add(f"share = min(1.0, taken / {plan.text('schedule.total_steps')})", 1)
    first, *others = (str(kind) for kind in plan.values("schedule.kind"))
    for kind in others:
        lines.add(f"if {plan.text('schedule.kind')} == {literal(kind)}:", 1)
        lines.add(f"return {_product(warmup, kind)}", 2)
    lines.add(f"return {_product(warmup, first)}", 1)


def build(plan: Plan, lines: Lines) -> None:
    """After the optimizer."""
    if scheduled(plan):
        lines.add("taken = 0  # optimizer steps" if live(plan) else "scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)")


def advance(plan: Plan) -> str:
    """The line after an optimizer step."""
    return "taken += 1" if live(plan) else "scheduler.step()"


def set_rate(plan: Plan, lines: Lines) -> None:
    """Before the optimizer step, where no scheduler does it."""
    if scheduled(plan) and live(plan):
        lines.add("for group in optimizer.param_groups:", 1)
        lines.add(f'group["lr"] = {plan.text("optimizer.lr")} * factor(taken)', 2)


def _product(warmup: str, kind: str) -> str:
    if kind == "constant":
        return warmup.removesuffix(" * ") or "1.0"
    return warmup + (f"({_FALLS[kind]})" if warmup and kind == "cosine" else _FALLS[kind])
