"""The remedies offered for a finding, and their order. A rule (core/rules/) lists its remedies, best first. This file
adapts the list to the knobs in force: a remedy that is already in force, or that has no effect, is left out.
cause_ranking.py orders the findings."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from gradstudio.core.diagnosis.birth_remedies import GIVEN_NUMBER
from gradstudio.core.diagnosis.finding import Finding
from gradstudio.core.diagnosis.suggested_rate import CLEARLY
from gradstudio.core.diagnosis.undefined_operations import is_born_in_loss, undefined_for
from gradstudio.core.experiment import Experiment, parse_assignment
from gradstudio.core.provenance import Provenance

# Remedies for a NaN born in a hand-written loss, before there is a gradient to clip.
_OF_THE_LOSS: dict[str, tuple[str, ...]] = {
    "naive_log": ("loss.eps=1e-7", "loss.kind=auto"),
    "naive_division": ("loss.kind=auto", "loss.eps=0.5"),
    "naive_sqrt": ("loss.eps=1e-7", "loss.kind=auto"),
    "naive_exp": ("loss.kind=auto", "loss.kind=auto clipping.kind=norm"),  # where its large gradients came first
    "naive_variance": ("loss.kind=auto", "loss.eps=0.01"),
}


# Remedies for a NaN that came with a batch: every gradient before it is sound.
_OF_THE_DATA = ("problem.nan_every=0",)
# Remedies for a policy or a game that ends without having learned anything.
_AGAINST_GUESSING: dict[str, tuple[str, ...]] = {
    "pole": ("clipping.kind=norm", "optimizer.kind=adam optimizer.lr=0.01"),
    "ring": ("clipping.kind=norm",),
}
# Remedies for a policy that large steps made overconfident. A lower rate only delays that.
_OF_A_POLICY = ("clipping.kind=norm", "clipping.kind=per_tensor", "optimizer.kind=adam optimizer.lr=0.01")
# Remedies for twenty convolutions in a row; residuals or another initialization alone did not fix them in our tests.
_OF_DEEP_CONVOLUTIONS = (
    "model.norm=batch model.residual=true model.norm_position=post", "model.norm=batch model.norm_position=post",
    "model.norm=batch",
)  # fmt: skip
# Remedies for a game of two networks under momentum, which drives them apart at any rate (Gidel 2019).
_OF_THE_GAME = ("optimizer.momentum=0",)
_OF_ITS_STEPS = (
    "exploding_gradient", "update_ratio_high", "dead_units", "nothing_learned", "nonfinite_loss", "nonfinite_gradient",
    "loss_oscillating", "loss_not_decreasing", "vanishing_gradient",
)  # fmt: skip


_SEEN = 0.01  # loss weight x loss scale above which fp16 represents most of a gradient
# of Adam and similar optimizers: above the usual size of a gradient entry it determines the size of the update
_LARGE_EPS = 1e-4
_SMALL_INPUTS = 0.1  # factor on the inputs below which they may be what is lost
# The learning rate offered when nothing was measured: the usual one for small networks.
_USUAL_RATE = {
    "sgd": 0.1,
    "adam": 0.001,
    "adamw": 0.001,
    "rmsprop": 0.001,
    "lion": 0.0001,
    "muon": 0.02,
    "stable_adamw": 0.001,
    "schedule_free": 0.003,
}


def with_fitting_remedies(finding: Finding, knobs: Experiment, provenance: Provenance | None = None) -> Finding:
    """Return the finding with the remedies that apply. If the loss itself produced the first NaN from finite values, or
    the NaN came with the data, only the knobs of the loss or the data can prevent it, and other findings keep only
    their remedies for mistakes in the loop."""
    offered = _remedies_of_a_game(finding, knobs) or _remedies_for(finding, knobs)
    mended = tuple(remedy for remedy in offered if remedy.startswith("mistakes."))
    not_finite = finding.rule in ("nonfinite_loss", "nonfinite_gradient", "nan_on_a_rank")
    if provenance is not None and is_born_in_loss(provenance) and knobs.loss.kind != "auto":
        offered = _OF_THE_LOSS[knobs.loss.kind] if not_finite else mended
    if provenance is not None and provenance.phase == "data":
        offered = _OF_THE_DATA if not_finite else mended
    elif not_finite and provenance is not None and knobs.studio_file is not None and _never_grew(provenance):
        offered = tuple(remedy for remedy in offered if not remedy.startswith("clipping."))
    fit = _different(remedy for remedy in offered if _fits(remedy, knobs))
    return finding if fit == finding.remedies else replace(finding, remedies=fit)


def _never_grew(provenance: Provenance) -> bool:
    """Return whether smaller steps could not have protected a user's own model from its first NaN or Inf: it was in the
    input, or an operation is undefined for its inputs."""
    given = GIVEN_NUMBER in provenance.cause or not all(operation.is_birth for operation in provenance.chain[:1])
    return given or undefined_for(provenance)


def _remedies_of_a_game(finding: Finding, knobs: Experiment) -> tuple[str, ...]:
    """Return the remedies of a finding that the momentum of two networks against each other explains."""
    has_momentum = knobs.applies("optimizer.momentum") and knobs.optimizer.momentum > 0
    if knobs.model.kind != "gan" or not has_momentum or finding.severity == "info":
        return ()
    if finding.rule == "clipping_always":  # neither change alone fixed it in our tests
        return tuple(f"{remedy} clipping.kind=none" for remedy in _OF_THE_GAME)
    return _OF_THE_GAME if finding.rule in _OF_ITS_STEPS else ()


def _remedies_for(finding: Finding, knobs: Experiment) -> tuple[str, ...]:
    """Return the remedies of a finding, in the order in which they are offered for these knobs."""
    remedies, grave = finding.remedies, finding.severity != "info"
    warmup = f"schedule.warmup_steps={max(knobs.run.steps // 2, 1)}"
    match finding.rule:
        case "nonfinite_loss" | "nonfinite_gradient" if knobs.loss.kind in _OF_THE_LOSS:
            return _OF_THE_LOSS[knobs.loss.kind]
        case "nonfinite_weights" if knobs.optimizer.eps == 0 and knobs.applies("optimizer.eps"):
            return ("optimizer.eps=1e-8",)
        case "nonfinite_loss" if not finding.first_step:
            return (*_shrinking(knobs), *remedies)
        case "exploding_gradient" | "update_ratio_high" if not finding.first_step and grave and _is_scaled_up(knobs):
            return (*_shrinking(knobs), *remedies)
        case "update_ratio_low" | "loss_not_decreasing":
            return _larger_updates(remedies, knobs)
        case "saturated_activation" if knobs.model.init_gain > 1 and not knobs.applies("problem.scaling"):
            return ("model.init=xavier model.init_gain=1", *remedies)
        case "fp16_underflow" if knobs.loss.weight < 1:
            return _with_weight(remedies, knobs)
        case "vanishing_gradient" | "update_ratio_high" if knobs.model.kind == "transformer" and grave:
            rest = (remedy for remedy in remedies if remedy.startswith(("optimizer.", "clipping.")))
            return "model.norm_position=pre", warmup, *rest
        case "vanishing_in_time":
            return remedies[:1] if knobs.model.kind == "rnn" else remedies[1:]
        case "attention_collapse":
            return _for_attention(remedies, warmup, knobs)
        case "exploding_gradient" | "update_ratio_high" if knobs.model.kind == "policy" and grave:
            return _OF_A_POLICY
        case "update_ratio_high" if knobs.model.kind == "rnn" and knobs.optimizer.kind == "sgd" and grave:
            return _beginning_with("clipping.kind", remedies)
        case "signal_lost" | "nothing_learned" if grave and knobs.problem.input_scale < _SMALL_INPUTS:
            return "problem.input_scale=1", *remedies
        case "vanishing_gradient" | "signal_lost" if knobs.model.kind == "cnn":
            return _OF_DEEP_CONVOLUTIONS
        case "poor_initialization":
            return _other_initializations(remedies, knobs)
        case "update_ratio_high" | "exploding_gradient" | "dead_units" if knobs.optimizer.kind != "sgd" and grave:
            return _under_another_optimizer(finding, knobs)
        case "nothing_learned":
            return (*_AGAINST_GUESSING.get(knobs.problem.task, ()), *remedies)
    return remedies


def _for_attention(remedies: tuple[str, ...], warmup: str, knobs: Experiment) -> tuple[str, ...]:
    """Return remedies for a collapsed attention, with a warmup before those that change the model."""
    refused = knobs.optimizer.kind == "schedule_free" or 0 < knobs.clipping.qk_clip <= 10
    offered = [each for each in remedies if not (refused and each.startswith("clipping.qk_clip"))]
    if offered and not knobs.schedule.warmup_steps:
        of_model = next((place for place, each in enumerate(offered) if each.startswith("model.")), len(offered))
        offered.insert(of_model, warmup)
    return tuple(offered)


def _under_another_optimizer(finding: Finding, knobs: Experiment) -> tuple[str, ...]:
    """Return the remedies for large steps of Adam and similar optimizers, which undo most of the effect of clipping."""
    if finding.rule != "update_ratio_high":
        return _beginning_with("optimizer.lr", finding.remedies)
    if finding.remedies and "weight_decay" in finding.remedies[0]:
        return finding.remedies
    usual = _USUAL_RATE[knobs.optimizer.kind]
    return (*((f"optimizer.lr={usual:g}",) if usual < knobs.optimizer.lr / CLEARLY else ()), *finding.remedies)


def _other_initializations(remedies: tuple[str, ...], knobs: Experiment) -> tuple[str, ...]:
    """Return remedies for weights and biases that the signal or the gradient does not survive."""
    if abs(knobs.model.initial_bias) > 1:
        return *_shrinking(knobs), *remedies
    if knobs.model.kind == "cnn" and knobs.model.init_gain == 1 and knobs.model.init not in ("zeros", "normal"):
        return _OF_DEEP_CONVOLUTIONS  # each layer is drawn to its size
    if knobs.model.residual and knobs.applies("model.residual") and knobs.model.norm == "none":  # sums grow
        gain = 1 / math.sqrt(knobs.model.depth)
        return f"model.init=he model.init_gain={gain:.3g}", "model.init=lsuv model.init_gain=1", "model.norm=batch"
    return remedies


def _beginning_with(prefix: str, remedies: Iterable[str]) -> tuple[str, ...]:
    """Return the remedies, those with this prefix first."""
    return tuple(sorted(remedies, key=lambda remedy: not remedy.startswith(prefix)))


def _larger_updates(remedies: tuple[str, ...], knobs: Experiment) -> tuple[str, ...]:
    """Return remedies that enlarge updates that are too small."""
    if "schedule.kind=constant" in remedies and knobs.schedule.kind != "constant":
        return remedies[:1]  # the schedule lowers a higher rate too
    rate = _USUAL_RATE[knobs.optimizer.kind]
    if knobs.optimizer.kind == "sgd":
        rate *= 1 - min(knobs.optimizer.momentum, 0.9)
    first = ("optimizer.eps=1e-8",) if knobs.optimizer.eps > _LARGE_EPS else ()  # _fits drops it for SGD
    if knobs.precision.weights == "bf16":  # which loses small updates, and no other knob recovers them
        first = ("precision.weights=bf16_stochastic", *first)
    return (*first, *remedies, *((f"optimizer.lr={rate:.2g}",) if knobs.optimizer.lr < rate / CLEARLY else ()))


def _with_weight(remedies: tuple[str, ...], knobs: Experiment) -> tuple[str, ...]:
    """Return the remedies of an underflow, and those that also remove a small weight from the loss."""
    scaled, rest = remedies[:1], remedies[1:]
    weighed = tuple(f"{remedy} loss.weight=1" for remedy in scaled)
    # with a weight too small for the first loss scale, the scaler takes thousands of steps to compensate
    enough = knobs.loss.weight * knobs.precision.init_scale > _SEEN
    return (*scaled, *weighed, *rest) if enough else (*weighed, *scaled, *rest)


def _is_scaled_up(knobs: Experiment) -> bool:
    """Return whether a factor on the inputs or on the loss makes the gradients large."""
    return knobs.problem.input_scale > 1 or knobs.loss.weight > 1 or knobs.loss.z_loss > 1


def _shrinking(knobs: Experiment) -> tuple[str, ...]:
    """Return the combined remedies for values that were too large before the first update: each alone may not be
    enough."""
    large = (
        ("problem.input_scale=1", knobs.problem.input_scale > 1),
        ("model.init=he model.init_gain=1", knobs.model.init_gain > 1),
        ("model.initial_bias=0", abs(knobs.model.initial_bias) > 1),
        ("loss.weight=1", knobs.loss.weight > 1),
        ("loss.z_loss=0.0001", knobs.loss.z_loss > 1),
    )
    changes = " ".join(change for change, needed in large if needed)
    return (changes,) if changes else ()


def _different(remedies: Iterable[str]) -> tuple[str, ...]:
    """Return the remedies without learning rates close to an earlier one: 0.001 after 0.0011 adds nothing."""
    kept: list[str] = []
    rates: list[float] = []
    for remedy in remedies:
        if remedy.startswith("optimizer.lr=") and " " not in remedy:
            rate = float(remedy.partition("=")[2])
            if any(CLEARLY > rate / other > 1 / CLEARLY for other in rates):
                continue
            rates.append(rate)
        if remedy not in kept:
            kept.append(remedy)
    return tuple(kept)


def _fits(remedy: str, knobs: Experiment) -> bool:
    """Return whether a remedy, one or several `knob=value`, changes anything and all of it has an effect."""
    assignments = dict(parse_assignment(part) for part in remedy.split())
    if all(knobs[name] == value for name, value in assignments.items()):
        return False
    of_passes = any(name.startswith("precision.") and name != "precision.weights" for name in assignments)
    if of_passes and knobs.precision.dtype != "fp16":
        return False  # other formats have no underflow or overflow to fix
    return all(knobs.applies(name, assignments) for name in assignments)
