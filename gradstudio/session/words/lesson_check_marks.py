"""The check marks of a lesson: which steps are done. A finished step stays done, over all runs of the lesson."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection

from gradstudio.core.experiment import Experiment, parse_assignment
from gradstudio.core.presets import LessonStep
from gradstudio.session.record.run import Run, recent_mean
from gradstudio.session.record.run_outcome import fires

LEAST_ROWS = 50  # rows needed before the accuracy counts


def no_map(_: Run) -> Collection[str]:
    """Return an empty collection: nothing was done with a map."""
    return ()


def is_done(
    step: LessonStep, run: Run, requested: Experiment, of_map: Callable[[Run], Collection[str]] = no_map
) -> bool:
    """Return whether all conditions of the step hold for the run now. A step that names only knobs is done once they
    are set, one that names only a map once that exists; a step that names nothing is done once the run has a row.
    `of_map`: what was done with the map that the run's preset proposes, in the terms of a step's `map`."""
    history = run.history
    wanted = [parse_assignment(text) for text in step.knobs]
    looks = step.outcome or step.rule or step.accuracy is not None or step.branch
    if step.map and step.map not in of_map(run):
        return False
    if (step.knobs or step.map) and not looks:
        return all(requested[name] == value for name, value in wanted)
    if not len(history) and step.outcome != "failed":
        return False
    mean = recent_mean(history, "accuracy") if len(history) >= LEAST_ROWS else math.nan
    return (
        (not step.branch or bool(run.parent))
        and (step.outcome != "nonfinite" or run.first_nonfinite_step is not None)
        and (step.outcome not in ("finished", "failed") or run.status == step.outcome)
        and (step.rule is None or fires(run, step.rule))
        and (step.accuracy is None or mean >= step.accuracy)
        and all(run.in_force[name] == value for name, value in wanted)
    )
