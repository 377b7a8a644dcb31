"""Which steps of a lesson are done. A step once done stays done, over all runs of the lesson."""

from __future__ import annotations

import math

from gradstudio.core.experiment import Experiment, parse_assignment
from gradstudio.core.presets import LessonStep
from gradstudio.session.run import Run, recent_mean

LEAST_ROWS = 50  # before an accuracy counts


def is_done(step: LessonStep, run: Run, requested: Experiment) -> bool:
    """Whether everything that the step names holds for the run now. A step that names knobs alone is done once they are
    asked for; one that names nothing, by running at all."""
    history = run.history
    if step.knobs and step.outcome is None and step.rule is None and step.accuracy is None and not step.branch:
        return all(requested[name] == value for name, value in map(parse_assignment, step.knobs))
    if not len(history):
        return False
    if step.branch and not run.parent:
        return False
    if step.outcome == "nonfinite" and run.first_nonfinite_step is None:
        return False
    if step.outcome == "finished" and run.status != "finished":
        return False
    if step.rule is not None and (step.rule not in run.findings or run.findings[step.rule].severity == "info"):
        return False
    if step.accuracy is not None:
        mean = recent_mean(history, "accuracy") if len(history) >= LEAST_ROWS else math.nan
        if not mean >= step.accuracy:
            return False
    return all(run.in_force[name] == value for name, value in map(parse_assignment, step.knobs))
