"""The ranking of findings into causes and effects: one cause in place of the many findings of one fault.

A fault shows in several ways at once: bad initial weights lead to vanishing gradients, tiny updates and a loss that
stands still. The cause is told by what can lead to what, and where two can lead to each other, by which came first."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from gradstudio.core.diagnosis.finding import RANK, Finding, Severity

# From causes to effects: how the loop is written, what the number format can hold, how the weights were drawn, what
# became of the units, how large a step is, and only then what the loss does. A loss or gradient that is not finite is
# the end of most of these; where it is born in the loss itself, none of the others has fired.
ORDER = (
    "accumulation_mismatch", "clip_on_scaled_gradients", "clip_without_effect", "loop_order",
    "fp16_overflow", "scale_collapse", "fp16_underflow",
    "poor_initialization", "saturated_activation", "dead_units", "clipping_always", "vanishing_gradient",
    "update_ratio_high", "exploding_gradient",
    "clipping_never", "nonfinite_loss", "nonfinite_gradient",
    "update_ratio_low", "loss_spike", "loss_oscillating", "loss_not_decreasing",
)  # fmt: skip
CALM = 20  # steps after which an explosion is not due to the initial weights
_BROKEN_BY_IT = ("saturated_activation", "dead_units", "vanishing_gradient")
_PLACE = {rule: place for place, rule in enumerate(ORDER)}


def ordered(findings: Iterable[Finding]) -> list[Finding]:
    """Return causes first, the most likely at the head, each with the worst severity among the findings that it
    explains and with their names; then the explained findings, and notes last."""
    found = {finding.rule: finding for finding in findings}
    place = {rule: _place(finding, found) for rule, finding in found.items()}
    grave = sorted(
        (finding for finding in found.values() if finding.severity != "info"),
        key=lambda finding: (place[finding.rule], -RANK[finding.severity], finding.first_step, finding.rule),
    )
    notes = sorted(
        (finding for finding in found.values() if finding.severity == "info"),
        key=lambda finding: (finding.first_step, finding.rule),
    )
    causes: list[Finding] = []
    symptoms: list[Finding] = []
    explained: set[str] = set()
    for finding in grave:
        if finding.rule in explained:
            symptoms.append(finding)
            continue
        follow = [
            other
            for other in grave
            if other is not finding and other.rule not in explained and place[other.rule] > place[finding.rule]
        ]
        if follow:
            worst: Severity = max((finding.severity, *(other.severity for other in follow)), key=RANK.__getitem__)
            explained |= {other.rule for other in follow}
            finding = replace(finding, severity=worst, explains=tuple(other.rule for other in follow))
        causes.append(finding)
    return [*causes, *symptoms, *notes]


def folded(findings: Iterable[Finding]) -> list[Finding]:
    """Return the same without the explained findings, which their causes name."""
    found = ordered(findings)
    titles = {finding.rule: f"{finding.title} ({finding.when})" for finding in found}
    symptoms = {rule for finding in found for rule in finding.explains}
    return [_naming(finding, titles) for finding in found if finding.rule not in symptoms]


def _naming(cause: Finding, titles: dict[str, str]) -> Finding:
    if not cause.explains:
        return cause
    return replace(cause, meaning=f"{cause.meaning} It explains: {'; '.join(titles[rule] for rule in cause.explains)}.")


def _place(finding: Finding, found: dict[str, Finding]) -> float:
    place = float(_PLACE.get(finding.rule, len(ORDER)))
    saturated = found.get("saturated_activation")
    if (
        finding.rule == "update_ratio_high"
        and saturated
        and saturated.severity != "info"
        and finding.first_step < saturated.first_step
    ):
        return _PLACE["saturated_activation"] - 0.5  # the updates saturated it
    vanishing = found.get("vanishing_gradient")
    if (
        finding.rule == "dead_units"
        and vanishing
        and vanishing.severity != "info"
        and vanishing.first_step < finding.first_step
    ):
        return _PLACE["vanishing_gradient"] + 0.5
    if finding.rule == "update_ratio_high" and finding.first_step == 0:
        return _PLACE["saturated_activation"] - 0.25  # units die of a first update that is larger than the weights
    exploding = found.get("exploding_gradient")
    if exploding is None or exploding.severity == "info":
        return place
    if finding.rule == "update_ratio_high":
        return _PLACE["exploding_gradient"] + 0.5  # the updates were large because the gradient was
    if finding is exploding and finding.first_step >= CALM:
        broke = [found[rule].first_step for rule in _BROKEN_BY_IT if rule in found and found[rule].severity != "info"]
        if not broke or finding.first_step < min(broke):
            return _PLACE[_BROKEN_BY_IT[0]] - 0.5  # it began in a run that did well until then
    return place
