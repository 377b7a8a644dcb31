"""The loop that people write by hand: the exported script of an experiment, without what it measures and prints."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gradstudio.core.experiment import Experiment
from gradstudio.program import PARTS, run_until_step
from gradstudio.program.plan import Plan


def plain_step(experiment: Experiment) -> Callable[[], None]:
    """Makes one step of the plain loop at a call. The set-up is made here."""
    return plain_loop(experiment)["one_step"]


def plain_loop(experiment: Experiment) -> dict[str, Any]:
    """Return the names of the script after its set-up, with `one_step` among them."""
    return run_until_step(Plan(experiment, measures=False), PARTS, {})
