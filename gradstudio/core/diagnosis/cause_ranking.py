"""The ranking of findings into causes and effects: one cause in place of the many findings of one fault.

A fault shows in several ways at once: bad initial weights lead to vanishing gradients, tiny updates and a stagnant
loss. The cause is identified by which finding can lead to which and, if two can lead to each other, by which came
first."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from gradstudio.core.diagnosis.finding import RANK, Finding, Severity
from gradstudio.core.diagnosis.rule_names import ORDER
from gradstudio.core.diagnosis.undefined_operations import is_born_in_loss, undefined_for
from gradstudio.core.history import LOOK_EVERY
from gradstudio.core.provenance import Provenance

# Rules that know their first step: they explain nothing that was found before it.
_EXACT = (
    "nan_on_a_rank", "ranks_apart", "clip_before_reduction",
    "accumulation_mismatch", "clip_on_scaled_gradients", "clip_without_effect", "loop_order", "fp16_overflow",
    "gradient_noise", "weight_decay_high", "momentum_high", "betas_crossed", "perturbation_large", "rate_raised",
    "clipping_always", "clip_overflow",
    "updates_after_spike", "exploding_gradient", "nonfinite_loss",
    "nonfinite_gradient", "nonfinite_weights", "loss_spike",
)  # fmt: skip
FIRST_UPDATE = "First update larger than the weights"  # title of update_ratio_high in that case
OF_A_SPIKE = "Updates too large, of gradients that spiked"  # the same if the gradient caused it
APART = "Right in training, useless on the test set"  # title of nothing_learned in that case
# Effects of large updates and gradients on units.
_UNITS = ("saturated_activation", "dead_units", "attention_collapse")
_OF_THE_LOOP = ("accumulation_mismatch", "clip_on_scaled_gradients", "clip_without_effect", "loop_order")
# Ranks do redundant work, have a slightly wrong gradient, or one of them leaves: nothing else causes this, and it
# causes no other finding.
_ALONE = ("ranks_alike", "reduced_too_often", "uneven_shares", "rank_ran_out", "harmless_loss", "spoiled_buffer",
    "spoiled_state", "singular_matrix", "statistics_of_validation",
)  # fmt: skip
# Facts about the loss and the loop that a watch observes: they explain slow learning, but no NaN.
_OF_THE_SCRIPT = (
    "activation_twice", "probabilities_for_logs", "shapes_broadcast", "targets_beyond", "out_of_reach",
    "label_is_blank", "labels_alike", "norm_of_one", "labels_not_signed", "constant_term",
    "evaluation_mode", "not_frozen", "norm_momentum",
    "nothing_moves", "schedule_off_beat", "large_inputs", "rounded_updates",
)  # fmt: skip
_LEARNS_LITTLE = (
    "vanishing_gradient", "signal_lost", "dead_units", "gradient_of_zero", "update_ratio_low", "loss_oscillating",
    "loss_at_rest", "loss_not_decreasing", "unused_layers",
)  # fmt: skip
_TOO_LARGE = ("exploding_gradient", "update_ratio_high", "loss_oscillating", "loss_spike")
# A short memory makes no gradient long, and shortens no step.
_NOT_OF_A_SHORT_MEMORY = (
    *_TOO_LARGE, "clipping_always", "clip_overflow", "nonfinite_loss", "nonfinite_gradient", "nonfinite_weights",
    "updates_after_spike",
)  # fmt: skip
# Notes that become the cause once their effect has occurred.
_CAUSES_WHERE_GRAVE = {
    **dict.fromkeys(("undivided_sum", "large_inputs"), _TOO_LARGE),
    "divisor_passes_0": (*_TOO_LARGE, "nonfinite_loss", "nonfinite_gradient"),
    "dropout_high": ("dead_units", "loss_at_rest", "loss_not_decreasing"),
    **dict.fromkeys(("large_targets", "large_scores"), (*_TOO_LARGE, "loss_not_decreasing")),
    "saturating_loss": ("vanishing_gradient", "update_ratio_low"),
}
_EXPLAINED_BY_THE_SCRIPT = {
    **dict.fromkeys(_OF_THE_SCRIPT, _LEARNS_LITTLE),
    **dict.fromkeys(
        ("targets_beyond", "large_inputs", "large_targets", "undivided_sum", "large_scores"),
        (*_LEARNS_LITTLE, *_TOO_LARGE, "large_scores"),
    ),
    "dropout_high": _CAUSES_WHERE_GRAVE["dropout_high"],
    **dict.fromkeys(
        ("divisor_passes_0", "loss_without_floor"),
        (*_TOO_LARGE, "nonfinite_loss", "nonfinite_gradient", "nonfinite_weights"),
    ),
}
# How the model is written, rather than what happened to it.
_EXPLAINED_BY_NOTHING = ("unused_layers",)
# They state no mechanism, so they rank behind an explosion.
_OF_THE_LOSS = ("loss_spike", "loss_oscillating", "loss_not_decreasing")
# They only say that a run does badly, and cause nothing.
_OF_THE_RUN = (
    "loss_at_rest", "loss_not_decreasing", "test_gap", "accuracy_lost", "nothing_learned", "test_loss_rises",
    "reward_lost",
)  # fmt: skip
_NOT_FINITE = ("nan_on_a_rank", "nonfinite_weights", "nonfinite_loss", "nonfinite_gradient")
_NEVER = math.inf


def rank_causes(findings: Iterable[Finding], provenance: Provenance | None = None) -> list[Finding]:
    """Return causes first, the most likely at the head, each with the worst severity among the findings that it
    explains and with their names; then the explained findings, and notes last. `provenance` is where the first NaN or
    Inf was born, if known."""
    by_rule = {finding.rule: finding for finding in findings if not _is_refuted(finding, provenance)}
    for note, effects in _CAUSES_WHERE_GRAVE.items():
        if note in by_rule and any(rule in by_rule and by_rule[rule].severity != "info" for rule in effects):
            by_rule[note] = replace(by_rule[note], severity="warning")
    place = _places(by_rule, provenance)
    first = _first_steps(list(by_rule.values()))
    grave = sorted(
        (finding for finding in by_rule.values() if finding.severity != "info"),
        key=lambda finding: (place[finding.rule], -RANK[finding.severity], finding.first_step, finding.rule),
    )
    notes = sorted(
        (finding for finding in by_rule.values() if finding.severity == "info"),
        key=lambda finding: (finding.first_step, place[finding.rule], finding.rule),
    )
    with_data = provenance is not None and _is_from_input(provenance)

    def explains(finding: Finding, other: Finding) -> bool:
        return (
            place[other.rule] > place[finding.rule]
            and finding.rule not in _ALONE
            and other.rule in _EXPLAINED_BY_THE_SCRIPT.get(finding.rule, (other.rule,))
            and other.rule in ORDER
            and other.rule not in _EXPLAINED_BY_NOTHING
            and not (finding.rule in _NOT_FINITE and other.rule == "poor_initialization")
            and not _was_over(other, finding)
            and not (finding.rule == "exploding_gradient" and _was_before(other.rule, finding.rule, first))
            and not (finding.rule == "vanishing_in_time" and other.rule in _NOT_OF_A_SHORT_MEMORY)
            and (finding.rule, other.rule) != ("clipping_always", "vanishing_in_time")
            and not (_in_evaluation(other) and not _in_evaluation(finding))
            and not (with_data and finding.rule not in _NOT_FINITE and other.rule in _NOT_FINITE)
        )

    return [*_with_effects(grave, explains), *notes]


def _with_effects(grave: list[Finding], explains: Callable[[Finding, Finding], bool]) -> list[Finding]:
    """Return the causes, each with the effects that it explains and that none before it does, and then the effects."""
    causes: list[Finding] = []
    symptoms: list[Finding] = []
    explained: set[str] = set()
    for finding in grave:
        if finding.rule in explained:
            symptoms.append(finding)
            continue
        follow = [other for other in grave if other.rule not in explained and explains(finding, other)]
        if follow:
            worst: Severity = max((finding.severity, *(other.severity for other in follow)), key=RANK.__getitem__)
            explained |= {other.rule for other in follow}
            finding = replace(finding, severity=worst, explains=tuple(other.rule for other in follow))
        causes.append(finding)
    return [*causes, *symptoms]


def _is_refuted(finding: Finding, provenance: Provenance | None) -> bool:
    """Return whether provenance contradicts a finding that says a value was too large for its number format: the first
    NaN or Inf was given to the model or the loss, or came from an operation undefined for its inputs."""
    if finding.rule != "fp16_overflow" or provenance is None:
        return False
    if provenance.phase == "update" and provenance.step <= finding.first_step:
        return True  # the weights contained it before the pass
    if provenance.step != finding.first_step:
        return False
    return _is_from_input(provenance) or provenance.was_given or undefined_for(provenance)


def _is_from_input(provenance: Provenance) -> bool:
    return provenance.phase == "data" or provenance.operation == "input"


def _was_over(other: Finding, finding: Finding) -> bool:
    """Return whether an event had ended before a finding began, so that it cannot be its cause. The first step of most
    rules is known only to within one look; a loss that was large before it was NaN is the same event."""
    exact = finding.rule in _NOT_FINITE and other.rule not in _OF_THE_LOSS
    return other.last_step + (0 if exact else LOOK_EVERY) < finding.first_step


def _in_evaluation(finding: Finding) -> bool:
    """Return whether a finding concerns evaluation only, in a model that does well in training: nothing that happens in
    training explains it."""
    return finding.rule == "test_gap" or finding.title == APART


def causes_only(findings: Iterable[Finding], provenance: Provenance | None = None) -> list[Finding]:
    """Return the ranked findings without the explained ones, which their causes name."""
    by_rule = rank_causes(findings, provenance)
    titles = {finding.rule: f"{finding.title} ({finding.when})" for finding in by_rule}
    symptoms = {rule for finding in by_rule for rule in finding.explains}
    return [_naming(finding, titles) for finding in by_rule if finding.rule not in symptoms]


def _naming(cause: Finding, titles: dict[str, str]) -> Finding:
    if not cause.explains:
        return cause
    return replace(cause, meaning=f"{cause.meaning} It explains: {'; '.join(titles[rule] for rule in cause.explains)}.")


def _places(findings: dict[str, Finding], provenance: Provenance | None) -> dict[str, int]:
    """Return the position of each finding among causes and effects: that of its rule in ORDER, unless the first steps
    contradict it. Rules of another version come last."""
    first = _first_steps([finding for finding in findings.values() if finding.severity != "info"])
    order: list[str] = list(ORDER)
    _place_the_size_of_a_step(order, first, findings)
    if _stopped_before_it_remembered(first):
        _move(order, ["vanishing_in_time"], before="entropy_collapse")  # right behind an explosion
    if _died_of_depth(first, findings):
        _move(order, ["dead_units"], before="signal_lost")  # right behind the vanishing gradient
    if _is_critical(findings.get("nonfinite_loss")):  # the same, before it lasted
        _move(order, ["harmless_loss"], before="spoiled_buffer")
    if provenance is not None and provenance.is_of_update and first.get("nonfinite_weights") == 0:
        _move(order, ["nonfinite_weights"], before="poor_initialization")  # no initial weights fix that
    if provenance is not None and (is_born_in_loss(provenance) or _is_from_input(provenance)):
        made = [rule for rule in _NOT_FINITE if _is_critical(findings.get(rule))]
        _move(order, made, before=order[0])
        born = min((first[rule] for rule in made), default=-1)
        _move(order, [rule for rule in _OF_THE_LOOP if first.get(rule, _NEVER) < born], before=order[0])
    for event in _EXACT:
        if event in first:
            _move(order, _effects_begun_before(event, order, first), before=event)
    return {rule: order.index(rule) if rule in order else len(order) for rule in findings}


def _first_steps(findings: Sequence[Finding]) -> dict[str, int]:
    """Return the first step of each finding. Updates that are large because the gradient spiked are the first sign of
    an explosion, whichever threshold was crossed first."""
    first = {finding.rule: finding.first_step for finding in findings}
    if "exploding_gradient" in first and any(finding.title == OF_A_SPIKE for finding in findings):
        first["exploding_gradient"] = min(first["exploding_gradient"], first["update_ratio_high"])
    if "harmless_loss" in first and "nonfinite_loss" in first:  # it was already so before it lasted
        first["nonfinite_loss"] = min(first["nonfinite_loss"], first["harmless_loss"])
    return first


def _died_of_depth(first: dict[str, int], findings: dict[str, Finding]) -> bool:
    """Return whether the gradient vanished before units died; or at the same step, while the units of the first layer
    lived: a signal that no longer depends on the input leaves each later unit on or off for all examples alike."""
    vanished, died = (first.get(rule, _NEVER) for rule in ("vanishing_gradient", "dead_units"))
    if vanished == died < _NEVER:
        return findings["vanishing_gradient"].layers[0] not in findings["dead_units"].layers
    return vanished < died


def _stopped_before_it_remembered(first: dict[str, int]) -> bool:
    """Return whether too long or too short a step stopped a run, so that a memory that is short so far explains little:
    that of most recurrent networks is, before they have learned."""
    too_long = "exploding_gradient" in first or "update_ratio_high" in first
    return too_long or {"clipping_always", "update_ratio_low"} <= first.keys()


def _place_the_size_of_a_step(order: list[str], first: dict[str, int], findings: dict[str, Finding]) -> None:
    """Move large updates and an explosion before the units that they killed, and updates before a gradient that
    vanished long after them. Weights that the first update made large are what weight decay removes later."""
    units = min((first[rule] for rule in _UNITS if rule in first), default=_NEVER)
    vanishing = first.get("vanishing_gradient", _NEVER)
    updates, explosion = (first.get(rule, _NEVER) for rule in ("update_ratio_high", "exploding_gradient"))
    if updates < _NEVER and findings["update_ratio_high"].title == FIRST_UPDATE:
        decay = first.get("weight_decay_high", _NEVER)
        _move(order, ["update_ratio_high"], before="weight_decay_high" if updates < decay < _NEVER else _UNITS[0])
    elif explosion < units and explosion <= updates + LOOK_EVERY:  # the updates were large because the gradient was
        _move(order, ["update_ratio_high"], before="clipping_never")  # right behind the explosion
    elif updates < units < _NEVER:
        _move(order, ["update_ratio_high"], before=_UNITS[0])
    elif updates + LOOK_EVERY < vanishing < _NEVER:  # they cut off the first layers
        _move(order, ["update_ratio_high"], before="vanishing_gradient")
    broken = min(units, vanishing, first.get("signal_lost", _NEVER))
    if explosion < broken < _NEVER:  # none of these can have caused something that was there before it
        _move(order, ["exploding_gradient"], before=_UNITS[0])


def _effects_begun_before(event: str, order: list[str], first: dict[str, int]) -> list[str]:
    """Return the rules that ORDER lists as effects of an event although they began before it."""
    effects = order[order.index(event) + 1 :]
    return [
        rule
        for rule in effects
        if _was_before(rule, event, first)
        and rule not in _OF_THE_RUN
        and not (event == "exploding_gradient" and rule in (*_OF_THE_LOSS, "vanishing_in_time"))
    ]


def _was_before(rule: str, event: str, first: dict[str, int]) -> bool:
    both = {rule, event} <= set(_NOT_FINITE)  # rules that look at every row
    return first.get(rule, _NEVER) < first[event] - (0 if both else LOOK_EVERY)


def _move(order: list[str], rules: list[str], *, before: str) -> None:
    """Move rules, in the given order, to the position right before another."""
    for rule in rules:
        order.remove(rule)
        order.insert(order.index(before), rule)


def _is_critical(finding: Finding | None) -> bool:
    return finding is not None and finding.severity == "critical"
