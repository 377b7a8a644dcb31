"""The outcome of a run, judged in one place for promises, exams, tried fixes and the cells of a map, with every
threshold. core/diagnosis/progress.py judges what a run has learned so far."""

from __future__ import annotations

import math
from typing import TypeGuard

import numpy as np

from gradstudio.core.diagnosis.finding import Finding
from gradstudio.core.diagnosis.progress import HARDLY, MOVED, RISEN, Progress
from gradstudio.core.history import History
from gradstudio.core.task_measures import why_it_need_not_fall
from gradstudio.session.record.run import Run

HEALED = 0.8  # share of the accuracy of the known fix with the same seed above which a run is healed
HARMED = 0.7  # likewise: up to which a run is broken
TOO_LARGE = 100.0  # times the larger of the first loss and that of guessing, beyond which a run counts as diverged
LATEST = 20  # steps at the end of a run whose mean is the loss that it reached


def is_measured(accuracy: float | None) -> TypeGuard[float]:
    """Return whether an accuracy on the test set is a number."""
    return accuracy is not None and math.isfinite(accuracy)


def warnings(run: Run) -> list[Finding]:
    """Return the findings that are more than notes."""
    return [finding for finding in list(run.findings.values()) if finding.severity != "info"]


def fires(run: Run, rule: str) -> bool:
    """Return whether a rule has a finding that is more than a note."""
    return any(finding.rule == rule for finding in warnings(run))


def is_critical(run: Run) -> bool:
    """Return whether a finding of the run is critical."""
    return any(finding.severity == "critical" for finding in list(run.findings.values()))


def has_learned(run: Run, least: float) -> bool:
    """Return whether a run finished with at least this accuracy."""
    return run.status == "finished" and run.accuracy is not None and run.accuracy >= least


def learned_little(run: Run, most: float) -> bool:
    """Return whether the accuracy of a run is at most this: NaN or unknown counts as no use."""
    return run.accuracy is None or not run.accuracy > most


def is_harmed(run: Run, healed: Run) -> bool:
    """Return whether a run is broken compared with the healed one: it diverged, or learned much less."""
    if run.status == "finished" and run.accuracy is not None and healed.accuracy is not None:
        return not run.accuracy > HARMED * healed.accuracy
    return run.status == "nonfinite"


def above_guessing(accuracy: float, guess: float) -> bool:
    """Return whether an accuracy exceeds that of guessing by a significant amount."""
    return accuracy > guess + MOVED


def below_start(loss: float, start: float) -> bool:
    """Return whether a loss is below the first one by enough to count as learned."""
    return loss < start - (1 - HARDLY) * abs(start)


def is_useless(accuracy: float | None, history: History, state: Progress) -> bool:
    """Return whether a continuing run has learned nothing: it stagnates, and its accuracy on the test set is that of
    guessing or of the model before its first update."""
    if not is_measured(accuracy):
        return state.stuck
    above = state.above_guessing(accuracy, history.value("test_accuracy", 0))
    return above <= MOVED or (above <= RISEN and state.stuck)


def scores(run: Run, start: int, stop: int) -> np.ndarray:
    """Return the scores of the steps start to stop, lower is better, without non-finite ones: the loss, or the accuracy
    if the loss is not informative."""
    if why_it_need_not_fall(run.experiment):
        result = -run.history.column("accuracy", start, stop)
    else:
        result = run.history.column("loss", start, stop) / (run.in_force.loss.weight or 1.0)
    return result[np.isfinite(result)]


def rises(first: np.ndarray, last: np.ndarray, least: int = LATEST) -> bool:
    """Return whether the last scores exceed the first by more than their scatter explains. A single outlier does not
    count, nor do fewer than `least` scores."""
    if min(len(first), len(last)) < least:
        return False
    (low, middle, high), (_, end, _) = (np.percentile(values, (25, 50, 75)) for values in (first, last))
    return bool(end - middle > high - low)


def mean_of_latest(values: np.ndarray) -> float | None:
    """Return the mean of the last values; None if there are none."""
    return float(values[-LATEST:].mean()) if len(values) else None
