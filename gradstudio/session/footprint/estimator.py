"""The state of a footprint computation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from gradstudio.core.experiment import Experiment
from gradstudio.core.footprint import Cure, Footprint
from gradstudio.session.footprint import budget
from gradstudio.session.footprint.process import FootprintProcess, FootprintUnknown


@dataclass(frozen=True)
class Estimate:
    """The result so far. `problem` says why there is none; `complete`: nothing more comes."""

    experiment: Experiment
    footprint: Footprint | None = None
    cures: tuple[Cure, ...] = ()
    problem: str = ""
    complete: bool = False


def answers(process: FootprintProcess, experiment: Experiment, stopped: Callable[[], bool]) -> Iterator[Estimate]:
    """Compute a footprint: yield each improved result, unless it is stopped."""
    footprint, cures, problem = None, list[Cure](), ""
    try:
        for answer in process.ask(experiment, stopped):
            if isinstance(answer, Footprint):
                footprint = answer
            else:
                cures.append(answer)
            yield Estimate(experiment, footprint, tuple(cures))
    except FootprintUnknown as why:
        problem = str(why)
    if not stopped():
        if footprint is not None and not problem:
            budget.ASKED.learn(experiment, (footprint, tuple(cures)))  # for the report of such a run
        yield Estimate(experiment, footprint, tuple(cures), problem, complete=True)
