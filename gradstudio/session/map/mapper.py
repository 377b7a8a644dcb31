"""Making a map in its own thread: it plans, submits cells, stores them in the journal, and reports its progress. It can
be paused, cancelled and resumed."""

from __future__ import annotations

import contextlib
import math
import threading
import time
import traceback
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Literal

from gradstudio.session.map import grid as grids
from gradstudio.session.map import refine, workers
from gradstudio.session.map.cluster import Cluster
from gradstudio.session.map.journal import Journal, JournalError
from gradstudio.session.map.map_plan import Job, Plan, Spot
from gradstudio.session.map.map_progress import Progress
from gradstudio.session.map.outcome import CellResult
from gradstudio.session.map.place import along
from gradstudio.session.map.place_cells import PlaceCells
from gradstudio.session.map.workers import CrewError, Pool

Status = Literal["planned", "running", "paused", "finished", "stopped", "failed"]
MEMORY = 40  # cells whose time predicts how long the rest of a level takes


class Mapper(threading.Thread):
    """Makes one map. Any thread may read `status`, `message`, `progress` and `results`, and call pause, go_on and
    stop."""

    def __init__(
        self, plan: Plan, path: Path, *, resume: bool = False, size: int = 0, cluster: str = "",
        there: PlaceCells | None = None, yielding: bool = False,
    ) -> None:  # fmt: skip
        """`size`: number of worker processes, 0: one per core. `cluster`: the address of a Dask scheduler; "": none.
        `there`: the place that trains; None: this machine. `yielding`: the workers leave the cores to whatever else
        needs them, such as a window."""
        super().__init__(name="map", daemon=True)
        self.plan, self.path = plan, path
        self.status: Status = "planned"
        self.message = ""  # why it failed, as one line
        self.failure = ""  # the traceback of an error of the program
        self.refused = False  # whether it failed because the request is impossible
        self.progress = Progress()
        # In the order in which the cells were finished, those of an earlier call first. Append-only.
        self.results: list[tuple[Job, CellResult]] = []
        self._resume, self._size, self._cluster, self._yielding = resume, size, cluster, yielding
        self._there = there
        self._cancelled, self._paused = threading.Event(), threading.Event()
        self._times: list[float] = []
        self._failed = 0

    def pause(self) -> None:
        """Submit no more cells; those in progress are finished and stored."""
        self._paused.set()
        if self.status == "running":
            self.status = "paused"

    def go_on(self) -> None:
        """Submit cells again after a pause."""
        self._paused.clear()
        if self.status == "paused":
            self.status = "running"

    def stop(self) -> None:
        """End the work. Finished cells stay in the file, and the map can be resumed."""
        self._cancelled.set()

    def run(self) -> None:
        try:
            with (
                contextlib.closing(self._crew()) as crew,
                Journal(self.path, self.plan, resume=self._resume) as journal,
            ):
                self.results += journal.results.items()
                self._failed = sum(trained.outcome == "failed" for trained in journal.results.values())
                self.status = "paused" if self._paused.is_set() else "running"
                self.status = "finished" if self._make(journal, crew) else "stopped"
        except (JournalError, CrewError) as fault:
            self.refused = not self.progress.level
            self._fail(str(fault))
        except Exception as fault:
            self.failure = traceback.format_exc()
            self._fail(f"{type(fault).__name__}: {fault}")

    def _crew(self) -> PlaceCells | Cluster | Pool:
        if self._there is not None:
            return self._there
        return Cluster(self._cluster) if self._cluster else Pool(self._size, yielding=self._yielding)

    def _fail(self, message: str) -> None:
        self.message, self.status = message, "failed"

    def _make(self, journal: Journal, crew: PlaceCells | workers.Crew) -> bool:
        """Train level after level. Return whether the map is complete."""
        level = 0
        while not self._cancelled.is_set():
            jobs = coarse_first(self.plan, grids.next_jobs(self.plan, journal.results))
            if not jobs:
                return True
            level += 1
            self._tell(journal, level, 0, len(jobs))
            self._times = [time.monotonic()]
            train = crew.results if isinstance(crew, PlaceCells) else partial(workers.results, crew)
            finished = train(self.plan, jobs, self._paused.is_set, self._cancelled.is_set)
            for done, (job, trained) in enumerate(finished, 1):
                result = journal.add(job, trained)
                self.results.append((job, result))
                self._failed += result.outcome == "failed"
                self._times = [*self._times[-MEMORY:], time.monotonic()]
                self._tell(journal, level, done, len(jobs))
        return False

    def _tell(self, journal: Journal, level: int, done: int, of: int) -> None:
        left = 0.0 if done == of else None
        if 4 <= done < of:
            left = (self._times[-1] - self._times[0]) / (len(self._times) - 1) * (of - done)
        self.progress = Progress(level, done, of, len(journal.results), self._failed, left)


def coarse_first(plan: Plan, jobs: Sequence[Job]) -> list[Job]:
    """Return the jobs of a level in the order in which they are made: first the representatives of blocks over the
    whole area, some four by four, then those of blocks half that size, and so on; among equals those near the current
    knobs. So the whole map is visible coarsely at once. A cell has all its seeds one after the other."""
    stages = refine.stages(plan.shape[1:])
    _, rows, columns = plan.shape
    across, up = (
        middle / 2 if (place := along(axis, plan.experiment[axis.knob])) is None else place
        for axis, middle in ((plan.x, columns), (plan.y, rows))
    )

    def rank(job: Job) -> tuple[int, float, Spot, int]:
        spot = job.spot
        away = math.hypot((spot.column + 0.5 - across) / columns, (spot.row + 0.5 - up) / rows)
        return int(stages[spot.row, spot.column]), round(away, 9), spot, job.seed

    return sorted(jobs, key=rank)
