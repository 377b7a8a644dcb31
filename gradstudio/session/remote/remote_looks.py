"""The counterparts of a worker's measurements besides its runs: looks into a step, trials of fixes, and the future with
the best one. Each has the interface of the thread that it stands for."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast
from weakref import finalize

from gradstudio.core.typed_json import from_plain
from gradstudio.session.record.run import Run
from gradstudio.session.record.run_writer import RunWriter
from gradstudio.session.record.snapshots import Snapshots
from gradstudio.session.remote.run_news import RunReader
from gradstudio.session.remote.served_looks import FOUND, TRIAL
from gradstudio.session.running.fix_trials import Trial, Trials, candidates
from gradstudio.session.running.future_run import FutureRun
from gradstudio.session.running.step_sampling import StepSampler

if TYPE_CHECKING:
    from gradstudio.session.remote.worker_family import WorkerFamily
    from gradstudio.worker.frames import Frame
    from gradstudio.worker.worker_process import WorkerProcess

ENDED = "The worker {}, so nothing was measured."


class _RemoteThread(threading.Thread):
    """The interface of a thread for work that is done in a worker."""

    _process: WorkerProcess | None = None
    _number = 0
    _end: threading.Event

    def _ask(self, family: WorkerFamily, run: Run, head: dict[str, Any]) -> None:
        """Send the request to the worker."""
        introduce = family.introduce(run)
        process = self._process = family.process
        self._number = process.add(cast("Any", self))
        introduce()
        process.post({**head, "to": self._number, "family": family.number, "run": run.id})
        finalize(self, process.post, {"m": "free", "of": self._number}).atexit = False

    def is_alive(self) -> bool:
        return self._process is not None and not self._end.is_set()

    def join(self, timeout: float | None = None) -> None:
        if self._process is not None:
            self._end.wait(timeout)

    def stop(self) -> None:
        if self._process is not None:
            self._process.post({"m": "stop", "to": self._number})

    def _finish(self) -> None:
        if self._process is not None:
            self._process.drop(self._number)
        self._end.set()

    def unheard(self, seconds: float) -> None:
        pass


class RemoteLook(_RemoteThread, StepSampler):
    """A look into a step."""

    def __init__(self, family: WorkerFamily, kind: str, run: Run, step: int) -> None:
        StepSampler.__init__(self, run, cast("Snapshots", family.snapshots), step)
        self._family, self._kind, self._end = family, kind, threading.Event()
        self._place, self._type = FOUND[kind]
        self.sample: Any = None
        self.cliff: Any = None

    def start(self) -> None:
        self._ask(self._family, self.looked_at, {"m": "look", "kind": self._kind, "step": self.step})

    def take(self, frame: Frame) -> None:
        head = frame.head
        self.at = from_plain(int | None, head["at"])
        if "found" in head:
            setattr(self, self._place, from_plain(self._type, head["found"], frame.raw))
        if head["over"]:
            self.problem, self.failure = from_plain(str, head["problem"]), from_plain(str, head["failure"])
            self._finish()

    def lose(self, why: str, trace: str) -> None:
        if not self._end.is_set():
            self.problem, self.failure = ENDED.format(why), trace
            self._end.set()


class RemoteTrials(_RemoteThread, Trials):
    """Trials of fixes, one after the other."""

    def __init__(self, family: WorkerFamily, run: Run) -> None:
        self._offered = candidates(run)
        Trials.__init__(self, run, cast("Snapshots", family.snapshots), self._offered)
        self._at_work, self._end = family, threading.Event()
        self._readers: dict[int, RunReader] = {}

    @property
    def number(self) -> int:
        """The number by which the worker identifies it."""
        return self._number

    def start(self) -> None:
        self._ask(self._at_work, self.tried, {"m": "trials", "remedies": self._offered})

    def take(self, frame: Frame) -> None:
        head = frame.head
        place: int = head.get("trial", 0)
        match head["m"]:
            case "trial_run":
                self._begin_run(self.trials[place], place, head["run"])
            case "trial_news":
                self._readers[place].take(head, frame.raw)
            case "trial":
                trial = self.trials[place]
                for (name, declared), value in zip(TRIAL.items(), head["values"], strict=True):
                    setattr(trial, name, from_plain(declared, value))
            case "trials":
                now = head["now"]
                self.now = None if now is None else self.trials[now]
                self.failure = from_plain(str, head["failure"])
                if head["over"]:
                    self._finish()

    def _begin_run(self, trial: Trial, place: int, began: dict[str, Any]) -> None:
        run = self.run_with(trial.remedy)
        RunWriter(run).identify(from_plain(str, began["id"]), from_plain(float, began["started"]))
        trial.from_step = from_plain(int, began["from_step"])
        self._readers[place] = RunReader(run)
        trial.run, self.now = run, trial

    def lose(self, why: str, trace: str) -> None:
        if not self._end.is_set():
            if self.now is not None and self.now.outcome is None:
                self.now.message, self.now.outcome = f"The worker {why}.", "failed"
            self.failure, self.now = trace, None
            self.abandon()
            self._end.set()


class RemoteFuture(_RemoteThread, FutureRun):
    """The continued training of the best fix, as a worker does it."""

    def __init__(self, family: WorkerFamily, trials: RemoteTrials, trial: Trial, pace: Callable[[], float]) -> None:
        FutureRun.__init__(self, trials, trial, pace)
        self._at_work, self._of, self._end = family, trials, threading.Event()
        self._reader = RunReader(self.record)

    def start(self) -> None:
        family, trials = self._at_work, self._of
        if trials._process is not family.process:
            return  # the worker that tried it has ended
        family.set_speed(self._pace())
        place = next(place for place, trial in enumerate(trials.trials) if trial is self.trial)
        self._ask(family, trials.tried, {"m": "future", "trials": trials.number, "trial": place})

    def take(self, frame: Frame) -> None:
        if frame.head["m"] == "run":
            self._reader.take(frame.head, frame.raw)
        else:
            self.failure = from_plain(str, frame.head["failure"])
            self._finish()

    def lose(self, why: str, trace: str) -> None:
        if not self.record.over:
            RunWriter(self.record).set_status("stopped")  # with its worker
        self._end.set()
