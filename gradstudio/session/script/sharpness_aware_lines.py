"""The first passes of a script's step under sharpness-aware minimization, and the way back from where they lead."""

from __future__ import annotations

from collections.abc import Callable

from gradstudio.session.script.mistake_lines import right
from gradstudio.session.script.plan import Lines, Plan

_RHO = "optimizer.sam_rho"


def ever(plan: Plan) -> bool:
    """Return whether the weights are moved at some step."""
    return plan.above(_RHO, 0)


def draw(plan: Plan, lines: Lines, make: Callable[[Lines, int], None], *, many: bool) -> None:
    """Add the lines that draw the micro-batches of a step, which both times take. `make` adds what draws one."""
    if not many:
        make(lines, 1)
        return
    lines.add("micro_batches, losses = [], []", 1)
    lines.add(f"for _ in range({plan.text('accumulation.steps')}):", 1)
    make(lines, 2)
    lines.add(f"micro_batches.append({_batch(plan)})", 2)


def climb(plan: Plan, lines: Lines, make: Callable[[Lines, int], None], *, many: bool, indexed: bool) -> None:
    """Add the first passes, and the lines that move the weights. `make` adds a forward and a backward pass, in which
    there is the `index` of the micro-batch where it is `indexed`."""
    lines.add("# Sharpness-aware minimization (Foret 2021): go to w + rho g / |g|, and take the gradient there", 1)
    depth = _if_on(plan, lines, 1)
    right(plan, lines, ("never_zero_grad",), plan.zero_grad, depth)
    if many:
        loop(plan, lines, depth, indexed=indexed)
    make(lines, depth + many)
    lines.add("losses.append(loss.detach())" if many else "told = loss.detach()", depth + many)
    lines.add(f"grad_norm = nn.utils.get_total_norm([parameter.grad for parameter in {plan.parameters}])", depth)
    lines.add(f"places = [*{plan.parameters}, *model.buffers()]", depth)
    lines.add("origin = [tensor.detach().clone() for tensor in places]", depth)
    lines.add("with torch.no_grad():", depth)
    lines.add(f"for parameter in {plan.parameters}:", depth + 1)
    lines.add(f"parameter.add_(parameter.grad * ({plan.text(_RHO)} / (grad_norm + 1e-12)))", depth + 2)
    if plan["precision.weights"] != "fp32":
        lines.add("parameter.copy_(parameter.bfloat16())", depth + 2)


def loop(plan: Plan, lines: Lines, depth: int, *, indexed: bool) -> None:
    """Add the head of a loop over the micro-batches that were drawn."""
    batch = _batch(plan, bare=not indexed)
    found = f"index, {batch} in enumerate(micro_batches)" if indexed else f"{batch} in micro_batches"
    lines.add(f"for {found}:", depth)


def note_loss(plan: Plan, lines: Lines, depth: int, *, many: bool) -> None:
    """Add the lines that keep the loss of a pass of a step that moves nothing."""
    if not plan.ever(_RHO, 0.0):
        return
    lines.add(f"if {plan.text(_RHO)} == 0:", depth)
    lines.add("losses.append(loss.detach())" if many else "told = loss.detach()", depth + 1)


def come_back(plan: Plan, lines: Lines) -> None:
    """Add the lines that bring the weights back, and what the passes changed beside them."""
    depth = _if_on(plan, lines, 1)
    lines.add("with torch.no_grad():", depth)
    lines.add("for tensor, value in zip(places, origin):", depth + 1)
    lines.add("tensor.copy_(value)", depth + 2)


def _if_on(plan: Plan, lines: Lines, depth: int) -> int:
    """Add the condition that the weights are moved, where it changes. Return the depth in it."""
    if not plan.ever(_RHO, 0.0):
        return depth
    lines.add(f"if {plan.text(_RHO)} > 0:", depth)
    return depth + 1


def _batch(plan: Plan, *, bare: bool = False) -> str:
    """Return a micro-batch in an expression; `bare`: as the only target of a loop."""
    return "batch" if plan.own else "inputs, targets" if bare else "(inputs, targets)"
