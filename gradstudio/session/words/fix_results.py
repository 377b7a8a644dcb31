"""What a fix reached, in words."""

from __future__ import annotations

import math

from gradstudio.core.task_measures import measure, why_it_need_not_fall
from gradstudio.core.text import number, percent
from gradstudio.session.running.fix_trials import Trial


def reached(trial: Trial) -> str:
    """Return how far the trial of a fix came: its accuracy on the test set, or the accuracy in training where the loss
    does not tell, or its loss; "" for a trial that measured nothing."""
    run = trial.run
    if run is not None and trial.outcome == "held" and trial.accuracy is not None and math.isfinite(trial.accuracy):
        return measure(run.experiment).headline.format(percent(round(trial.accuracy, 2)))
    if run is not None and trial.score is not None and why_it_need_not_fall(run.experiment):
        return measure(run.experiment).headline.format(percent(round(-trial.score, 2)))
    return "" if trial.loss is None else f"loss {number(trial.loss)}"
