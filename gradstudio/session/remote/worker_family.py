"""A family of runs in a worker: what the worker knows about it, and what is known here about its snapshots."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any
from weakref import finalize

from gradstudio.core.typed_json import from_plain, to_plain
from gradstudio.session.record.run import Run
from gradstudio.session.record.snapshots import StoredSnapshot
from gradstudio.session.remote.one_answer import OneAnswer
from gradstudio.session.remote.run_document import document
from gradstudio.session.remote.run_news import rows_said
from gradstudio.session.remote.worker_pool import WorkerPool
from gradstudio.worker.frames import Frame
from gradstudio.worker.worker_process import Said, WorkerProcess

PIECE = 4096  # rows of a frame
PACKING = 10.0  # seconds allowed for the worker to pack a run's snapshots for the library

StoredOf = Callable[[list[str]], Iterable[StoredSnapshot]]


class WorkerFamily:
    """A family of runs that share snapshots in a worker, and what this process knows of them. After the end of its
    worker it continues in another one."""

    def __init__(self, pool: WorkerPool, budget: int, stored: StoredOf | None) -> None:
        self._pool, self._stored = pool, stored
        self.number = 0
        self.budget, self.used, self.on_disk = budget, 0, False  # bytes of snapshots
        self._steps: dict[str, list[int]] = {}  # of the snapshots, by the id of their run
        self._changing = threading.Lock()
        self._process: WorkerProcess | None = None
        self._known: dict[str, int] = {}  # runs that the worker has, and how many of their rows it got
        self._fetched = set[str]()  # runs whose stored snapshots it has
        self._trained = set[str]()  # runs that it trains or has trained: it has all their rows
        self._own: bool | None = None

    @property
    def process(self) -> WorkerProcess:
        """The worker of the family; a new one if it has ended."""
        with self._changing:
            process = self._process
            if process is None or not process.is_alive:
                process = self._process = self._pool.take(own=bool(self._own))
                self._known, self._fetched, self._trained = {}, set(), set()
                self.used, self._steps = 0, {}
                self.number = process.add(self, loose=True)
                keep = process.place is not None and process.place.keep
                process.post({"m": "family", "family": self.number, "budget": self.budget, "keep": keep})
                if self._own:
                    finalize(self, self._pool.leave, process).atexit = False
                else:
                    finalize(self, process.post, {"m": "forget_family", "family": self.number}).atexit = False
            return process

    def tell(self, head: dict[str, Any]) -> None:
        """Send the worker a message about the family, if it has one."""
        if self._process is not None:
            self._process.post({**head, "family": self.number})

    def set_speed(self, speed: float) -> None:
        """Limit a future to this many steps a second."""
        self.tell({"m": "pace", "pace": to_plain(speed)})

    def introduce(self, run: Run) -> Callable[[], None]:
        """Return a function that sends the run, in its current state, to the worker. It is to be trained there or
        looked into."""
        if self._own is None:
            self._own = run.experiment.studio_file is not None
        process = self.process
        said = None if self._knows(run) else document(run)
        return partial(self._introduce, process, run, said)

    def _knows(self, run: Run) -> bool:
        return run.id in self._trained or self._known.get(run.id, -1) >= max(len(run.history), 0)

    def _introduce(self, process: WorkerProcess, run: Run, said: dict[str, Any] | None) -> None:
        wanted = [each for each in (*run.ancestors, run.id) if each not in self._fetched | set(self._known)]
        self._fetched.update(wanted)
        if wanted and self._stored is not None and run.environment:
            process.post_all(partial(_stored_frames, self._stored, wanted, self.number))
        if said is None:
            return
        base, shared = self._base(run)
        new = run.id not in self._known
        self._known[run.id] = len(run.history)
        process.post({"m": "run", "family": self.number, "run": said, "rows_of": base, "rows": shared})
        if len(run.history) > shared:
            process.post_all(partial(_row_frames, run, shared, len(run.history), self.number))
        if new:
            finalize(run, self._forget, process, run.id).atexit = False

    def _base(self, run: Run) -> tuple[str | None, int]:
        """Return the run there with the most of the first rows of a run, and how many."""
        ends = {**run.ancestors, run.id: len(run.history)}
        shared = {
            each: min(ends[each], len(run.history), ends[each] if each in self._trained else self._known[each])
            for each in ends
            if each in self._known
        }
        base = max(shared, key=lambda each: shared[each], default=None)
        return base, shared[base] if base is not None else 0

    def trains(self, run: Run) -> None:
        """Record that the worker has every row of a run from now on."""
        self._trained.add(run.id)

    def _forget(self, process: WorkerProcess, run: str) -> None:
        """Let the worker forget a run that is no longer used here."""
        if process is self._process:
            self._known.pop(run, None)
            self._trained.discard(run)
            self.tell({"m": "forget_run", "run": run})

    # ---- same interface as the snapshots of this process

    @property
    def snapshots(self) -> WorkerFamily:
        """The known snapshots: the family itself."""
        return self

    def __len__(self) -> int:
        return sum(map(len, self._steps.values()))

    def steps(self, run: Run) -> list[int]:
        """Return the steps from which the run can go on at once, in order."""
        ends = {**run.ancestors, run.id: float("inf")}
        return sorted({step for each, steps in self._steps.items() for step in steps if step <= ends.get(each, -1)})

    def resize(self, budget: int) -> None:
        """Limit the snapshots to `budget` bytes from now on."""
        self.budget = budget
        self.tell({"m": "snapshots", "budget": budget})

    def forget(self, runs: Iterable[str]) -> None:
        """Release the snapshots of these runs."""
        self.tell({"m": "snapshots", "forget": list(runs)})

    def pack(self, run: Run) -> list[tuple[int, bytes]]:
        """Return the snapshots of a run for the library."""
        process = self._process
        if process is None or not process.is_alive or not self._knows(run):
            return []
        answer = OneAnswer(process, {"m": "pack", "family": self.number, "run": run.id})
        head, raw = answer.wait(PACKING) or ({"states": []}, memoryview(b""))
        states, at = list[tuple[int, bytes]](), 0
        for step, size in from_plain(list[tuple[int, int]], head["states"]):
            states.append((step, bytes(raw[at : at + size])))
            at += size
        return states

    # ---- messages of the worker about the family

    def take(self, frame: Frame) -> None:
        if frame.head["m"] == "kept":
            self.used, self.on_disk = from_plain(int, frame.head["used"]), from_plain(bool, frame.head["on_disk"])
            self._steps = from_plain(dict[str, list[int]], frame.head["steps"])

    def unheard(self, seconds: float) -> None:
        pass

    def lose(self, why: str, trace: str) -> None:
        self.used, self._steps = 0, {}
        if self._process is not None:
            self._pool.replace(self._process)


def _stored_frames(stored: StoredOf, runs: list[str], family: int) -> Iterator[Said]:
    for each in stored(runs):
        head = {"m": "stored", "family": family, "run": each.run, "step": each.step, "seconds": each.seconds}
        yield head, [each.content]


def _row_frames(run: Run, start: int, stop: int, family: int) -> Iterator[Said]:
    history = run.history
    for first in range(start, stop, PIECE):
        last = min(first + PIECE, stop)
        ranks = history.ranks.rows(first, last) if len(history.ranks) else None
        head, raw = rows_said(history, first, last, 0, ranks, name="rows")
        yield {**head, "run": run.id, "family": family}, raw
