"""Runs that are trained by workers in separate processes, with the interface of session/running/backend.py."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import partial
from typing import Any, cast

from gradstudio.core.worker_places import Place
from gradstudio.session.record.run import Run
from gradstudio.session.record.snapshots import BUDGET
from gradstudio.session.remote.remote_looks import RemoteFuture, RemoteLook, RemoteTrials
from gradstudio.session.remote.remote_worker import RemoteWorker
from gradstudio.session.remote.worker_family import StoredOf, WorkerFamily
from gradstudio.session.remote.worker_pool import WorkerPool, start_at
from gradstudio.session.running.backend import Backend, LocalBackend, RunFamily
from gradstudio.session.running.cliff_sampling import CliffSampler
from gradstudio.session.running.fix_trials import Trial, Trials
from gradstudio.session.running.step_sampling import LayerSampler, TimeMapSampler, TimeStepSampler
from gradstudio.session.running.worker_commands import Stop

DEFAULT = "process" if sys.platform == "linux" else "thread"  # not tried elsewhere


class RemoteFamily(WorkerFamily):
    """A family of runs trained by a worker."""

    def worker(self, run: Run, **asked: Any) -> RemoteWorker:
        """Return a worker for a run, and its twin."""
        return RemoteWorker(self, run, **asked)

    def layers(self, run: Run, step: int) -> LayerSampler:
        """Return a sampler of the layers at a step."""
        return cast("LayerSampler", RemoteLook(self, "layers", run, step))

    def cliff(self, run: Run, step: int) -> CliffSampler:
        """Return a sampler of the loss around the weights before a step."""
        return cast("CliffSampler", RemoteLook(self, "cliff", run, step))

    def time_steps(self, run: Run, step: int) -> TimeStepSampler:
        """Return a sampler of the gradient along a sequence."""
        return cast("TimeStepSampler", RemoteLook(self, "time_steps", run, step))

    def time_map(self, run: Run, step: int) -> TimeMapSampler:
        """Return a sampler of the same at many steps, up to this one."""
        return cast("TimeMapSampler", RemoteLook(self, "time_map", run, step))

    def trials(self, run: Run) -> RemoteTrials:
        """Return the trials of the fixes of a run."""
        return RemoteTrials(self, run)

    def future(self, trials: Trials, trial: Trial, pace: Callable[[], float]) -> RemoteFuture:
        """Return the future of a fix."""
        assert isinstance(trials, RemoteTrials)
        return RemoteFuture(self, trials, trial, pace)

    def train_whole(self, run: Run, stopped: Callable[[], bool]) -> None:
        """Train a run to its end, or until it is stopped."""
        worker = RemoteWorker(self, run, whole=True)
        worker.start()
        told = False
        while worker.is_alive():
            worker.join(0.05)
            if stopped() and not told:
                told = True
                worker.send(Stop(leaving=True))
            if told:
                worker.abandon_if_stuck()


class RemoteBackend(WorkerPool):
    """Trains in workers."""

    def family(self, budget: int = BUDGET, stored: StoredOf | None = None) -> RemoteFamily:
        """Return a new family of runs."""
        return RemoteFamily(self, budget, stored)


def at(place: Place) -> RemoteBackend:
    """Return the backend that trains runs at a place. Its command is run when the first one begins."""
    return RemoteBackend(partial(start_at, place), ahead=False)


class PlacesBackend:
    """Trains families here or at places."""

    def __init__(self, here: Backend) -> None:
        self.here = here
        self._elsewhere: dict[Place, RemoteBackend] = {}

    def family(self, place: Place | None, budget: int = BUDGET, stored: StoredOf | None = None) -> RunFamily:
        """Return the object that trains a family of runs at a place; None: here."""
        backend = self.here if place is None else self.at(place)
        return backend.family(budget, stored)

    def at(self, place: Place) -> RemoteBackend:
        """Return the backend of a place."""
        if place not in self._elsewhere:
            self._elsewhere[place] = at(place)
        return self._elsewhere[place]

    def close(self) -> None:
        """End every worker."""
        for each in (self.here, *self._elsewhere.values()):
            each.close()


def chosen() -> LocalBackend | RemoteBackend:
    """Return the backend for the runs of a window: workers, or threads of the window's own process if GRADSTUDIO_WORKER
    is thread."""
    return RemoteBackend() if os.environ.get("GRADSTUDIO_WORKER", DEFAULT) == "process" else LocalBackend()
