"""The counterpart of the worker of a run that trains in a separate process. It has the interface of
session/running/worker.py, and writes the received news into the run here."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from weakref import finalize

from gradstudio.core.text import duration, plural
from gradstudio.core.typed_json import from_plain, to_plain
from gradstudio.session.footprint import budget
from gradstudio.session.record.run import Run
from gradstudio.session.record.run_writer import RunWriter
from gradstudio.session.remote import command_codec
from gradstudio.session.remote.run_news import RunReader
from gradstudio.session.running.slow_step import slow_step
from gradstudio.session.running.worker_commands import UNLIMITED, Command, Stop, commands_of

if TYPE_CHECKING:
    from gradstudio.session.library.requests import Request
    from gradstudio.session.remote.worker_family import WorkerFamily
    from gradstudio.worker.frames import Frame
    from gradstudio.worker.worker_process import WorkerProcess

PATIENCE = 1.0  # seconds that a step of a run that was stopped may take, where those before it took a tenth of that
BROKEN_DEVICE = ("CUDA error", "device-side assert", "AcceleratorError")  # nothing works on such a device any more


class _Twin:
    """Receives the news of a twin."""

    def __init__(self, reader: RunReader) -> None:
        self._reader = reader

    def take(self, frame: Frame) -> None:
        self._reader.take(frame.head, frame.raw)

    def unheard(self, seconds: float) -> None:
        pass

    def lose(self, why: str, trace: str) -> None:
        pass


class RemoteWorker:
    """Has a run trained, or a run and its twin in lockstep."""

    def __init__(
        self, family: WorkerFamily, run: Run, *, paused: bool = False, speed: float = UNLIMITED,
        before: RemoteWorker | None = None, twin: Run | None = None, twin_knob: str = "", whole: bool = False,
    ) -> None:  # fmt: skip
        self.record, self.failure = run, ""
        self.abandoned = False  # whether its process was ended within a step
        self._family, self._runs = family, [run, *([twin] if twin else [])]
        self._said = {"paused": paused, "speed": speed, "twin_knob": twin_knob, "whole": whole}
        self._before = before
        self._commands: list[Command] = []  # before it is started
        self._changing = threading.Lock()
        self._stopping = False
        self._ended = threading.Event()
        self._started = False
        self._readers: list[RunReader] = []
        self._numbers = [0]
        self.process: WorkerProcess | None = None

    def start(self) -> None:
        """Start the training in the process. The runs have a worker from now on."""
        documents = [self._family.introduce(run) for run in self._runs]  # their state before they are taken up
        for run in self._runs:
            RunWriter(run).queue()
        self._begin(documents)

    def _begin(self, documents: list[Callable[[], Any]]) -> None:
        process = self.process = self._family.process
        self._readers = [RunReader(run) for run in self._runs]
        numbers = self._numbers = [process.add(self), *(process.add(_Twin(each)) for each in self._readers[1:])]
        for introduce in documents:
            introduce()
        for run in self._runs:
            self._family.trains(run)
        with self._changing:
            commands, self._started = list(self._commands), True
        before, self._before = self._before, None
        said = self._said
        process.post(
            {
                "m": "train", "to": numbers[0], "family": self._family.number, "run": self.record.id,
                "twin": self._runs[1].id if len(numbers) > 1 else "", "twin_to": numbers[-1],
                "before": before._numbers[0] if before is not None and before.process is process else 0,
                "commands": [command_codec.encode(command) for command in commands],
                **said, "speed": to_plain(said["speed"]),
            }
        )  # fmt: skip
        finalize(self, process.post, {"m": "free", "of": numbers[0]}).atexit = False

    @property
    def _has_begun(self) -> bool:
        """Whether the worker has sent anything about the runs."""
        return any(reader.begun for reader in self._readers)

    # ---- same interface as a worker of this process

    def is_alive(self) -> bool:
        """Return whether the runs may still be written."""
        return self._started and not self._ended.is_set()

    def join(self, timeout: float | None = None) -> None:
        """Wait for the end."""
        if self._started:
            self._ended.wait(timeout)

    def release(self) -> None:
        """Declare that no run continues from this one."""
        if self.process is not None:
            self.process.post({"m": "let_go", "to": self._numbers[0]})

    def send(self, command: Command) -> None:
        """Send a command; it acts before the next optimizer step."""
        self._stopping |= isinstance(command, Stop)
        with self._changing:
            if not self._has_begun:
                self._commands.append(command)
            if self._started and self.process is not None:
                said = command_codec.encode(command)
                self.process.post({"m": "do", "to": self._numbers[0], "command": said})

    def on_request(self, request: Request) -> None:
        """Do what another program requests of the run."""
        for command in commands_of(request, self.record):
            self.send(command)

    def show_waiting(self) -> None:
        """Do nothing: the worker does it by itself."""

    def rename(self, run: Run, name: str) -> bool:
        """Return False: names are given here."""
        return False

    def abandon(self) -> None:
        """End the process, whatever it is doing."""
        self._leave("stopped")

    def abandon_if_stuck(self) -> bool:
        """End the process if a run that was stopped is in a step that takes long, or the worker is silent. Return
        whether it was ended within a step."""
        process = self.process
        if self._stopping and self.is_alive() and process is not None:
            mute = (process.hello or process.place) and process.silent > 2 * PATIENCE
            if mute or any(slow_step(run, PATIENCE) for run in self._runs):
                self._leave("stopped")
        return self.abandoned

    def _leave(self, status: Any) -> None:
        process = self.process
        if process is None or self._ended.is_set():
            return
        self.abandoned = True
        for number in self._numbers:
            process.drop(number)
        process.kill()
        for run in self._runs:
            if run.over:
                continue
            writer, now = RunWriter(run), run.step_now
            if now is not None:
                took = duration(time.monotonic() - now[1])
                writer.note("notice", f"Step {now[0]:,} was left before its end, as it took {took} so far.")
            writer.step_ends()
            writer.unheard(0.0)
            writer.end(status, "", None)
        self._ended.set()

    # ---- messages of the process

    def take(self, frame: Frame) -> None:
        """Receive news of the run, or its end."""
        match frame.head["m"]:
            case "run":
                self._readers[0].take(frame.head, frame.raw)
            case "line":
                RunWriter(self.record).at_line(from_plain(str, frame.head["at"]))
            case "end":
                run = self.record
                footprints = from_plain(list[budget.FootprintAndCures | None], frame.head["footprints"])
                budget.learn_stages(run.in_force, run.to_come, footprints)
                self._finish(from_plain(str, frame.head["failure"]))

    def _finish(self, failure: str) -> None:
        self.failure = failure
        process = self.process
        broken = any(mark in f"{failure} {self.record.message}" for mark in BROKEN_DEVICE)
        if process is not None:
            for number in self._numbers:
                process.drop(number)
            if broken:
                process.kill()
        self._ended.set()

    def unheard(self, seconds: float) -> None:
        """Report that the worker is silent."""
        for run in self._runs:
            RunWriter(run).unheard(seconds)

    def lose(self, why: str, trace: str) -> None:
        """End the runs with what there is of them, as the process has ended. A run that had not begun, and whose
        process was ended for another one, begins in a new one."""
        if self._ended.is_set():
            return
        process, gone = self.process, snapshots_gone(len(self._family)) if len(self.record.history) else ""
        if process is not None and process.place is not None and process.place.keep and gone:
            gone = f"If it lives, it goes on into the library there: gradstudio open {process.place.name} follows it."
        if process is not None and process.killed:
            if not self._has_begun and not self._stopping:
                self._begin([self._family.introduce(run) for run in self._runs])
                return
            why = "was ended, as a step of another run did not end"
        self.failure = trace
        if (file := self.record.experiment.studio_file) is not None:
            why += line_of_crash(file.name, trace)
        for run in self._runs:
            if run.over:
                continue
            writer = RunWriter(run)
            writer.step_ends()
            writer.unheard(0.0)
            status = "stopped" if self._stopping else "failed"
            writer.end(status, f"The worker {why}. {gone}".rstrip() if status == "failed" else "", None)
        self._ended.set()


def line_of_crash(file: str, trace: str) -> str:
    """Return ', at my_model.py, line 12' if a crash came out of a studio file, "" otherwise. `trace`: the last lines of
    its process."""
    crash = trace.find("Fatal Python error")
    found = re.search(rf'File "{re.escape(file)}", line (\d+)', trace[crash:]) if crash >= 0 else None
    return f", at {file}, line {found[1]}" if found else ""


def snapshots_gone(count: int) -> str:
    """Return what was lost with a worker, as a sentence or two."""
    lost = f"{plural(count, 'snapshot', 'snapshots')} went with it, so a" if count else "A"
    return f"{lost} rewind makes steps again from the beginning, in a new worker; Restart begins in a new one too."
