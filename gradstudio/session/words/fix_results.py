"""The result of a fix, in words."""

from __future__ import annotations

import math

from gradstudio.core.task_measures import measure, why_it_need_not_fall
from gradstudio.core.text import number, percent
from gradstudio.session.running.remedy_trial import Trial
from gradstudio.session.words.outcome_words import LEARNS_NOTHING, UNHEALTHY


def outcome_key(trial: Trial) -> str:
    """Return the key in `OUTCOMES` (outcome_words.py) for the outcome of a trial; "running" until it has one."""
    if trial.outcome == "held":
        return LEARNS_NOTHING if trial.useless else "learns" if trial.learns else "gets worse"
    if trial.outcome == "broke again":
        return "nonfinite" if trial.nonfinite else UNHEALTHY
    return trial.outcome or "running"


def describe_trial(trial: Trial) -> str:
    """Return what happened in a trial, in a few words."""
    broke = f"{'NaN' if trial.nonfinite else 'again'} at {trial.broke_at:,}" if trial.broke_at is not None else ""
    match trial.outcome:
        case "held":
            return f"survives, {outcome_key(trial)}"
        case "no effect":
            return f"no effect, {broke}"
        case "broke again":
            return broke
        case "failed" | "not tried":
            return trial.outcome
    return "being tried"


def accuracy(trial: Trial) -> str:
    """Return the accuracy on the test set at the end of the trial; "" if it broke or none was measured."""
    if trial.outcome != "held" or trial.accuracy is None or not math.isfinite(trial.accuracy):
        return ""
    return percent(round(trial.accuracy, 2))


def describe_result(trial: Trial) -> str:
    """Return the result of the trial of a fix: its accuracy on the test set, or the accuracy in training if the loss is
    not informative, or its loss; "" for a trial that measured nothing."""
    run = trial.run
    if run is not None and trial.outcome == "held" and trial.accuracy is not None and math.isfinite(trial.accuracy):
        return measure(run.experiment).headline.format(percent(round(trial.accuracy, 2)))
    if run is not None and trial.score is not None and why_it_need_not_fall(run.experiment):
        return measure(run.experiment).headline.format(percent(round(-trial.score, 2)))
    return "" if trial.loss is None else f"loss {number(trial.loss)}"
