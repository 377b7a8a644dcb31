"""What takes its time in the background, so that a person sees how far it is and can cancel it."""

from __future__ import annotations

import time

SHOWN_AFTER = 0.5  # seconds


class Cancelled(Exception):
    """A person has cancelled the task that this thread works for."""


class Task:
    """`words` say what is done, such as "Writing report.html". `parts` is the number of things to do, where there are
    several."""

    def __init__(self, words: str, parts: int = 1, *, can_cancel: bool = True) -> None:
        self.words, self.parts, self.can_cancel = words, parts, can_cancel
        self.done = 0  # parts
        self.failed = 0  # of them
        self.cancelled = False
        self._begun = time.monotonic()

    def cancel(self) -> None:
        """Have the threads that work for it leave off. What is whole by then stays."""
        self.cancelled = True

    def check(self) -> None:
        """Raise Cancelled where a person has cancelled it. Any thread may call it."""
        if self.cancelled:
            raise Cancelled

    @property
    def over(self) -> bool:
        return self.done >= self.parts

    @property
    def seconds(self) -> float:
        """Seconds since it began."""
        return time.monotonic() - self._begun


class Tasks:
    """The tasks of one window. Only the GUI thread begins and ends one."""

    def __init__(self) -> None:
        self._tasks: list[Task] = []

    def begin(self, words: str, parts: int = 1, *, can_cancel: bool = True) -> Task:
        task = Task(words, parts, can_cancel=can_cancel)
        self._tasks.append(task)
        return task

    def end_part(self, task: Task) -> None:
        """Count one of its parts as done, whatever came of it."""
        task.done += 1
        if task.over and task in self._tasks:
            self._tasks.remove(task)

    @property
    def long(self) -> list[Task]:
        """Tasks that a person waits for, the oldest first."""
        return [task for task in self._tasks if not task.cancelled and task.seconds > SHOWN_AFTER]
