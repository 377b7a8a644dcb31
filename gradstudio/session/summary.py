"""What came of a run: its figures as one JSON object, and the exit code of the command that ran it."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from gradstudio.core.rules import Finding, causes
from gradstudio.core.rules.remedies import fitting
from gradstudio.session.investigation import as_json
from gradstudio.session.run import Run

FINISHED, FAILED, REFUSED, NONFINITE, CRITICAL, INTERRUPTED = 0, 1, 2, 3, 4, 130


@dataclass(frozen=True)
class Figures:
    """A run in figures. NaN and Inf stand as they were measured; None is what was not measured at all."""

    outcome: str
    steps: int
    first_nonfinite_step: int | None
    initial_loss: float | None
    final_loss: float | None
    best_loss: float | None
    accuracy: float | None
    peak_grad_norm: float | None
    clipped_share: float | None
    skipped_steps: int
    final_scale: float | None
    seconds: float


def figures(run: Run) -> Figures:
    """The figures of a run as far as it has come. best_loss and peak_grad_norm are the extremes of the finite values."""
    history, count = run.history, len(run.history)  # a run that still trains grows between two columns
    loss, norm = history.column("loss", 0, count), history.column("grad_norm", 0, count)
    clip_coef, scale = history.column("clip_coef", 0, count), history.column("scale", 0, count)
    return Figures(
        outcome=run.status if run.over else "stopped",
        steps=len(loss),
        first_nonfinite_step=run.first_nonfinite_step,
        initial_loss=float(loss[0]) if len(loss) else None,
        final_loss=float(loss[-1]) if len(loss) else None,
        best_loss=_extreme(np.min, loss),
        accuracy=run.accuracy,
        peak_grad_norm=_extreme(np.max, norm),
        clipped_share=float((clip_coef < 1).mean()) if len(clip_coef) else None,
        skipped_steps=int(history.column("skipped", 0, count).sum()),
        final_scale=float(scale[-1]) if len(scale) else None,
        seconds=run.seconds,
    )


def ranked(run: Run) -> list[Finding]:
    """The findings of a run: causes, the most likely first, without the symptoms that they explain, then notes; each with the remedies that
    fit."""
    return [fitting(finding, run.in_force) for finding in causes.folded(list(run.findings.values()))]


def summarize(run: Run) -> dict[str, Any]:
    """The run as one JSON object: NaN and Inf as the strings "nan", "inf", "-inf", what is missing as null."""
    findings = [
        {
            "rule": finding.rule,
            "severity": finding.severity,
            "first_step": finding.first_step,
            "layers": list(finding.layers),
            "evidence": finding.evidence,
            "remedies": list(finding.remedies),
            "explains": list(finding.explains),
        }
        for finding in (fitting(finding, run.in_force) for finding in causes.ordered(list(run.findings.values())))
    ]
    comparisons = [{"step": step, "difference": difference} for step, difference, _ in list(run.compared)]
    line = {"parent": run.parent or None, "parent_step": run.parent_step if run.parent else None}
    return plain(
        {"run": run.id, **vars(figures(run)), "findings": findings, "provenance": as_json(run.provenance), "comparisons": comparisons, **line}
    )


def plain(value: Any) -> Any:
    """The same value as strict JSON can say it: NaN and Inf become the strings "nan", "inf", "-inf"."""
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return repr(float(value))
    return value


def to_json(value: Any) -> str:
    """Strict JSON, indented for people."""
    return json.dumps(plain(value), indent=2, ensure_ascii=False, allow_nan=False)


def exit_code(run: Run) -> int:
    """What the command that ran it ends with: 0 where training was sound, so that it serves as a gate."""
    if run.status == "failed":
        return REFUSED if run.refused else FAILED
    if run.status == "nonfinite":
        return NONFINITE
    if run.status != "finished":
        return INTERRUPTED
    return CRITICAL if any(finding.severity == "critical" for finding in run.findings.values()) else FINISHED


def _extreme(pick: Any, values: np.ndarray) -> float | None:
    finite = values[np.isfinite(values)]
    return float(pick(finite)) if len(finite) else None
