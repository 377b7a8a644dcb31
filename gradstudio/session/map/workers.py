"""The processes that train cells: a pool of this machine's. A crew of another kind is a cluster's (cluster.py).

A pool is broken when one of its processes dies, and nobody tells which cell it had. So the cells that were under way
are trained again, one at a time, in a new pool; the one that breaks it alone, twice, is poison and marked failed."""

from __future__ import annotations

import math
import multiprocessing
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, ProcessPoolExecutor, wait
from dataclasses import replace
from typing import Any, Protocol

from gradstudio.core import process_server
from gradstudio.core.knobs import KnobError
from gradstudio.session.map import train_cell
from gradstudio.session.map.map_plan import Job, Plan
from gradstudio.session.map.outcome import CellResult
from gradstudio.session.map.train_cell import Order

LOOK = 0.2  # seconds between two looks at what a person asks for
NICE = 10  # how far workers stand back that yield, of 19
STRIKES = 2  # times that a cell may break a pool alone
LOST = "its worker process ended, as by a crash or for want of memory"


class CrewError(RuntimeError):
    """Workers that cannot be had any more. One line for the user."""


class Crew(Protocol):
    """Processes that train cells."""

    @property
    def size(self) -> int:
        """The number of cells that are trained at a time."""
        ...

    def executor(self) -> Executor:
        """Return what takes orders; a new one after it was broken."""
        ...

    def check(self) -> None:
        """Raise CrewError if the workers are gone for good."""
        ...

    def fault_of_cell(self, fault: BaseException) -> str:
        """Return why a cell failed that was given back with this exception; CrewError if it is no fault of the
        cell."""
        ...

    def close(self) -> None:
        """End the work: what is under way is given up."""
        ...


class Pool:
    """Processes of this machine, each of which trains with one thread of torch unless GRADSTUDIO_THREADS asks for
    more."""

    def __init__(self, size: int = 0, *, yielding: bool = False) -> None:
        """`size`: number of processes; 0: one for each core that this process may use. `yielding`: they leave the cores
        to whatever else needs them."""
        self.size = size or cores()
        self._context: Any = process_server.context(
            ["gradstudio.engine.trainer", "gradstudio.engine.snapshot", __name__]
        )
        self._stop = self._context.RawValue("b", 0)  # no Event, whose lock a worker may hold as it is killed
        self._executor: ProcessPoolExecutor | None = None
        self._yielding = yielding

    def executor(self) -> Executor:
        if self._executor is None:
            process_server.start()
            self._executor = ProcessPoolExecutor(
                self.size, mp_context=self._context, initializer=_begin, initargs=(self._stop, self._yielding)
            )
        return self._executor

    def discard(self) -> None:
        """Let go of a broken pool."""
        if self._executor is not None:
            self._executor.shutdown(wait=False, cancel_futures=True)
            self._executor = None

    def check(self) -> None:
        pass

    def fault_of_cell(self, fault: BaseException) -> str:
        return f"{type(fault).__name__}: {str(fault).partition(chr(10))[0][:300]}"

    def close(self) -> None:
        self._stop.value = 1
        if self._executor is not None:
            self._executor.shutdown(wait=True, cancel_futures=True)
            self._executor = None


def cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


_bench = train_cell.Bench()
_stop: Any = None  # in a worker process: its value is 1 once the map is stopped


