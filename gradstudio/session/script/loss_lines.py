"""The loss of a script: torch's own, or an unstable one written by hand."""

from __future__ import annotations

from gradstudio.session.script import class_weight_lines
from gradstudio.session.script.plan import Lines, Plan

GOALS = {"adding": "value", "ring": "points", "pole": "reward"}  # all others: classes
SEVERAL_ANSWERS = ("copy", "characters")

_ONE_HOT = "F.one_hot(targets, {like}.shape[-1]).float()"
_BODIES = {
    "naive_log": '''    """Binary cross-entropy of a sigmoid for each class, written by hand."""
    p, t = torch.sigmoid(outputs), {targets}
    return -(t * torch.log({p_eps}) + (1 - t) * torch.log(1 - {p_eps})).mean()''',
    "naive_division": '''    """Squared error relative to the prediction, which relu can make 0."""
    p, t = torch.relu(outputs), {targets}
    return (((t - p) / {p_eps_in}) ** 2).mean()''',
    "naive_sqrt": '''    """Triplets. At distance 0 the root has no slope."""
    squares = (outputs.unsqueeze(1) - outputs).square().sum(2)
    alike = targets.unsqueeze(1) == targets
    farthest = torch.sqrt((squares * alike).amax(1){eps})
    nearest = torch.sqrt(squares.masked_fill(alike, math.inf).amin(1){eps})
    return torch.relu(1.0 + farthest - nearest).mean()''',
    "naive_exp": '''    """Cross-entropy of a softmax written by hand: exp overflows above 88."""
    e = torch.exp(outputs)
    p = e / {sum_eps}
    return -({targets} * torch.log({p_eps})).sum(-1).mean()''',
    "naive_variance": '''    """Gaussian likelihood with a variance of 1 plus an output: nothing keeps it above 0."""
    mean, output = outputs.chunk(2, -1)
    variance = 1 + output
{clamp}    return 0.5 * (torch.log(variance) + ({targets} - mean) ** 2 / variance).mean()''',
    "points": '''    """Least squares: the discriminator wants 1 for real points and 0 for drawn ones."""
    real, drawn, fooled = outputs[:, 0], outputs[:, 1], outputs[:, 2]
    return ((real - 1) ** 2).mean() + (drawn**2).mean() + ((fooled - 1) ** 2).mean()''',
    "reward": '''    """REINFORCE: actions that were followed by more reward become more likely."""
    action, worth, lasted = targets.unbind(-1)
    taken = torch.log_softmax(outputs, -1).gather(-1, action.long().unsqueeze(-1)).squeeze(-1)
    return -(taken * worth * lasted).sum(1).mean()''',
}


def kind(plan: Plan) -> str:
    """Return the name of the loss: a naive one, or the goal of the task."""
    return GOALS.get(str(plan["problem.task"]), "classes") if plan["loss.kind"] == "auto" else str(plan["loss.kind"])


def function(plan: Plan, lines: Lines) -> None:
    """Add the function of the loss, where it is more than a call of torch."""
    body = _BODIES.get(kind(plan))
    if body is None:
        return
    eps = plan.text("loss.eps")
    some = plan.values("loss.eps") != [0.0]
    value = plan["problem.task"] == "adding"
    clamp = "" if not some else f"    variance = variance.clamp(min={eps})\n"
    if plan.changes("loss.eps"):
        clamp = f"    if {eps} > 0:\n        variance = variance.clamp(min={eps})\n"
    like = "mean" if kind(plan) == "naive_variance" else "outputs"
    lines.add("def loss_function(outputs, targets):\n" + body.format(
        targets="targets" if value else _ONE_HOT.format(like=like),
        eps=f" + {eps}" if some else "",
        p_eps=f"p + {eps}" if some else "p",
        p_eps_in=f"(p + {eps})" if some else "p",
        sum_eps=f"(e.sum(-1, keepdim=True) + {eps})" if some else "e.sum(-1, keepdim=True)",
        clamp=clamp,
    ) + "\n\n")  # fmt: skip


def call(plan: Plan, outputs: str) -> str:
    """Return an expression for the loss of a micro-batch."""
    factor = plan.text("loss.z_loss")
    if not reads_outputs_twice(plan):
        return _call(plan, outputs)
    added = f"{factor} * torch.logsumexp({outputs}, -1).square().mean()"
    if plan.ever("loss.z_loss", 0.0):
        added = f"({added} if {factor} > 0 else 0.0)"
    return f"({_call(plan, outputs)} + {added})"


def reads_outputs_twice(plan: Plan) -> bool:
    """Return whether a z-loss is added to the loss."""
    return plan.above("loss.z_loss", 0) and plan.experiment.applies("loss.z_loss")


def _call(plan: Plan, outputs: str) -> str:
    if kind(plan) == "value":
        return f"F.mse_loss({outputs}, targets)"
    if kind(plan) != "classes":
        return f"loss_function({outputs}, targets)"
    if plan["problem.task"] in SEVERAL_ANSWERS:
        return f"F.cross_entropy({outputs}.flatten(0, -2), targets.flatten())"
    weight = ", weight=class_weights" if class_weight_lines.ever(plan) else ""
    return f"F.cross_entropy({outputs}, targets{weight})"
