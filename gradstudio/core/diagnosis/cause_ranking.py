"""The ranking of findings into causes and effects: one cause in place of the many findings of one fault.

A fault shows in several ways at once: bad initial weights lead to vanishing gradients, tiny updates and a loss that
stands still. The cause is told by what can lead to what, and where two can lead to each other, by which came first."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from gradstudio.core.diagnosis.finding import RANK, Finding, Severity
from gradstudio.core.history import LOOK_EVERY
from gradstudio.core.provenance import Provenance

# From causes to effects: how the loop is written, what the number format can hold, how the weights were drawn, what
# became of the units, how large a step is, and only then what the loss does. A loss or gradient that is not finite is
# the end of most of these; where it is born in the loss itself, none of the others has fired.
ORDER = (
    "accumulation_mismatch", "clip_on_scaled_gradients", "clip_without_effect", "loop_order",
    "fp16_overflow", "scale_collapse", "fp16_underflow",
    "poor_initialization", "saturated_activation", "dead_units", "clipping_always", "vanishing_gradient",
    "signal_lost",
    "update_ratio_high", "exploding_gradient",
    "clipping_never", "nonfinite_loss", "nonfinite_gradient",
    "update_ratio_low", "loss_spike", "loss_oscillating", "loss_not_decreasing", "nothing_learned",
)  # fmt: skip
# Rules that know their first step: they explain nothing that was found before it.
_EXACT = (
    "accumulation_mismatch", "clip_on_scaled_gradients", "clip_without_effect", "loop_order", "fp16_overflow",
    "exploding_gradient", "nonfinite_loss", "nonfinite_gradient", "loss_spike",
)  # fmt: skip
_UNDEFINED = ("log", "div", "sqrt", "pow", "reciprocal", "norm", "cdist", "acos", "asin", "atanh")
FIRST_UPDATE = "First update larger than the weights"  # title of update_ratio_high where that was so
_BROKEN_BY_IT = ("saturated_activation", "dead_units", "vanishing_gradient")
_PLACE = {rule: place for place, rule in enumerate(ORDER)}


def ordered(findings: Iterable[Finding], provenance: Provenance | None = None) -> list[Finding]:
    """Return causes first, the most likely at the head, each with the worst severity among the findings that it
    explains and with their names; then the explained findings, and notes last. `provenance` is where the first NaN or
    Inf was born, if that is known."""
    found = {finding.rule: finding for finding in findings}
    place = _places(found, provenance)
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


def folded(findings: Iterable[Finding], provenance: Provenance | None = None) -> list[Finding]:
    """Return the same without the explained findings, which their causes name."""
    found = ordered(findings, provenance)
    titles = {finding.rule: f"{finding.title} ({finding.when})" for finding in found}
    symptoms = {rule for finding in found for rule in finding.explains}
    return [_naming(finding, titles) for finding in found if finding.rule not in symptoms]


def _naming(cause: Finding, titles: dict[str, str]) -> Finding:
    if not cause.explains:
        return cause
    return replace(cause, meaning=f"{cause.meaning} It explains: {'; '.join(titles[rule] for rule in cause.explains)}.")


def _places(found: dict[str, Finding], provenance: Provenance | None) -> dict[str, float]:
    """Return the place of each finding among causes and effects, the cause at the lowest."""
    place = {rule: _place(finding, found) for rule, finding in found.items()}
    if provenance is not None and born_in_loss(provenance):
        for rule in ("nonfinite_loss", "nonfinite_gradient"):
            if rule in place and found[rule].severity == "critical":
                place[rule] = -1.0
    for rule in _EXACT:
        event = found.get(rule)
        if event is not None and event.severity != "info":
            before = [
                other
                for other, finding in found.items()
                if finding.severity != "info"
                and place[other] > place[rule]
                and finding.first_step < event.first_step - LOOK_EVERY
            ]
            for other in before:
                place[other] = place[rule] - 0.01 + place[other] / 1e4  # it was there before: no effect of this
    return place


def born_in_loss(provenance: Provenance) -> bool:
    """Return whether the loss made the first NaN or Inf of finite values for which it is not defined: 0 / 0, the log of
    0 or less, a root at 0 or its derivative. A value that only grew too large is no such case."""
    born = provenance.chain[0] if provenance.chain else None
    if born is None or not born.produced or provenance.module or provenance.phase not in ("loss", "backward"):
        return False
    names = f"{born.name} {born.of}".lower()
    return any(part in names for part in _UNDEFINED)


def _place(finding: Finding, found: dict[str, Finding]) -> float:
    place = float(_PLACE.get(finding.rule, len(ORDER)))
    first = {rule: other.first_step for rule, other in found.items() if other.severity != "info"}
    never = math.inf
    match finding.rule:
        case "update_ratio_high":
            broke = min((first[rule] for rule in _BROKEN_BY_IT[:2] if rule in first), default=never)
            if finding.title == FIRST_UPDATE:
                return _PLACE[_BROKEN_BY_IT[0]] - 0.25  # units die of it
            exploded = first.get("exploding_gradient", never)
            if exploded < broke and exploded <= finding.first_step + LOOK_EVERY:
                return _PLACE["exploding_gradient"] + 0.5  # the updates were large because the gradient was
            if finding.first_step < broke < never:
                return _PLACE[_BROKEN_BY_IT[0]] - 0.5  # units saturate or die of updates
            if finding.first_step + LOOK_EVERY < first.get("vanishing_gradient", 0):
                return _PLACE["vanishing_gradient"] - 0.5  # they cut the first layers off
        case "dead_units" if first.get("vanishing_gradient", never) < finding.first_step:
            return _PLACE["vanishing_gradient"] + 0.5
        case "exploding_gradient" if finding.severity != "info":
            broke = [first[rule] for rule in _BROKEN_BY_IT if rule in first]
            if broke and finding.first_step < min(broke):
                return _PLACE[_BROKEN_BY_IT[0]] - 0.2  # units cannot have made what was there before they died
    return place
