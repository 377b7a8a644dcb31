"""Which of a finding's remedies fit the values in force: one that is in force already, or that cannot act, is none."""

from __future__ import annotations

from dataclasses import replace

from gradstudio.core.experiment import Experiment, parse_assignment
from gradstudio.core.rules import Finding

# Against a NaN that a loss written by hand makes itself, before there is a gradient to clip.
_OF_THE_LOSS: dict[str, tuple[str, ...]] = {
    "naive_log": ("loss.eps=1e-7", "loss.kind=auto"),
    "naive_division": ("loss.eps=0.1", "loss.kind=auto"),
    "naive_sqrt": ("loss.eps=1e-7", "loss.kind=auto"),
    "naive_exp": (
        "loss.kind=auto",
        "loss.kind=auto clipping.kind=norm",
        "clipping.kind=norm",
    ),  # large weights overflow it too, and those clipping keeps down
    "naive_variance": ("loss.eps=0.01", "loss.kind=auto"),
}


# Where a rate has to be named that nothing was measured for: torch's own default for Adam and RMSprop, as they are used with small nets.
_USUAL_RATE = {"sgd": 0.1, "adam": 0.001, "adamw": 0.001, "rmsprop": 0.001}


def fitting(finding: Finding, knobs: Experiment) -> Finding:
    """The finding with the remedies that fit."""
    fit = tuple(remedy for remedy in _offered(finding, knobs) if _fits(remedy, knobs))
    return finding if fit == finding.remedies else replace(finding, remedies=fit)


def _offered(finding: Finding, knobs: Experiment) -> tuple[str, ...]:
    """What a rule offers, with what only the values in force can tell."""
    remedies, grave = finding.remedies, finding.severity != "info"
    match finding.rule:
        case "nonfinite_loss" | "nonfinite_gradient":
            return _OF_THE_LOSS.get(knobs.loss.kind, remedies)
        case "update_ratio_low" | "loss_not_decreasing":
            rate = _USUAL_RATE[knobs.optimizer.kind] * (1 - min(knobs.optimizer.momentum, 0.9) if knobs.optimizer.kind == "sgd" else 1)
            return (*remedies, f"optimizer.lr={rate:.2g}") if knobs.optimizer.lr < rate else remedies
        case "fp16_underflow" if knobs.loss.weight < 1:
            return (*remedies[:1], *(f"{remedy} loss.weight=1" for remedy in remedies[:1]), *remedies[1:])
        case "vanishing_gradient" | "update_ratio_high" if knobs.model.kind == "transformer" and grave:
            return "model.norm_position=pre", f"schedule.warmup_steps={max(knobs.run.steps // 2, 1)}", *remedies
        case "exploding_gradient" | "dead_units" if knobs.optimizer.kind != "sgd" and grave:  # Adam and its relatives undo most of what clipping does
            return tuple(sorted(remedies, key=lambda remedy: not remedy.startswith("optimizer.lr")))
    return remedies


def _fits(remedy: str, knobs: Experiment) -> bool:
    """Whether a remedy, `knob=value` once or several times, changes anything and all of it can act."""
    assignments = [parse_assignment(part) for part in remedy.split()]
    if all(knobs[name] == value for name, value in assignments):
        return False
    if any(name.startswith("precision.") for name, _ in assignments) and knobs.precision.dtype != "fp16":
        return False  # the range of the other formats needs no help
    return all(knobs.applies(name) for name, _ in assignments)
