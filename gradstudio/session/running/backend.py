"""The backends that train the runs of a simulator: threads of this process, or workers in separate processes
(session/remote). Both have the same interface."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from gradstudio.session.library.requests import Request
from gradstudio.session.record.run import Run
from gradstudio.session.record.snapshots import BUDGET, RemoteSnapshots, Snapshots, StoredSnapshot
from gradstudio.session.running.cliff_sampling import CliffSampler
from gradstudio.session.running.fix_trials import Trial, Trials
from gradstudio.session.running.future_run import FutureRun
from gradstudio.session.running.step_sampling import LayerSampler, TimeMapSampler, TimeStepSampler
from gradstudio.session.running.whole_run import train_whole
from gradstudio.session.running.worker import Worker
from gradstudio.session.running.worker_commands import Command

StoredOf = Callable[[list[str]], Iterable[StoredSnapshot]]


class AnyWorker(Protocol):
    """The interface of a worker as a simulator uses it. Every method but `join` returns at once."""

    record: Run

    @property
    def failure(self) -> str: ...
    @property
    def abandoned(self) -> bool: ...
    def start(self) -> None: ...
    def send(self, command: Command) -> None: ...
    def on_request(self, request: Request) -> None: ...
    def rename(self, run: Run, name: str) -> bool: ...
    def release(self) -> None: ...
    def show_waiting(self) -> None: ...
    def abandon(self) -> None: ...
    def abandon_if_stuck(self) -> bool: ...
    def is_alive(self) -> bool: ...
    def join(self, timeout: float | None = None) -> None: ...


class RunFamily(Protocol):
    """The interface of a family of runs as a simulator uses it."""

    @property
    def snapshots(self) -> Snapshots | RemoteSnapshots: ...
    def worker(
        self, run: Run, *, paused: bool, speed: float, before: AnyWorker | None, twin: Run | None, twin_knob: str
    ) -> AnyWorker: ...
    def layers(self, run: Run, step: int) -> LayerSampler: ...
    def cliff(self, run: Run, step: int) -> CliffSampler: ...
    def time_steps(self, run: Run, step: int) -> TimeStepSampler: ...
    def time_map(self, run: Run, step: int) -> TimeMapSampler: ...
    def trials(self, run: Run) -> Trials: ...
    def future(self, trials: Trials, trial: Trial, pace: Callable[[], float]) -> FutureRun: ...
    def train_whole(self, run: Run, stopped: Callable[[], bool]) -> None: ...
    def set_speed(self, speed: float) -> None: ...


class Backend(Protocol):
    """What a simulator needs to train its runs: threads of this process, or worker processes here or at a place."""

    def family(self, budget: int = BUDGET, stored: StoredOf | None = None) -> RunFamily: ...
    def close(self) -> None: ...


class LocalFamily:
    """A family of runs that is trained in threads of this process."""

    def __init__(self, budget: int = BUDGET, stored: StoredOf | None = None) -> None:
        self.snapshots = Snapshots(budget, stored=stored)

    def worker(
        self, run: Run, *, paused: bool, speed: float, before: AnyWorker | None, twin: Run | None, twin_knob: str
    ) -> Worker:
        """Return a worker for a run, and its twin."""
        return Worker(
            run, paused=paused, speed=speed, snapshots=self.snapshots,
            before=before if isinstance(before, Worker) else None, twin=twin, twin_knob=twin_knob,
        )  # fmt: skip

    def layers(self, run: Run, step: int) -> LayerSampler:
        """Return a sampler of the layers at a step."""
        return LayerSampler(run, self.snapshots, step)

    def cliff(self, run: Run, step: int) -> CliffSampler:
        """Return a sampler of the loss around the weights before a step."""
        return CliffSampler(run, self.snapshots, step)

    def time_steps(self, run: Run, step: int) -> TimeStepSampler:
        """Return a sampler of the gradient along a sequence."""
        return TimeStepSampler(run, self.snapshots, step)

    def time_map(self, run: Run, step: int) -> TimeMapSampler:
        """Return a sampler of the same at many steps, up to this one."""
        return TimeMapSampler(run, self.snapshots, step)

    def trials(self, run: Run) -> Trials:
        """Return the trials of the fixes of a run."""
        return Trials(run, self.snapshots)

    def future(self, trials: Trials, trial: Trial, pace: Callable[[], float]) -> FutureRun:
        """Return the future of a fix."""
        return FutureRun(trials, trial, pace)

    def train_whole(self, run: Run, stopped: Callable[[], bool]) -> None:
        """Train a run to its end, or until it is stopped."""
        train_whole(run, stopped)

    def set_speed(self, speed: float) -> None:
        """Do nothing: a future reads the speed itself."""


class LocalBackend:
    """Trains in threads of this process."""

    def family(self, budget: int = BUDGET, stored: StoredOf | None = None) -> LocalFamily:
        """Return a new family of runs."""
        return LocalFamily(budget, stored)

    def close(self) -> None:
        """Do nothing: threads end with their runs."""
