"""The commands to a worker, which it executes between two optimizer steps."""

from __future__ import annotations

from dataclasses import dataclass

from gradstudio.core.knobs import Value
from gradstudio.session.library.requests import Request
from gradstudio.session.record.run import Run

UNLIMITED = float("inf")


@dataclass(frozen=True, slots=True)
class SetKnob:
    """Change a live knob from the next step on."""

    name: str
    value: Value


@dataclass(frozen=True, slots=True)
class Pause:
    """Make no more steps until Resume."""


@dataclass(frozen=True, slots=True)
class Resume:
    """Make steps indefinitely."""


@dataclass(frozen=True, slots=True)
class StepOnce:
    """Make one step, then pause."""


@dataclass(frozen=True, slots=True)
class Compare:
    """Let the next step also compute the gradient of its micro-batches joined into one. A paused run makes that
    step."""


@dataclass(frozen=True, slots=True)
class Stop:
    """End the run. `leaving`: it is stopped for another one, so there is no time for the test set."""

    leaving: bool = False


@dataclass(frozen=True, slots=True)
class SetSpeed:
    """Make no more than this many steps a second."""

    steps_per_second: float


@dataclass(frozen=True, slots=True)
class WatchGauges:
    """Measure these gauges of core.gauge_samples.NAMES from now on, and no others: between the steps, and immediately
    for a paused run."""

    names: frozenset[str]


@dataclass(frozen=True, slots=True)
class Rename:
    """Name a run of the worker."""

    run: Run
    name: str


Command = SetKnob | Pause | Resume | StepOnce | Compare | Stop | SetSpeed | WatchGauges | Rename


def commands_of(request: Request, run: Run) -> tuple[Command, ...]:
    """Return the commands for a request of another program. A factor refers to the learning rate at step 0."""
    match request.word:
        case "pause":
            return (Pause(),)
        case "resume":
            return (Resume(),)
        case "stop":
            return (Stop(),)
        case "rate":
            return (SetKnob("optimizer.lr", run.experiment.optimizer.lr * request.factor),)
        case _:
            return ()
