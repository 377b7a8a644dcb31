"""The process of a worker, from the point of view of its owner: messages to it wait in a queue, and its messages go to
the requester. However it ends, all receivers are notified, and nothing that it has started is left."""

from __future__ import annotations

import io
import os
import queue
import secrets
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import count
from typing import Any, Protocol, cast
from weakref import WeakSet, WeakValueDictionary

import gradstudio
from gradstudio.core import python_process
from gradstudio.core.worker_places import TO_INSTALL, Place
from gradstudio.worker import frames
from gradstudio.worker.frames import BrokenFrame, Frame

SILENT = 5.0  # seconds of silence that are reported
GONE = 60.0  # seconds without a byte after which a remote worker counts as gone, as the connection may not report it
WORD = 3.0  # seconds between two signs of life to a remote worker
LOOK = 0.5  # seconds between two checks for silence
ENDING = 2.0  # seconds in which its last messages are read
LAST_LINES = 200  # of its stderr, for those who want the details
_numbers = count(1)

Said = tuple[dict[str, Any], Iterable[Any]]  # the head of a frame, and its raw pieces
Saying = Said | Callable[[], Iterator[Said]]  # or a function that yields frames, in the thread that writes them


class Receiver(Protocol):
    """A recipient of a worker's messages. All three methods are called in threads of the process."""

    def take(self, frame: Frame) -> None:
        """Receive a frame that is addressed to it."""
        ...

    def unheard(self, seconds: float) -> None:
        """Note that the worker has been silent for this many seconds; 0: it responds again."""
        ...

    def lose(self, why: str, trace: str) -> None:
        """Note that the worker has ended."""
        ...


class _TimedOutput(io.FileIO):
    """The output of a worker, with the time of its latest byte: a large frame takes long on a slow connection."""

    def __init__(self, file: int) -> None:
        super().__init__(file, closefd=False)
        self.at = time.monotonic()

    def readinto(self, buffer: Any) -> int | None:
        count = super().readinto(buffer)
        self.at = time.monotonic()
        return count


class _OtherVersion(ValueError):
    """The program there is of another version, with another protocol."""


