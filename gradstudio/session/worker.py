"""The training thread: drain commands, bring its run forward, pace it.

Commands come through a queue and are drained between optimizer steps, so that no knob changes in mid-step. Nothing
else enters the thread; what leaves it are the rows and events of its Run.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gradstudio.core.knobs import Value
from gradstudio.session.lane import Lane
from gradstudio.session.run import Run
from gradstudio.session.snapshots import Snapshots

if TYPE_CHECKING:
    from gradstudio.engine.trainer import Trainer

UNLIMITED = float("inf")

# One run trains at a time: a run that follows another waits until it has let go of its model and torch's global seed.
_training = threading.Lock()


@dataclass(frozen=True, slots=True)
class SetKnob:
    name: str
    value: Value


@dataclass(frozen=True, slots=True)
class Pause:
    pass


@dataclass(frozen=True, slots=True)
class Resume:
    pass


@dataclass(frozen=True, slots=True)
class StepOnce:
    pass


@dataclass(frozen=True, slots=True)
class Compare:
    """The next step also computes the gradient of its micro-batches joined into one; a paused run makes that step."""


@dataclass(frozen=True, slots=True)
class Stop:
    """`leaving`: the run is left for another one, so that there is no time to find its accuracy on the test set."""

    leaving: bool = False


@dataclass(frozen=True, slots=True)
class SetSpeed:
    steps_per_second: float


@dataclass(frozen=True, slots=True)
class Probe:
    """Somebody looks at these gauges of core.probes.NAMES from now on, and at no others: they are measured between the steps, and at once
    on a run that stands."""

    names: frozenset[str]


Command = SetKnob | Pause | Resume | StepOnce | Compare | Stop | SetSpeed | Probe


class Worker(threading.Thread):
    """Trains one Run from its start to its end, or two in lockstep."""

    def __init__(
        self, run: Run, *, paused: bool = False, speed: float = UNLIMITED, snapshots: Snapshots | None = None,
        before: Worker | None = None, twin: Run | None = None, twin_knob: str = "",
    ) -> None:  # fmt: skip
        """`snapshots` are kept in, and gone on from. A run that has rows already goes on behind them, and the worker `before` it may
        have a trainer that can be brought there. A `twin` gets every change but those of `twin_knob`."""
        super().__init__(name=f"training {run.id}", daemon=True)
        self.record = run
        self.trainer: Trainer | None = None  # of a run that is over, for whoever goes on from it
        self.wanted = snapshots is not None  # whether somebody may
        snapshots = Snapshots() if snapshots is None else snapshots
        self._lanes = [Lane(run, snapshots), *([Lane(twin, snapshots)] if twin else [])]
        self._twin_knob = twin_knob
        self._before = before
        self._commands: queue.SimpleQueue[Command] = queue.SimpleQueue()
        self._paused = paused
        self._steps_due = 0  # single steps asked for while paused
        self._speed = speed
        self._stopping = self._leaving = False

    @property
    def failure(self) -> str:
        """The traceback of an exception, for whoever wants the details."""
        return next((lane.failure for lane in self._lanes if lane.failure), "")

    def let_go(self) -> None:
        """Nobody goes on from this run: free its model, now or when it is over."""
        self.wanted, self.trainer = False, None

    def send(self, command: Command) -> None:
        """Hand a command over, from any thread. It acts before the next optimizer step, and Stop before the first one too."""
        if isinstance(command, Stop):
            self._stopping, self._leaving = True, command.leaving
        self._commands.put(command)

    def run(self) -> None:
        for lane in self._lanes:
            lane.run.status = "starting"
        _training.acquire()
        try:
            trainer = self._taken_over()
            for lane in self._lanes:
                lane.begin(trainer, lambda: self._stopping)
                trainer = None
            if not self._stopping:
                self._train()
        finally:
            for lane in self._lanes:
                lane.end(leaving=self._leaving)
            self.trainer = self._lanes[0].trainer if self.wanted else None
            for lane in self._lanes:
                lane.trainer = None  # free the model before the next one is built
            _training.release()

    def _train(self) -> None:
        last = time.perf_counter()
        while going := self._going():
            self._obey(going)
            if self._stopping:
                return
            now, pace = time.perf_counter(), 1 / self._speed
            stands = self._paused and not self._steps_due
            early = bool(pace) and not self._paused and last + pace > now
            if stands or early:  # there is time to read every row
                for lane in going:
                    lane.settle()
            if any(lane.outcome is not None for lane in going):
                continue
            if stands:
                for lane in going:
                    lane.run.status = "paused"
                going[0].stand(lambda: not self._commands.empty())
                self._wait(going, None)
                continue
            if early:
                self._wait(going, last + pace - now)
                continue
            last = max(last + pace, now - pace)
            self._steps_due = max(self._steps_due - 1, 0)
            for lane in going:
                lane.step("paused" if self._paused else "running")

    def _going(self) -> list[Lane]:
        """The lanes whose runs go on; the others are told what came of them."""
        for lane in self._lanes:
            if lane.outcome is not None:
                lane.end(leaving=False)
        return [lane for lane in self._lanes if lane.outcome is None]

    def _taken_over(self) -> Trainer | None:
        """The trainer of the worker before this one."""
        before, self._before = self._before, None
        if before is None:
            return None
        trainer, before.trainer = before.trainer, None
        return trainer

    def _obey(self, going: list[Lane]) -> None:
        """Everything that is due before the next step: planned changes first, then commands in order."""
        for lane in going:
            lane.change_as_planned()
        if self._commands.empty():
            return
        due: dict[object, Command] = {}
        while not self._commands.empty():
            command = self._commands.get()
            due[command.name if isinstance(command, SetKnob) else len(due)] = command  # of one knob's values the last counts
        for command in due.values():
            self._do(command, going)

    def _do(self, command: Command, going: list[Lane]) -> None:
        match command:
            case SetKnob(name, value):
                for lane in going:
                    if lane is self._lanes[0] or name != self._twin_knob:
                        lane.change(name, value)
            case Pause():
                self._paused, self._steps_due = True, 0
            case Resume():
                self._paused, self._steps_due = False, 0
            case StepOnce():
                self._paused, self._steps_due = True, self._steps_due + 1
            case Compare():
                for lane in going:
                    lane.compare()
                self._steps_due = max(self._steps_due, 1) if self._paused else 0
            case Stop():
                pass  # send() has said so; it only wakes a worker that waits
            case SetSpeed(speed):
                self._speed = speed
            case Probe(names):
                self._lanes[0].probing.want(names)  # a twin is not what the window shows

    def _wait(self, going: list[Lane], seconds: float | None) -> None:
        """Until a command has come and been obeyed, or the time is over."""
        with contextlib.suppress(queue.Empty):
            self._do(self._commands.get(timeout=seconds), going)
