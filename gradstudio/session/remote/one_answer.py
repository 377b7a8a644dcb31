"""One question to a worker, and the wait for its answer."""

from __future__ import annotations

import threading
from typing import Any

from gradstudio.core.typed_json import from_plain
from gradstudio.worker.frames import Frame
from gradstudio.worker.worker_process import WorkerProcess


class OneAnswer:
    """Sends the request at once. Any thread may wait for the answer, once."""

    def __init__(self, process: WorkerProcess, head: dict[str, Any]) -> None:
        self.why = ""  # how the worker ended, if it has
        self._process, self._come = process, threading.Event()
        self._frame: Frame | None = None
        self._number = process.add(self)
        process.post({**head, "to": self._number})

    def wait(self, seconds: float) -> tuple[dict[str, Any], memoryview] | None:
        """Return the answer; None if none arrives. RuntimeError says why there is none."""
        self._come.wait(seconds)
        self._process.drop(self._number)
        if self._frame is None:
            return None
        if problem := from_plain(str, self._frame.head["problem"]):
            raise RuntimeError(problem)
        return self._frame.head, self._frame.raw

    def take(self, frame: Frame) -> None:
        self._frame = frame
        self._come.set()

    def unheard(self, seconds: float) -> None:
        pass

    def lose(self, why: str, trace: str) -> None:
        self.why = why
        self._come.set()
