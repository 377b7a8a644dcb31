"""The workers of one window: one that serves family after family, one for each studio file, and a spare one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from gradstudio.core import python_process
from gradstudio.core.worker_places import Place
from gradstudio.worker.worker_process import WorkerProcess

_MAIN = "from gradstudio.session.remote.serving import main; main(sys.argv[1])"


def start_here() -> WorkerProcess:
    """Start a worker on this machine, with this Python."""
    return WorkerProcess(lambda nonce: python_process.command(_MAIN, nonce))


def start_at(place: Place) -> WorkerProcess:
    """Start a worker at a place."""
    return WorkerProcess(lambda nonce: place.words("worker", nonce), place)


class WorkerPool:
    """Starts workers as they are needed. One serves family after family; a studio file has its own."""

    def __init__(self, start: Callable[[], WorkerProcess] = start_here, *, ahead: bool = True) -> None:
        """`ahead`: start one before it is needed, if the next run would have to wait."""
        self._start, self._ahead = start, ahead
        self._shared: WorkerProcess | None = None
        self._spare: WorkerProcess | None = None
        self._own: list[WorkerProcess] = []
        self._closed = False
        self._changing = threading.RLock()  # a family may be garbage-collected while this is locked

    def warm(self) -> WorkerProcess:
        """Return the worker for the next family, started by now."""
        return self.take(own=False)

    def hello(self) -> dict[str, Any]:
        """Return the devices of the worker, once it reports them; call it in a thread that may wait."""
        process = self.warm()
        process.greeted.wait()
        return process.hello or {"devices": [], "problem": f"The worker {process.why}.", "nccl": False}

    def take(self, *, own: bool) -> WorkerProcess:
        """Return a worker for a family; `own`: one that no other family uses."""
        with self._changing:
            shared = self._shared
            if not own and shared is not None and shared.is_alive:
                return shared
            spare, self._spare = self._spare, None
            process = spare if spare is not None and spare.is_alive else self._start()
            if self._closed:
                process.kill()
            elif own:
                self._own = [*(each for each in self._own if not each.over), process]
                self._spare = self._start() if self._ahead else None  # a restart is to begin at once
            else:
                self._shared = process
            return process

    def replace(self, process: WorkerProcess) -> None:
        """Start the next worker if this one was ended."""
        with self._changing:
            if process is self._shared and self._ahead and not self._closed:
                self._shared = self._start()

    def leave(self, process: WorkerProcess) -> None:
        """End the worker of an abandoned studio file, and the spare one, in which a restart would have begun."""
        process.post({"m": "quit"})
        with self._changing:
            if all(each is process or each.over for each in self._own) and self._spare is not None:
                self._spare.post({"m": "quit"})
                self._spare = None

    def close(self) -> None:
        """End every worker."""
        with self._changing:
            self._closed = True
        everyone = [each for each in (self._shared, self._spare, *self._own) if each is not None and not each.over]
        for process in everyone:
            process.kill()
        for process in everyone:
            process.join(1.0)
