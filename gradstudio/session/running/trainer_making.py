"""Builds the trainer of a run, and checks that its device supports the planned changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, cast

from gradstudio.core import ranks_allowed
from gradstudio.core.events import MOST_CHANGES, Change
from gradstudio.core.experiment import Experiment
from gradstudio.core.knobs import KnobError

if TYPE_CHECKING:
    from gradstudio.engine.trainer import Trainer


def make(experiment: Experiment, stopped: Callable[[], bool]) -> Trainer:
    """Return the trainer of an experiment; with several ranks, one that controls them."""
    if not ranks_allowed.several(experiment):
        from gradstudio.engine.trainer import Trainer

        return Trainer(experiment)
    from gradstudio.engine.ranks.ranked_trainer import RankedTrainer

    return cast("Trainer", RankedTrainer(experiment, stopped))


def check_changes(trainer: Trainer, experiment: Experiment, planned: Iterable[Change]) -> None:
    """Raise KnobError if the device does not support a planned change, before a single step is made."""
    for change in planned:
        experiment = experiment.with_value(change.knob, change.value)
        if change.knob == "precision.dtype":
            try:
                trainer.check(experiment)
            except KnobError as fault:
                raise KnobError(f"timeline at step {change.step}: {fault}") from None


def check_number(changes: int) -> None:
    """Raise KnobError if a run has as many changes as its file may have."""
    if changes >= MOST_CHANGES:
        raise KnobError(f"a run has at most {MOST_CHANGES:,} changes, and this one has; restart it to change more")