def _begin(stop: Any, yielding: bool) -> None:
    """Set up a worker process: Ctrl+C is for the parent, and no worker outlives it."""
    global _stop
    _stop = stop
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if yielding and hasattr(os, "nice"):
        os.nice(NICE)
    threading.Thread(target=_end_with_parent, name="parent watch", daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def work(order: Order) -> CellResult | None:
    """Train a cell in a worker process; None if the map is stopped."""
    return _bench.train(order, lambda: _stop is not None and bool(_stop.value))


def results(
    crew: Crew, plan: Plan, jobs: Iterable[Job], halted: Callable[[], bool], stopped: Callable[[], bool]
) -> Iterator[tuple[Job, CellResult]]:
    """Yield what came of each of some jobs, as it comes. While `halted` no job is given out; once `stopped` this ends.
    Only twice as many jobs as workers are given out at a time, so that to stop is not to give out."""
    shift = _Shift(crew, plan, jobs)
    while not stopped():
        yield from shift.unplayable()
        if not halted():
            shift.give_out()
        if shift.idle:
            if not shift.has_left:
                return
            time.sleep(LOOK)  # halted, with nothing under way
            continue
        yield from shift.collect()


class _Shift:
    """The jobs of one call of `results`: those to come, those under way, and those that may be poison."""

    def __init__(self, crew: Crew, plan: Plan, jobs: Iterable[Job]) -> None:
        self._crew, self._plan = crew, plan
        self._to_come = deque(jobs)
        self._suspects: deque[Job] = deque()
        self._again: set[Job] = set()  # those whose worker was lost
        self._strikes: dict[Job, int] = {}
        self._under_way: dict[Future[CellResult | None], Job] = {}
        self._impossible: list[tuple[Job, CellResult]] = []

    @property
    def idle(self) -> bool:
        return not self._under_way

    @property
    def has_left(self) -> bool:
        return bool(self._to_come or self._suspects or self._impossible)

    def unplayable(self) -> Iterator[tuple[Job, CellResult]]:
        """Yield the jobs whose values do not go together."""
        while self._impossible:
            yield self._impossible.pop()

    def give_out(self) -> None:
        """Give out a suspect by itself, or else as many jobs as there is room for."""
        if self._suspects:
            if not self._under_way:
                self._submit(self._suspects.popleft())
            return
        if not self._again.isdisjoint(self._under_way.values()):
            return  # the last suspect is still under way
        while self._to_come and len(self._under_way) < 2 * self._crew.size:
            if not self._submit(self._to_come.popleft()):
                return

    def collect(self) -> Iterator[tuple[Job, CellResult]]:
        """Yield what is finished, after a short wait for it."""
        done, _ = wait(self._under_way, timeout=LOOK, return_when=FIRST_COMPLETED)
        if not done:
            self._crew.check()
        broken: list[Job] = []
        for future in done:
            job = self._under_way.pop(future)
            fault = future.exception() if not future.cancelled() else BrokenExecutor()
            if isinstance(fault, BrokenExecutor):
                broken.append(job)
            elif fault is not None:
                yield job, CellResult("failed", -1, math.nan, math.nan, 0.0, self._crew.fault_of_cell(fault), {}, True)
            elif (trained := future.result()) is not None:
                yield job, replace(trained, run_again=job in self._again)
        if broken:
            yield from self._mend([*broken, *self._under_way.values()])

    def _mend(self, lost: list[Job]) -> Iterator[tuple[Job, CellResult]]:
        """Make the pool anew after a worker died, and find out which of the lost jobs was to blame."""
        self._under_way.clear()
        if isinstance(self._crew, Pool):
            self._crew.discard()
        if len(lost) == 1:
            job = lost[0]
            self._strikes[job] = self._strikes.get(job, 0) + 1
            if self._strikes[job] >= STRIKES:
                yield job, CellResult("failed", -1, math.nan, math.nan, 0.0, LOST, {}, True)
                return
        self._again.update(lost)
        self._suspects.extend(lost)

    def _submit(self, job: Job) -> bool:
        """Give a job out. Return False if the pool broke meanwhile."""
        try:
            order = Order(self._plan.experiment_of(job), self._plan.timeline)
        except KnobError as fault:
            self._impossible.append((job, CellResult("failed", -1, math.nan, math.nan, 0.0, str(fault))))
            return True
        try:
            self._under_way[self._crew.executor().submit(work, order)] = job
        except BrokenExecutor:
            self._suspects.append(job)
            self._again.add(job)
            if not self._under_way and isinstance(self._crew, Pool):
                self._crew.discard()
            return False
        return True
