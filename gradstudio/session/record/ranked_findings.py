"""The findings of a run as they are shown: causes first, each with the remedies that fit the knobs in force."""

from __future__ import annotations

from gradstudio.core.diagnosis import cause_ranking
from gradstudio.core.diagnosis.finding import Finding
from gradstudio.core.diagnosis.offered_remedies import fitting
from gradstudio.session.record.run import Run


def ranked(run: Run) -> list[Finding]:
    """Return the findings without the symptoms that others explain: causes, the most likely first, then notes."""
    return [
        fitting(finding, run.in_force, run.provenance)
        for finding in cause_ranking.folded(list(run.findings.values()), run.provenance)
    ]


def in_order(run: Run) -> list[Finding]:
    """Return every finding: causes, the most likely first, then their symptoms, then notes."""
    return [
        fitting(finding, run.in_force, run.provenance)
        for finding in cause_ranking.ordered(list(run.findings.values()), run.provenance)
    ]
