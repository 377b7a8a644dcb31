"""The library thread: it has a connection to the run library of its own, so that a long list, a long run or a slow disk
never holds the window up. Results are handed over on the GUI thread."""

from __future__ import annotations

import queue
import sqlite3
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from PySide6.QtCore import QObject, QTimer, Signal

from gradstudio.gui.services.tasks import Task, Tasks
from gradstudio.session.library.store import Library, LibraryError

POLL = 25  # ms between two looks for a result while one is awaited

Work = Callable[[Library], Any]
Told = Callable[[Any], object]


class Request(NamedTuple):
    """What is asked of the library, and whom its answer is for."""

    work: Work
    done: Told
    failed: Told
    task: Task | None

    @property
    def cancelled(self) -> bool:
        return self.task is not None and self.task.cancelled


class LibraryThread(QObject):
    """Carries out requests to the library, one after the other. Only the GUI thread calls it."""

    failed = Signal(str)  # why a request failed that has no handler of its own, or what became of a damaged library

    def __init__(self, path: Path, tasks: Tasks) -> None:
        super().__init__()
        self.path = path
        self._tasks = tasks
        self._asked: queue.SimpleQueue[Request | None] = queue.SimpleQueue()
        self._answers: deque[tuple[Request, Told, Any]] = deque()
        self._notices: deque[str] = deque()
        self._awaited = 0
        self._closed = False
        self._thread: threading.Thread | None = None  # begins, and makes the file, at the first request
        self._timer = QTimer(self)
        self._timer.setInterval(POLL)
        self._timer.timeout.connect(self._hand_over)

    @property
    def busy(self) -> bool:
        """Whether a request is not done yet."""
        return self._awaited > 0

    @property
    def alive(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def ask(
        self, work: Work, done: Told = lambda _: None, failed: Told | None = None, task: Task | None = None
    ) -> None:
        """Do `work` in the thread; then call `done` with its result, or `failed` with the reason, on this thread. Where
        a person cancels the `task` that this is a part of, the result is dropped, and the reason is empty."""
        if self._closed:
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="reading the run library", daemon=True)
            self._thread.start()
        self._awaited += 1
        self._asked.put(Request(work, done, failed or self.failed.emit, task))
        self._timer.start()

    def close(self, seconds: float) -> bool:
        """Finish the requests and end without handing results over; return whether it has ended in so many seconds."""
        self._closed = True
        self._timer.stop()
        if self._thread is not None:
            self._asked.put(None)
            self._thread.join(seconds)
        return not self.alive

    def _hand_over(self) -> None:
        while self._answers:
            request, told, answer = self._answers.popleft()
            self._awaited -= 1
            if request.task is not None:
                self._tasks.end_part(request.task)
            if not request.cancelled:
                told(answer)
            elif request.failed != self.failed.emit:
                request.failed("")
        while self._notices:  # last, so that no answer hides it
            self.failed.emit(self._notices.popleft())
        if not self._awaited:
            self._timer.stop()

    def _run(self) -> None:
        library: Library | None = None
        while (job := self._asked.get()) is not None:
            library = self._carry_out(job, library)
            del job  # it may hold a run, and the next one may come tomorrow
        if library is not None:
            library.close()

    def _carry_out(self, job: Request, library: Library | None) -> Library | None:
        """Put the answer of a request beside the others. Return the library, open from now on if it could be opened."""
        told: Told = job.failed
        if library is not None and library.replaced:
            library.close()
            library = None
        try:
            if library is None:
                library = Library(self.path)
            told, answer = job.done, None if job.cancelled else job.work(library)
        except LibraryError as fault:
            answer = str(fault)
        except (sqlite3.Error, OSError) as fault:
            answer = f"the run library {self.path}: {fault}"
        except Exception as fault:  # a run of another version must not end the thread
            answer = f"the run library {self.path}: {type(fault).__name__}: {str(fault)[:200]}"
        if library is not None and library.notice:
            self._notices.append(library.notice)
            library.notice = ""  # it is told once
        self._answers.append((job, told, answer))
        return library
