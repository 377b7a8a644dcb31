"""The class weights of a script, and what each micro-batch counts where its examples have other weights."""

from __future__ import annotations

from gradstudio.session.script.mistake_lines import always, mark, right
from gradstudio.session.script.plan import Lines, Plan

_MISTAKE = "normalize_each_micro_batch"
_SHARES = '''def shares_of(micro_batches):
    """Return the part of each micro-batch in the weight of all examples, times the number of micro-batches."""
    sums = torch.stack([class_weights[targets].sum() for _, targets in micro_batches])
    return sums * (len(sums) / sums.sum())


'''


def ever(plan: Plan) -> bool:
    """Return whether the classes have weights."""
    return plan["loss.class_weights"] == "balanced" and plan.experiment.applies("loss.class_weights")


def data(plan: Plan, lines: Lines, classes: int) -> None:
    """Add the weights of the classes, which are counted in the training set."""
    if ever(plan):
        lines.add(f"counts = torch.bincount(all_targets, minlength={classes}).clamp(min=1)")
        lines.add(f"class_weights = len(all_targets) / ({classes} * counts)  # all classes count the same")


def shared(plan: Plan, *, climbs: bool) -> bool:
    """Return whether the loss of a micro-batch is ever multiplied by its share. `climbs`: a step has first passes of
    sharpness-aware minimization, in which there is no mistake."""
    several = plan.above("accumulation.steps", 1)
    return ever(plan) and several and (climbs or not always(plan, _MISTAKE))


def function(plan: Plan, lines: Lines, *, climbs: bool) -> None:
    """Add the function that says what each micro-batch counts."""
    if shared(plan, climbs=climbs):
        lines.add(_SHARES)


def draw(plan: Plan, lines: Lines, *, climbs: bool) -> None:
    """Add the lines that find what each micro-batch of a step counts, for which all of them have to be there."""
    if not shared(plan, climbs=climbs):
        return
    if not climbs:
        lines.add(f"micro_batches = [next(batches) for _ in range({plan.text('accumulation.steps')})]", 1)
    lines.add("shares = shares_of(micro_batches)", 1)


def weigh(plan: Plan, lines: Lines, depth: int, *, climbs: bool, first: bool = False) -> None:
    """Add the line that lets each example count by its weight in the whole step; always in the `first` passes."""
    if not ever(plan) or not plan.above("accumulation.steps", 1):
        return
    if not first and plan.ever(f"mistakes.{_MISTAKE}", True):
        mark(plan, lines, _MISTAKE, "each loss is divided by the weight of its own examples alone", depth)
    if first:
        lines.add("loss = loss * shares[index]", depth)
    elif shared(plan, climbs=climbs):
        weighed = "loss = loss * shares[index]  # sum(w l) / sum(w) over all micro-batches"
        right(plan, lines, (_MISTAKE,), weighed, depth)
