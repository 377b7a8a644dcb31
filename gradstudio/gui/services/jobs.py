"""All work of the window outside of the GUI thread: reading, writing, drawing, training. A job runs in a thread; its
result is handed over on the GUI thread, by the heartbeat."""

from __future__ import annotations

import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import Protocol, TypeVar
from weakref import WeakSet

from gradstudio.gui.services.message_bar import MessageBar

SHOWN_AFTER = 0.5  # seconds
LAST_WRITING = 20.0  # seconds allowed for completing a file when the window closes

T = TypeVar("T")
Call = Callable[[], object]


class Cancelled(Exception):
    """The user has cancelled the task that this thread works for."""


class JobError(Exception):
    """Why a job cannot be done: one line for the user, and details if they help."""

    def __init__(self, problem: str, details: str = "") -> None:
        super().__init__(problem)
        self.details = details


class Task:
    """Progress and cancellation of something that takes a while. `words` describe it, such as "Writing report.html";
    without words, it is not shown. `parts` is the number of things to do, if there are several."""

    def __init__(self, words: str, parts: int = 1, *, can_cancel: bool = True, writes: bool = False) -> None:
        self.words, self.parts, self.can_cancel, self.writes = words, parts, can_cancel, writes
        self.done = 0  # parts
        self.cancelled = False
        self.problem, self.details = "", ""  # why it failed, unless it was cancelled
        self.ended = threading.Event()
        self._begun = time.monotonic()

    def cancel(self) -> None:
        """Stop the threads that work for it. Finished results stay."""
        self.cancelled = True

    def check(self) -> None:
        """Raise Cancelled if the user has cancelled it. Any thread may call it."""
        if self.cancelled:
            raise Cancelled

    @property
    def seconds(self) -> float:
        """Seconds since it began."""
        return time.monotonic() - self._begun


class Stoppable(Protocol):
    """A thread of the session."""

    def stop(self) -> object: ...
    def is_alive(self) -> bool: ...
    def join(self, timeout: float | None = None) -> None: ...


class Jobs:
    """The jobs of one window. Only the GUI thread calls it, except for `post`."""

    def __init__(self, message: MessageBar) -> None:
        self._message = message
        self.tasks: list[Task] = []
        self._answers: deque[Call] = deque()
        self._queues: dict[str, SimpleQueue[Call | None]] = {}
        self._threads = WeakSet[threading.Thread]()
        self._leaving = WeakSet[Stoppable]()  # told to stop, perhaps still in a step
        self._closed = False

    def start(
        self, words: str, do: Callable[[Task], T], done: Callable[[T], object] = lambda _: None,
        failed: Callable[[Task], object] | None = None, *, queue: str = "", parts: int = 1, can_cancel: bool = True,
        writes: bool = False,
    ) -> Task:  # fmt: skip
        """Call `do` in a thread; then, on the GUI thread, `done` with its result, or `failed` if it was cancelled or
        raised an exception, which the message bar shows by default. Jobs of one `queue` are done one after the other,
        in one thread. `writes`: closing waits for it, and a late cancellation does not undo it."""
        task = Task(words, parts, can_cancel=can_cancel, writes=writes)
        if self._closed:
            return task
        self.tasks.append(task)
        waiting = self._queues.get(queue)
        if waiting is None:
            waiting = SimpleQueue[Call | None]()
            thread = threading.Thread(target=_carry_out, args=(waiting,), name=queue or words or "a job", daemon=True)
            self._threads.add(thread)
            thread.start()
        waiting.put(partial(self._work, task, do, done, failed or self.tell))
        if queue:
            self._queues[queue] = waiting
        else:
            waiting.put(None)
        return task

    def begin(self, words: str) -> Task:
        """Show something that another program does, until `end`."""
        task = Task(words, can_cancel=False)
        self.tasks.append(task)
        return task

    def end(self, task: Task) -> None:
        if task in self.tasks:
            self.tasks.remove(task)

    def post(self, call: Call) -> None:
        """Have this called on the GUI thread. Any thread may call it."""
        self._answers.append(call)

    def hand_over(self) -> None:
        """Hand over the results of the jobs since the last beat."""
        for _ in range(len(self._answers)):
            self._answers.popleft()()

    def tell(self, task: Task) -> None:
        """Show why a job failed."""
        if task.problem:
            self._message.show_error(task.problem, task.details)
        elif task.words:
            self._message.show_news(f"Cancelled: {task.words[:1].lower()}{task.words[1:]}.")

    @property
    def long(self) -> list[Task]:
        """Visible tasks, the oldest first."""
        return [task for task in self.tasks if task.words and not task.cancelled and task.seconds > SHOWN_AFTER]

    @property
    def busy(self) -> bool:
        """Whether a result is still to be handed over."""
        return bool(self.tasks or self._answers)

    def leave(self, thread: Stoppable) -> None:
        """Have a thread of the session stop after its current step. Closing waits for it."""
        thread.stop()
        self._leaving.add(thread)

    def close(self, seconds: float) -> bool:
        """Wait until files are written, cancel the rest, and hand nothing over. Return whether every thread, including
        abandoned ones of the session, has ended within this many seconds."""
        self._closed = True
        for task in self.tasks:
            if task.can_cancel and not task.writes:
                task.cancel()
        for waiting in self._queues.values():
            waiting.put(None)
        now = time.monotonic()
        for task in [task for task in self.tasks if task.writes]:
            task.ended.wait(max(now + LAST_WRITING - time.monotonic(), 0))
        threads = [*self._threads, *self._leaving]
        for thread in threads:
            thread.join(max(now + seconds - time.monotonic(), 0.05))
        return not any(thread.is_alive() for thread in threads)

    def _work(
        self, task: Task, do: Callable[[Task], T], done: Callable[[T], object], failed: Callable[[Task], object]
    ) -> None:  # fmt: skip
        told: Call = partial(failed, task)
        try:
            task.check()
            answer = do(task)
            if not task.writes:
                task.check()
            told = partial(done, answer)
        except Cancelled:
            pass
        except JobError as fault:
            task.problem, task.details = str(fault), fault.details
        except Exception as fault:  # a run of another version, a faulty file: none ends the window
            task.problem = f"{task.words or 'Work in the background'}: {type(fault).__name__}: {str(fault)[:200]}"
            task.details = traceback.format_exc()
        self.post(partial(self._end, task, told))
        task.ended.set()

    def _end(self, task: Task, told: Call) -> None:
        self.end(task)
        told()


def _carry_out(waiting: SimpleQueue[Call | None]) -> None:
    while (work := waiting.get()) is not None:
        work()
        del work  # it may refer to a run, and the next one may come tomorrow
