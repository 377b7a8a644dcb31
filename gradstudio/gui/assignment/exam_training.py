"""Training the runs of an exam to their end, beside the window and beside a run that is paused in it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from weakref import WeakSet

from gradstudio.gui.services.tasks import Task
from gradstudio.session.record.run import Run
from gradstudio.session.running.whole_run import train_whole


def of_task(task: Task) -> Callable[[Run], None]:
    """Return what trains runs for a task, as making and grading an exam need it; it raises Cancelled."""

    def trained(run: Run) -> None:
        train_whole(run, lambda: task.cancelled)
        task.check()

    return trained


_living = WeakSet[threading.Thread]()  # those that ended are freed


def ended(seconds: float) -> bool:
    """Wait so many seconds at most for what was told to stop, and return whether it has ended."""
    end = time.monotonic() + seconds
    for each in list(_living):
        each.join(max(end - time.monotonic(), 0))
    return not any(each.is_alive() for each in _living)


class ExamTraining(threading.Thread):
    """Trains one run."""

    def __init__(self, run: Run) -> None:
        super().__init__(name="training a run of an exam", daemon=True)
        self.record = run
        _living.add(self)
        self._stopping = threading.Event()

    def run(self) -> None:
        train_whole(self.record, self._stopping.is_set)

    def stop(self) -> None:
        """Make no more steps."""
        self._stopping.set()
