"""The training thread: drain commands, advance the trainer, record the row, turn any exception into a status.

Commands come through a queue and are drained between optimizer steps, so that no knob changes in mid-step. Nothing
else enters the thread; what leaves it are the rows and events of its Run.
"""

from __future__ import annotations

import contextlib
import math
import queue
import threading
import time
import traceback
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from gradstudio.core.experiment import Experiment
from gradstudio.core.knobs import KnobError, Value
from gradstudio.session import branches, torch_library
from gradstudio.session.replay import Replay
from gradstudio.session.run import Run, Status
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


Command = SetKnob | Pause | Resume | StepOnce | Compare | Stop | SetSpeed


class Worker(threading.Thread):
    """Trains one Run from its start to its end."""

    def __init__(
        self, run: Run, *, paused: bool = False, speed: float = UNLIMITED, snapshots: Snapshots | None = None, parent: Run | None = None,
        before: Worker | None = None,
    ) -> None:  # fmt: skip
        """`snapshots` are kept in, and gone on from. A run that has rows already goes on behind them: `parent` is the one that it branched
        from, and the worker `before` it may have a trainer that can be brought there."""
        super().__init__(name=f"training {run.id}", daemon=True)
        self.record = run
        self.trainer: Trainer | None = None  # of a run that is over, for whoever goes on from it
        self.wanted = snapshots is not None  # whether somebody may
        self._replay = Replay(run, Snapshots() if snapshots is None else snapshots)
        self._before = before
        self._commands: queue.SimpleQueue[Command] = queue.SimpleQueue()
        self._planned = branches.still_planned(run, parent)
        self._compare_at = frozenset(run.compare_at)
        self._paused = paused
        self._steps_due = 0  # single steps asked for while paused
        self._speed = speed
        self._stopping = self._leaving = False
        self.failure = ""  # the traceback of an exception, for whoever wants the details

    def let_go(self) -> None:
        """Nobody goes on from this run: free its model, now or when it is over."""
        self.wanted, self.trainer = False, None

    def send(self, command: Command) -> None:
        """Hand a command over, from any thread. It acts before the next optimizer step, and Stop before the first one too."""
        if isinstance(command, Stop):
            self._stopping, self._leaving = True, command.leaving
        self._commands.put(command)

    def run(self) -> None:
        run, trainer = self.record, None
        status: Status = "failed"
        message, accuracy = "", None
        run.status = "starting"
        _training.acquire()
        try:
            torch_library.load_ahead()
            from gradstudio.engine.trainer import Trainer

            trainer = self._taken_over()
            if self._stopping:  # while another run had to end, or torch to load
                status = "stopped"
                return
            if run.environment:
                trainer = self._replay.stand(trainer, lambda: self._stopping)
            else:
                trainer = Trainer(run.experiment)
                _check_plan(trainer, run)
                run.begin(trainer.layers, trainer.environment)
                run.keep(partial(self._replay.keep_if_due, trainer))
            status = self._train(trainer)
            if len(run.history) and not (status == "stopped" and self._leaving):
                accuracy = trainer.evaluate()
            if status == "finished" and accuracy is not None and math.isnan(accuracy):
                run.weights_broke()
                status = "nonfinite"
        except KnobError as fault:
            status, message, run.refused = "failed", str(fault), True
        except ModuleNotFoundError as fault:
            message, run.refused = _describe(fault, run.in_force), fault.name == "torch"
            self.failure = traceback.format_exc()
        except Exception as fault:  # the one place where anything that training can raise becomes a status
            status = "failed"
            message = _describe(fault, run.in_force)
            self.failure = traceback.format_exc()
        finally:
            self.trainer = trainer if self.wanted and status != "failed" else None
            run.end(status, message, accuracy)
            _training.release()

    def _train(self, trainer: Trainer) -> Status:
        run = self.record
        steps, keep = trainer.steps(), partial(self._replay.keep_if_due, trainer)
        last = time.perf_counter()
        while len(run.history) < run.experiment.run.steps:
            self._obey(trainer)
            if self._stopping:
                return "stopped"
            if self._paused and not self._steps_due:
                run.status = "paused"
                self._wait(trainer, None)
                continue
            now, pace = time.perf_counter(), 1 / self._speed
            if pace and not self._paused and last + pace > now:
                self._wait(trainer, last + pace - now)
                continue
            last = max(last + pace, now - pace)
            self._steps_due = max(self._steps_due - 1, 0)
            trainer.compare_next |= len(run.history) in self._compare_at
            run.status = "paused" if self._paused else "running"
            row = next(steps)
            run.record(row)
            run.keep(keep)
            if row.went_nonfinite and run.in_force.run.stop_on_nonfinite:
                return "nonfinite"
        return "finished" if run.first_nonfinite_step is None else "nonfinite"

    def _taken_over(self) -> Trainer | None:
        """The trainer of the worker before this one."""
        before, self._before = self._before, None
        if before is None:
            return None
        trainer, before.trainer = before.trainer, None
        return trainer

    def _obey(self, trainer: Trainer) -> None:
        """Everything that is due before the next step: planned changes first, then commands in order."""
        while self._planned and self._planned[0].step <= len(self.record.history):
            change = self._planned.pop(0)
            self._change(trainer, change.knob, change.value)
        due: dict[object, Command] = {}
        while not self._commands.empty():
            command = self._commands.get()
            due[command.name if isinstance(command, SetKnob) else len(due)] = command  # of one knob's values the last counts
        for command in due.values():
            self._do(command, trainer)

    def _do(self, command: Command, trainer: Trainer) -> None:
        match command:
            case SetKnob(name, value):
                self._change(trainer, name, value)
            case Pause():
                self._paused, self._steps_due = True, 0
            case Resume():
                self._paused, self._steps_due = False, 0
            case StepOnce():
                self._paused, self._steps_due = True, self._steps_due + 1
            case Compare():
                trainer.compare_next = True
                self._steps_due = max(self._steps_due, 1) if self._paused else 0
            case Stop():
                pass  # send() has said so; it only wakes a worker that waits
            case SetSpeed(speed):
                self._speed = speed

    def _change(self, trainer: Trainer, name: str, value: Value) -> None:
        if self.record.in_force[name] == value:
            return
        try:
            trainer.change(name, value)
        except KnobError as fault:
            self.record.refuse(name, value, str(fault))
        else:
            self.record.change(name, value)

    def _wait(self, trainer: Trainer, seconds: float | None) -> None:
        """Until a command has come and been obeyed, or the time is over."""
        with contextlib.suppress(queue.Empty):
            self._do(self._commands.get(timeout=seconds), trainer)


def _check_plan(trainer: Trainer, run: Run) -> None:
    """KnobError where the device cannot do what the run's planned changes ask for, before a single step is made."""
    experiment = run.experiment
    for change in run.planned:
        experiment = experiment.with_value(change.knob, change.value)
        if change.knob == "precision.dtype":
            try:
                trainer.check(experiment)
            except KnobError as fault:
                raise KnobError(f"timeline at step {change.step}: {fault}") from None


def _describe(fault: BaseException, in_force: Experiment) -> str:
    """An exception as one sentence, with the usual way out where there is one."""
    text = str(fault).strip().partition("\n")[0] or type(fault).__name__
    if isinstance(fault, ModuleNotFoundError) and fault.name == "torch":
        return "PyTorch is not installed, and nothing trains without it; install it with: pip install torch"
    if "out of memory" in text.lower() or isinstance(fault, MemoryError) or "can't allocate memory" in text.lower():
        return f"Out of memory: {text[:300]} Halve problem.batch_size or model.width and restart."
    mistakes = [knob.name for knob, value in in_force.items() if knob.section == "mistakes" and value]
    cause = f" (switched on: {', '.join(mistakes)})" if mistakes else ""
    return f"{type(fault).__name__}: {text[:400]}{cause}"
