"""What a worker trains: families of runs, a run with its twin that somebody watches, and one that nobody does."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Iterable
from typing import Any

from gradstudio.core.typed_json import to_plain
from gradstudio.session import own_model
from gradstudio.session.footprint import budget
from gradstudio.session.record.run import Run
from gradstudio.session.record.snapshots import Snapshots, StoredSnapshot
from gradstudio.session.remote.run_news import RunSender
from gradstudio.session.remote.served_looks import ServedTask
from gradstudio.session.running.slow_step import slow_step
from gradstudio.session.running.whole_run import train_whole
from gradstudio.session.running.worker import Worker, thread_of
from gradstudio.session.running.worker_commands import Stop
from gradstudio.worker.worker_process import Said

LINE_AFTER = 1.0  # seconds of a step after which the line of a studio file is reported


class Family:
    """Runs that share snapshots."""

    def __init__(self, budget: int, *, keep: bool) -> None:
        self.keep = keep  # whether its runs go on where nobody hears of them
        self.stored: list[StoredSnapshot] = []
        self.snapshots = Snapshots(budget, stored=self._of)
        self.runs: dict[str, Run] = {}
        self.told: Any = None  # what was last sent about its snapshots
        self.pace = float("inf")  # steps a second of a future

    def _of(self, runs: list[str]) -> Iterable[StoredSnapshot]:
        return [each for each in self.stored if each.run in runs]

    def state(self) -> dict[str, Any]:
        """Return the state of its snapshots for the other side."""
        steps: dict[str, list[int]] = {}
        for kept in self.snapshots.all():
            steps.setdefault(kept.run, []).append(kept.step)
        return {"used": self.snapshots.used, "on_disk": self.snapshots.on_disk, "steps": steps}


class ServedWorker(ServedTask):
    """A run that trains, and its twin, for the other side."""

    def __init__(self, to: int, worker: Worker, runs: list[tuple[RunSender, int]]) -> None:
        super().__init__(to)
        self.worker, self._runs = worker, runs
        self._lines = ""

    def news(self) -> list[Said]:
        over = not self.worker.is_alive()  # read first, so that the end of the run is sent too
        said = [frame for told, to in self._runs for frame in told.news(to)]
        if over:
            self.over = True
            run = self.worker.record
            footprints = budget.known_stages(run.in_force, run.to_come) if run.refused else []
            end = {"m": "end", "to": self.to, "failure": self.worker.failure, "footprints": to_plain(footprints)}
            return [*said, (end, ())]
        return said

    def line(self) -> list[Said]:
        """Return the current line of a studio file, if a step takes long."""
        self.worker.show_waiting()
        run = self.worker.record
        slow = run.experiment.studio_file is not None and slow_step(run, LINE_AFTER) is not None
        at = own_model.line_now(run.experiment, thread_of(run)) if slow else ""
        before, self._lines = self._lines, at
        return [({"m": "line", "to": self.to, "at": at}, ())] if at != before else []

    def stop(self) -> None:
        self.worker.send(Stop(leaving=True))


class WholeRun(threading.Thread):
    """Trains a run to its end, without an audience."""

    def __init__(self, run: Run) -> None:
        super().__init__(name=thread_of(run), daemon=True)
        self.record, self.failure = run, ""
        self._stopping = threading.Event()

    def send(self, command: object) -> None:
        if isinstance(command, Stop):
            self._stopping.set()

    def show_waiting(self) -> None:
        pass

    def release(self) -> None:
        pass

    def run(self) -> None:
        try:
            train_whole(self.record, self._stopping.is_set)
        except BaseException:
            self.failure = traceback.format_exc()
