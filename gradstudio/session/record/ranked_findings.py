"""The findings of a run as they are shown: causes first, each with the remedies that suit the knobs in force."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gradstudio.core.diagnosis import added_rules, cause_ranking
from gradstudio.core.diagnosis.birth_remedies import of_birth, of_update
from gradstudio.core.diagnosis.finding import Finding
from gradstudio.core.diagnosis.median import median
from gradstudio.core.diagnosis.offered_remedies import with_fitting_remedies
from gradstudio.core.diagnosis.remedies_as_code import OF_GRADIENTS, as_code
from gradstudio.core.diagnosis.script_faults import is_observed
from gradstudio.core.provenance import PHASES
from gradstudio.core.unknown import UNKNOWN
from gradstudio.session.record.own_steps import with_own_steps
from gradstudio.session.record.run import Run

_DIVIDE = ("adam", "adamw", "rmsprop")  # optimizers that divide by a root, plus eps
_BEFORE = 10  # steps before a NaN or Inf that show whether the gradient grew
_CALM = 10.0  # norm that none of them reached, so that clipping would have changed little
_GROWN = 2.0  # times their median, above which the last of them counts as growth


def ranked_findings(run: Run) -> list[Finding]:
    """Return the findings without those that others explain: causes, the most likely first, then notes."""
    return [
        as_shown(finding, run) for finding in cause_ranking.causes_only(list(run.findings.values()), run.provenance)
    ]


def in_order(run: Run) -> list[Finding]:
    """Return every finding: causes, the most likely first, then those that they explain, then notes."""
    return [
        as_shown(finding, run) for finding in cause_ranking.rank_causes(list(run.findings.values()), run.provenance)
    ]


def as_shown(finding: Finding, run: Run) -> Finding:
    """Return the finding as shown: with the matching remedies, and the script's own step numbers if they differ."""
    return with_own_steps(run, finding if is_observed(finding) else _fitting(finding, run))


def _fitting(finding: Finding, run: Run) -> Finding:
    """Return the finding with the matching remedies: knobs to set, or code to change in a watched script."""
    of_plugin = added_rules.lines_of(finding) if added_rules.is_added(finding.rule) else ()
    finding = added_rules.knobs_of(finding) if of_plugin else finding
    fitted = _with_birth(with_fitting_remedies(finding, run.in_force, run.provenance), run)
    if run.watched is None:
        return fitted
    optimizer = run.history.settings[-1][1].optimizer if run.history.settings else ""
    # the knobs of mistakes do not apply to a script, so their remedies do not count as set already
    loop = tuple(remedy for remedy in finding.remedies if remedy.startswith("mistakes."))
    scaled = run.experiment.precision.scaling == "dynamic"
    if run.watched.log:
        scaled &= run.experiment.precision.dtype == "fp16"
    facts = dict(run.watched.facts)
    variables = {name: facts[f"{name} variable"] for name in ("model", "optimizer") if f"{name} variable" in facts}
    called = variables.get("optimizer", "optimizer") if optimizer else ""
    lines = as_code((*loop, *_usable(fitted, run)), optimizer, scaled=scaled, variables=variables)
    if finding.rule.startswith(("nonfinite", "nan_on")) and run.provenance is not None:
        before = run.provenance.step - (0 if run.provenance.is_of_update else 1)
        gradient = run.history.value("clipped_norm", before) if 0 <= before < len(run.history) else UNKNOWN
        eps = run.in_force.optimizer.eps if optimizer in _DIVIDE else UNKNOWN
        of_its_birth = of_birth(run.provenance, gradient, called, eps)
        lines = lines if of_its_birth is None else of_its_birth
    elif finding.rule == "nonfinite_weights" and not lines:
        lines = of_update(called)
    elif not finding.remedies:
        lines = OF_GRADIENTS.get(finding.title, OF_GRADIENTS.get(finding.rule, lines))
    if run.watched.log:  # it is unknown what the script does already
        lines = tuple(line if line.startswith("`lr=") else f"{line}, unless it is there" for line in lines)
    return replace(fitted, remedies=(*lines, *of_plugin))


def _with_birth(finding: Finding, run: Run) -> Finding:
    """Return the finding that names the rank of a NaN together with its operation, if that was found in the same
    step."""
    birth = run.provenance
    if finding.rule != "nan_on_a_rank" or birth is None or birth.rank is None or birth.step != finding.first_step:
        return finding
    given = "came with what the model was given" if birth.operation == "input" else ""
    how = (
        "came with the data"
        if birth.is_from_input
        else given or f"was made in the {PHASES[birth.phase]}, in {birth.short_name}"
    )
    return replace(finding, evidence=f"{finding.evidence} On rank {birth.rank} it {how}: {birth.cause}.")


def _usable(finding: Finding, run: Run) -> tuple[str, ...]:
    """Return the remedies without those that make a step smaller, if no step was made before the first NaN or Inf, or
    if the gradients before it were calm, so that the overflow happened within one pass."""
    calm = finding.rule in ("nonfinite_loss", "nonfinite_gradient") and _were_calm(finding.first_step, run)
    if calm or (finding.rule.startswith("nonfinite") and run.first_nonfinite_step == 0):
        return tuple(remedy for remedy in finding.remedies if not remedy.startswith("clipping."))
    return finding.remedies


def _were_calm(step: int, run: Run) -> bool:
    """Return whether the gradient norms of the steps before this one were small and did not grow."""
    norms = run.history.column("grad_norm", max(step - _BEFORE, 0), step)
    norms = norms[np.isfinite(norms)]
    return len(norms) > 1 and norms.max() < _CALM and norms[-1] < _GROWN * median(norms)
