"""The training thread: it obeys commands, lets its run make a step, and keeps the pace.

Commands come through a queue and act between optimizer steps, so that no knob changes within a step. Nothing else
enters the thread. It alone writes its run, which anyone may read."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from typing import TYPE_CHECKING

from gradstudio.session.library.requests import Request
from gradstudio.session.record.run import Run
from gradstudio.session.record.run_writer import RunWriter
from gradstudio.session.record.snapshots import Snapshots
from gradstudio.session.running.run_driver import RunDriver
from gradstudio.session.running.worker_commands import (
    UNLIMITED,
    Command,
    Compare,
    Pause,
    Rename,
    Resume,
    SetKnob,
    SetSpeed,
    StepOnce,
    Stop,
    WatchGauges,
    commands_of,
)

if TYPE_CHECKING:
    from gradstudio.engine.trainer import Trainer


# One run trains at a time: the next run waits until the previous one has released its model and torch's global seed.
_training = threading.Lock()


def thread_of(run: Run) -> str:
    """Return the name of the thread that trains a run."""
    return f"training {run.id}"


class Worker(threading.Thread):
    """Trains a run from its start to its end, or a run and its twin in lockstep."""

    abandoned = False  # a thread cannot be ended within a step, as a process can

    def __init__(
        self, run: Run, *, paused: bool = False, speed: float = UNLIMITED, snapshots: Snapshots | None = None,
        before: Worker | None = None, twin: Run | None = None, twin_knob: str = "",
    ) -> None:  # fmt: skip
        """`snapshots` store the snapshots of the run, and supply those to continue from. A run that has rows continues
        after them; the worker `before` may have a trainer that can be brought there. A `twin` gets every change except
        those of `twin_knob`."""
        super().__init__(name=thread_of(run), daemon=True)
        self.record = run
        self.trainer: Trainer | None = None  # of a run that is over, for the next run to continue from
        self.wanted = snapshots is not None  # whether one may
        snapshots = Snapshots() if snapshots is None else snapshots
        self._drivers = [RunDriver(run, snapshots), *([RunDriver(twin, snapshots)] if twin else [])]
        self._twin_knob = twin_knob
        self._before = before
        self._commands = queue.SimpleQueue[Command]()
        self._paused = paused
        self._steps_due = 0  # single steps requested while paused
        self._speed = speed
        # not a flag of this thread: drivers that refer to the thread would form a cycle
        self._stopping = threading.Event()
        self._leaving = False
        self._giving_back = threading.Lock()
        self._has_runs = True  # until others may write them

    @property
    def failure(self) -> str:
        """The traceback of an exception, for those who want the details."""
        return next((driver.failure for driver in self._drivers if driver.failure), "")

    def release(self) -> None:
        """Declare that no run continues from this one: its model is freed, now or when it is over."""
        self.wanted, self.trainer = False, None

    def send(self, command: Command) -> None:
        """Send a command, from any thread. It acts before the next optimizer step; Stop also before the first. A run
        that is over accepts none."""
        if isinstance(command, Stop):
            self._leaving = command.leaving
            self._stopping.set()
        with self._giving_back:
            if self._has_runs:
                self._commands.put(command)

    def on_request(self, request: Request) -> None:
        """Do what another program requests of the run, from any thread."""
        for command in commands_of(request, self.record):
            self.send(command)

    def show_waiting(self) -> None:
        """Show the rows of the runs that wait for the end of a long step, from any thread."""
        for driver in self._drivers:
            driver.held.show_in_long_step()

    def abandon(self) -> None:
        """Mark the runs as stopped, though a step still blocks the thread. Only for a program that ends right after:
        the measurements of the step are lost."""
        for driver in self._drivers:
            if not driver.run.over:
                driver.writer.set_status("stopped")

    def abandon_if_stuck(self) -> bool:
        """Return whether it was ended within a step."""
        return self.abandoned

    def rename(self, run: Run, name: str) -> bool:
        """Name a run, from any thread. Return False if the worker does not write that run, or no longer does: then its
        owner writes the name."""
        with self._giving_back:
            own = self._has_runs and not run.over and any(driver.run is run for driver in self._drivers)
            if own:
                self._commands.put(Rename(run, name))
        return own

    def start(self) -> None:
        """Start the thread. The runs have a worker from now on, even before the thread gets to them: a knob changed
        right after is a change of a running run."""
        self._queue()
        super().start()

    def _queue(self) -> None:
        for driver in self._drivers:
            driver.writer.queue()

    def run(self) -> None:
        """Train until the run is over or stopped, and release everything."""
        self._queue()  # again, for callers without a thread
        _training.acquire()
        try:
            trainer = self._taken_over()
            for driver in self._drivers:
                driver.begin(trainer, self._stopping.is_set)
                trainer = None
            if not self._stopping.is_set():
                self._train()
        finally:
            self._end()

    def _end(self) -> None:
        """End the runs, and release everything."""
        try:
            for driver in self._drivers:
                driver.end(leaving=self._leaving)
            self.trainer = self._drivers[0].trainer if self.wanted else None
            for driver in self._drivers:
                driver.trainer = None  # free the model before the next one is built
        finally:
            _training.release()
            self._give_runs_back()

    def _give_runs_back(self) -> None:
        """Write the names that came too late for a step, and let others write from then on."""
        with self._giving_back:
            self._has_runs = False
            while not self._commands.empty():
                if isinstance(command := self._commands.get(), Rename):
                    self._do(command, [])

    def _train(self) -> None:
        """Make steps, as fast and as long as the commands say."""
        last = time.perf_counter()
        while going := self._continuing():
            self._obey(going)
            if self._stopping.is_set():
                return
            now, pace = time.perf_counter(), 1 / self._speed
            stands = self._paused and not self._steps_due
            early = bool(pace) and not self._paused and last + pace > now
            if stands or early:  # there is time to read every row
                for driver in going:
                    driver.settle()
            if any(driver.outcome is not None for driver in going):
                continue
            if stands:
                for driver in going:
                    driver.writer.set_status("paused")
                going[0].stand(lambda: not self._commands.empty())
                self._wait(going, None)
                continue
            if early:
                self._wait(going, last + pace - now)
                continue
            last = max(last + pace, now - pace)
            self._steps_due = max(self._steps_due - 1, 0)
            for driver in going:
                driver.step("paused" if self._paused else "running")

    def _continuing(self) -> list[RunDriver]:
        """Return the drivers whose runs continue, and let the others record how they ended."""
        for driver in self._drivers:
            if driver.outcome is not None:
                driver.end(leaving=False)
        return [driver for driver in self._drivers if driver.outcome is None]

    def _taken_over(self) -> Trainer | None:
        """Return the trainer of the previous worker."""
        before, self._before = self._before, None
        if before is None:
            return None
        trainer, before.trainer = before.trainer, None
        return trainer

    def _obey(self, going: list[RunDriver]) -> None:
        """Do everything that is due before the next step: planned changes first, then commands in order."""
        for driver in going:
            driver.change_as_planned()
        if self._commands.empty():
            return
        due: dict[object, Command] = {}
        while not self._commands.empty():
            command = self._commands.get()
            key = command.name if isinstance(command, SetKnob) else len(due)  # only the last value of a knob counts
            due[key] = command
        for command in due.values():
            self._do(command, going)

    def _do(self, command: Command, going: list[RunDriver]) -> None:
        """Obey one command."""
        match command:
            case SetKnob(name, value):
                for driver in going:
                    if driver is self._drivers[0] or name != self._twin_knob:
                        driver.change(name, value)
            case Pause():
                self._paused, self._steps_due = True, 0
            case Resume():
                self._paused, self._steps_due = False, 0
            case StepOnce():
                self._paused, self._steps_due = True, self._steps_due + 1
            case Compare():
                for driver in going:
                    driver.compare()
                self._steps_due = max(self._steps_due, 1) if self._paused else 0
            case Stop():
                pass  # send() has done it; it only wakes a worker that waits
            case SetSpeed(speed):
                self._speed = speed
            case WatchGauges(names):
                self._drivers[0].gauges.want(names)  # a twin is not what the window shows
            case Rename(run, name):
                RunWriter(run).rename(name)

    def _wait(self, going: list[RunDriver], seconds: float | None) -> None:
        """Wait for a command and obey it, or until the timeout."""
        with contextlib.suppress(queue.Empty):
            self._do(self._commands.get(timeout=seconds), going)
