"""The clipping of a script: torch's own function where torch has one."""

from __future__ import annotations

from gradstudio.session.script.plan import Lines, Plan, literal

_CALLS = {
    "norm": "nn.utils.clip_grad_norm_({parameters}, {max_norm})",
    "value": "nn.utils.clip_grad_value_({parameters}, {clip_value})",
    "per_tensor": "clip_per_tensor({max_norm})",
    "agc": "clip_adaptively({agc_factor})",
}
_FUNCTIONS = {
    "per_tensor": '''
def clip_per_tensor(max_norm):
    """Each tensor by itself."""
    for parameter in {parameters}:
        nn.utils.clip_grad_norm_(parameter, max_norm)
''',
    "agc": '''
def unit_norm(tensor):
    """Norm of each row of a weight; of a vector, one norm."""
    rows = tuple(range(1, tensor.ndim)) if tensor.ndim > 1 else None
    return torch.linalg.vector_norm(tensor, dim=rows, keepdim=True)


@torch.no_grad()
def clip_adaptively(factor):
    """Adaptive gradient clipping (Brock 2021): a unit's gradient is at most `factor` times its weights."""
    for name, parameter in {named}:
        if "head" not in name.split("."):
            largest = factor * unit_norm(parameter).clamp(min=1e-3)
            size = unit_norm(parameter.grad)
            parameter.grad.mul_(torch.where(size > largest, largest / size.clamp(min=1e-6), 1.0))
''',
}


def ever(plan: Plan) -> bool:
    return any(kind != "none" for kind in plan.values("clipping.kind"))


def functions(plan: Plan, lines: Lines) -> None:
    """Add the clipping rules that torch does not have, and the choice between several rules."""
    for kind, text in _FUNCTIONS.items():
        if plan.ever("clipping.kind", kind):
            lines.add(text.format(parameters=plan.parameters, named=plan.named_parameters) + "\n")
    if plan.changes("clipping.kind"):
        lines.add("\ndef clip():")
        for kind in plan.values("clipping.kind"):
            if kind != "none":
                lines.add(f"if {plan.text('clipping.kind')} == {literal(kind)}:", 1)
                lines.add(_call(plan, str(kind)), 2)
        lines.add("\n")


def call(plan: Plan) -> str:
    """Return the line that clips."""
    return "clip()" if plan.changes("clipping.kind") else _call(plan, str(plan["clipping.kind"]))


def _call(plan: Plan, kind: str) -> str:
    return _CALLS[kind].format(
        parameters=plan.parameters,
        **{name: plan.text(f"clipping.{name}") for name in ("max_norm", "clip_value", "agc_factor")},
    )
