"""How a run came out, judged once for promises, exams, tried fixes and the cells of a map, with every threshold. What a
run has learned so far is judged by core/diagnosis/progress.py."""

from __future__ import annotations

import math
from typing import TypeGuard

import numpy as np

from gradstudio.core.diagnosis.finding import Finding
from gradstudio.core.diagnosis.progress import HARDLY, MOVED, RISEN, Progress
from gradstudio.core.history import History
from gradstudio.core.task_measures import why_it_need_not_fall
from gradstudio.session.record.run import Run

HEALED = 0.8  # share of the accuracy that the known fix reaches with the same seed: a run that reaches it is healed
HARMED = 0.7  # likewise: a run that reaches no more is broken
TOO_LARGE = 100.0  # times the larger of the first loss and that of guessing: beyond, a run counts as diverged
LATEST = 20  # steps at the end of a run whose mean is what it reached


def is_measured(accuracy: float | None) -> TypeGuard[float]:
    """Return whether an accuracy on the test set is a number."""
    return accuracy is not None and math.isfinite(accuracy)


def warnings(run: Run) -> list[Finding]:
    """Return the findings that are no mere notes."""
    return [finding for finding in list(run.findings.values()) if finding.severity != "info"]


def fires(run: Run, rule: str) -> bool:
    """Return whether a rule has a finding that is no mere note."""
    return any(finding.rule == rule for finding in warnings(run))


def is_critical(run: Run) -> bool:
    """Return whether a finding of the run is critical."""
    return any(finding.severity == "critical" for finding in list(run.findings.values()))


def has_learned(run: Run, least: float) -> bool:
    """Return whether a run finished with this accuracy or a higher one."""
    return run.status == "finished" and run.accuracy is not None and run.accuracy >= least


def learned_little(run: Run, most: float) -> bool:
    """Return whether the accuracy of a run is no higher than this: one that is NaN or unknown is of no use."""
    return run.accuracy is None or not run.accuracy > most


def harmed(run: Run, healed: Run) -> bool:
    """Return whether a run is broken beside the healed one: it diverged, or learned much less."""
    if run.status == "finished" and run.accuracy is not None and healed.accuracy is not None:
        return not run.accuracy > HARMED * healed.accuracy
    return run.status == "nonfinite"


def above_guessing(accuracy: float, guess: float) -> bool:
    """Return whether an accuracy is higher than that of guessing by what counts as a change."""
    return accuracy > guess + MOVED


def below_start(loss: float, start: float) -> bool:
    """Return whether a loss is lower than the first one by what counts as learned."""
    return loss < start - (1 - HARDLY) * abs(start)


def is_useless(accuracy: float | None, history: History, state: Progress) -> bool:
    """Return whether a run that goes on has learned nothing: it stands still, and its accuracy on the test set is that
    of guessing or of the model before its first update."""
    if not is_measured(accuracy):
        return state.stuck
    above = state.above_guessing(accuracy, history.value("test_accuracy", 0))
    return above <= MOVED or (above <= RISEN and state.stuck)


def scores(run: Run, start: int, stop: int) -> np.ndarray:
    """Return how well the steps start to stop did, the lower the better, as far as that is finite: the loss, or the
    accuracy where the loss does not tell."""
    if why_it_need_not_fall(run.experiment):
        found = -run.history.column("accuracy", start, stop)
    else:
        found = run.history.column("loss", start, stop) / (run.in_force.loss.weight or 1.0)
    return found[np.isfinite(found)]


def rises(first: np.ndarray, last: np.ndarray, least: int = LATEST) -> bool:
    """Return whether the last scores lie above the first by more than their scatter explains. A single outlier counts
    for nothing, and so do fewer than `least` scores."""
    if min(len(first), len(last)) < least:
        return False
    (low, middle, high), (_, end, _) = (np.percentile(values, (25, 50, 75)) for values in (first, last))
    return bool(end - middle > high - low)


def mean_of_latest(values: np.ndarray) -> float | None:
    """Return the mean of the last values; None where there is none."""
    return float(values[-LATEST:].mean()) if len(values) else None