class WorkerProcess:
    """A worker in a process of its own. Any thread may call it; every method returns at once."""

    def __init__(self, command: Callable[[str], list[str]], place: Place | None = None) -> None:
        """`command` builds the command line from the nonce that the worker greets with. For a `place` the local process
        may merely lead there."""
        self.hello: dict[str, Any] | None = None  # its identity and devices, once known
        self.greeted = threading.Event()  # set with it, or at the end
        self.killed = self.over = False
        self.why = ""  # how it ended, in words
        self._fault = ""  # why it was ended
        self.bytes = 0  # messages already received
        self.place, self._command = place, command
        self._heard: _TimedOutput | None = None
        self._out = queue.SimpleQueue[Saying | None]()
        self._receivers: dict[int, Receiver] = {}
        self._loose: WeakValueDictionary[int, Receiver] = WeakValueDictionary()
        self._changing = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._ended = threading.Event()
        self._lines = deque[str](maxlen=LAST_LINES)
        _alive.add(self)
        threading.Thread(target=self._write, name="speaking to a worker", daemon=True).start()

    @property
    def pid(self) -> int | None:
        """The process id of its local process, once it is started."""
        return None if self._child is None else self._child.pid

    @property
    def is_alive(self) -> bool:
        """Whether it accepts further requests."""
        return not (self.over or self.killed)

    @property
    def silent(self) -> float:
        """Seconds since it last sent anything."""
        return time.monotonic() - self._heard.at if self._heard is not None else 0.0

    def post(self, head: dict[str, Any], raw: Iterable[Any] = ()) -> None:
        """Send a message to it."""
        if not self.over:
            self._out.put((head, raw))

    def post_all(self, makes: Callable[[], Iterator[Said]]) -> None:
        """Send the messages that this yields, in the thread that writes."""
        if not self.over:
            self._out.put(makes)

    def add(self, receiver: Receiver, *, loose: bool = False) -> int:
        """Return the number that addresses a receiver from now on. A `loose` one is not kept alive."""
        number = next(_numbers)
        with self._changing:
            (self._loose if loose else self._receivers)[number] = receiver
            lost = self.over
        if lost:
            receiver.lose(self.why, "")
        return number

    def drop(self, number: int) -> None:
        """Stop addressing this receiver."""
        with self._changing:
            self._receivers.pop(number, None)

    def kill(self) -> None:
        """End it and everything that it has started, without a message."""
        self.killed = True
        self._out.put(None)
        if (child := self._child) is not None and child.returncode is None:
            python_process.kill(child)

    def join(self, seconds: float) -> bool:
        """Wait for its end. Return whether it has come."""
        return self._ended.wait(seconds)

    # ---- threads

    def _write(self) -> None:
        """Start the process, and write the messages for it."""
        nonce = secrets.token_hex(8)
        try:
            child = self._child = python_process.start(
                self._command(nonce), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
        except OSError as fault:
            where = f" on {self.place.name}" if self.place else ""
            self._tell_end(f"cannot be started{where}: {fault.strerror or fault}")
            return
        reading = threading.Thread(target=self._read, args=(child, nonce), name="hearing a worker", daemon=True)
        errors = threading.Thread(
            target=self._read_errors, args=(child,), name="hearing a worker's errors", daemon=True
        )
        for thread in (reading, errors, threading.Thread(target=self._look_on, args=(child,), daemon=True)):
            thread.start()
        threading.Thread(target=self._wait, args=(child, reading, errors), name="end of a worker", daemon=True).start()
        assert child.stdin is not None
        if self.killed:
            python_process.kill(child)
        with suppress(OSError, ValueError), child.stdin:
            while (said := self._out.get()) is not None:
                for head, raw in said() if callable(said) else (said,):
                    frames.write(child.stdin.fileno(), frames.pack(head, raw))

    def _look_on(self, child: subprocess.Popen[bytes]) -> None:
        """Report silence of the process to its receivers, say from time to time that this side is alive, and kill the
        process if it has been silent for too long; until it ends."""
        told, said_at = False, time.monotonic()
        while not self._ended.wait(LOOK):
            silent = self.silent
            if silent >= SILENT or told:
                told = silent >= SILENT
                for receiver in self._everybody():
                    receiver.unheard(silent if told else 0.0)
            if self.place is None or not self.greeted.is_set():
                continue
            if silent >= GONE:
                self._fault = f"nothing came from it for {silent:.0f} s"
                python_process.kill(child)
                return
            if time.monotonic() - said_at >= WORD:
                said_at = time.monotonic()
                self.post({"m": "alive"})

    def _read(self, child: subprocess.Popen[bytes], nonce: str) -> None:
        """Deliver its messages to their receivers."""
        assert child.stdout is not None
        try:
            self._heard = _TimedOutput(child.stdout.fileno())
            with child.stdout, io.BufferedReader(self._heard) as file:
                noise = frames.find_greeting(file, nonce)
                if noise is None:
                    if not self._lines:  # it reports itself what is wrong
                        self._lines.append("it did not greet as a worker of this program does")
                    python_process.kill(child)
                    return
                while (frame := frames.read(file)) is not None:
                    self._take(frame)
        except (BrokenFrame, LookupError, TypeError, ValueError) as fault:
            known = isinstance(fault, _OtherVersion)
            self._fault = str(fault) if known else f"it said what cannot be read: {fault}"
            python_process.kill(child)
        except OSError:
            pass

    def _take(self, frame: Frame) -> None:
        self.bytes += frame.size
        head = frame.head
        if head["m"] == "hello":
            self.hello = head
            self.greeted.set()
        elif head["m"] == "version":
            if head["version"] != gradstudio.__version__:
                raise _OtherVersion(f"it has GradStudio {head['version']}: {TO_INSTALL}")
        elif head["m"] != "alive":
            number = cast("int", head["to"])
            receiver = self._receivers.get(number) or self._loose.get(number)
            if receiver is not None:
                receiver.take(frame)

    def _read_errors(self, child: subprocess.Popen[bytes]) -> None:
        """Pass on its stderr, and keep the last lines."""
        assert child.stderr is not None
        with suppress(OSError, ValueError), child.stderr as file:
            while line := file.readline(1 << 16):
                self._lines.append(line.decode(errors="replace").rstrip("\n"))
                with suppress(OSError):
                    if self.place is None or self.hello is not None:  # why it did not start is reported in one line
                        os.write(2, line)

    def _wait(self, child: subprocess.Popen[bytes], *readers: threading.Thread) -> None:
        """Wait for its end, which is not implied by the end of its output: processes that it has started may keep that
        open."""
        if hasattr(os, "waitid"):
            with suppress(OSError):
                # it keeps its process id until its group is ended
                os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
            python_process.kill(child)
        code = child.wait()
        for reader in readers:
            reader.join(ENDING)
        self._lines.extend([self._fault] if self._fault else [])
        self._tell_end(
            self.place.end_in_words(code, list(self._lines)) if self.place else python_process.how_it_ended(code)
        )

    def _tell_end(self, why: str) -> None:
        with self._changing:
            self.why, self.over = why, True
        self._ended.set()
        self.greeted.set()
        self._out.put(None)
        for receiver in self._everybody():
            receiver.lose(why, "\n".join(self._lines))
        self._receivers.clear()
        _alive.discard(self)

    def _everybody(self) -> list[Receiver]:
        with self._changing:
            return [*self._receivers.values(), *self._loose.values()]


_alive = WeakSet[WorkerProcess]()


def alive() -> list[WorkerProcess]:
    """Return the workers of this program that have not ended."""
    return [process for process in list(_alive) if not process.over]
