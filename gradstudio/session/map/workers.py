"""The processes that train cells: a pool on this machine. cluster.py has a crew on a cluster.

A pool breaks when one of its processes dies, without reporting which cell it was training. So the cells in progress are
trained again, one at a time, in a new pool; the one that breaks it alone, twice, is poison and marked failed."""

from __future__ import annotations

import math
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, ProcessPoolExecutor, wait
from dataclasses import replace
from typing import Any, Protocol

from gradstudio.core import process_server, trust
from gradstudio.core.knobs import KnobError
from gradstudio.session.map import train_cell
from gradstudio.session.map.map_plan import Job, Plan
from gradstudio.session.map.outcome import CellResult
from gradstudio.session.map.train_cell import Order

LOOK = 0.2  # seconds between two checks for user requests
NICE = 10  # niceness of workers that yield, of 19
STRIKES = 2  # times that a cell may break a pool alone
LOST = "its worker process ended, as by a crash or for want of memory"


class CrewError(RuntimeError):
    """Workers that are no longer available. One line for the user."""


class Crew(Protocol):
    """Processes that train cells."""

    @property
    def size(self) -> int:
        """The number of cells that are trained at a time."""
        ...

    def executor(self) -> Executor:
        """Return the executor; a new one after it broke."""
        ...

    def check(self) -> None:
        """Raise CrewError if the workers are gone permanently."""
        ...

    def fault_of_cell(self, fault: BaseException) -> str:
        """Return why a cell failed with this exception; CrewError if the cell is not to blame."""
        ...

    def close(self) -> None:
        """End the work: cells in progress are abandoned."""
        ...


class Pool:
    """Processes on this machine, each of which trains with one torch thread unless GRADSTUDIO_THREADS asks for more."""

    def __init__(self, size: int = 0, *, yielding: bool = False) -> None:
        """`size`: number of processes; 0: one for each core that this process may use. `yielding`: they leave the cores
        to whatever else needs them."""
        self.size = size or cores()
        self._context: Any = process_server.context(
            ["gradstudio.engine.trainer", "gradstudio.engine.snapshot", __name__]
        )
        self._stop = self._context.RawValue("b", 0)  # not an Event, whose lock a worker may hold when it is killed
        self._executor: ProcessPoolExecutor | None = None
        self._yielding = yielding

    def executor(self) -> Executor:
        if self._executor is None:
            process_server.start()
            self._executor = ProcessPoolExecutor(
                self.size,
                mp_context=self._context,
                initializer=_begin,
                initargs=(self._stop, self._yielding, trust.agreed_here()),
            )
        return self._executor

    def discard(self) -> None:
        """Release a broken pool."""
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


def _begin(stop: Any, yielding: bool, agreed: frozenset[str]) -> None:
    """Set up a worker process: Ctrl+C is left to the parent, and no worker outlives it."""
    global _stop
    _stop = stop
    trust.agree_here(*agreed)
    process_server.end_with_parent()
    if yielding and hasattr(os, "nice"):
        os.nice(NICE)


def work(order: Order) -> CellResult | None:
    """Train a cell in a worker process; None if the map is stopped."""
    return _bench.train(order, lambda: _stop is not None and bool(_stop.value))


def results(
    crew: Crew, plan: Plan, jobs: Iterable[Job], halted: Callable[[], bool], stopped: Callable[[], bool]
) -> Iterator[tuple[Job, CellResult]]:
    """Yield the result of each job, as it arrives. While `halted` no job is submitted; once `stopped` this ends. Only
    twice as many jobs as workers are submitted at a time, so that stopping means not submitting."""
    shift = _Shift(crew, plan, jobs)
    while not stopped():
        yield from shift.unplayable()
        if not halted():
            shift.give_out()
        if shift.idle:
            if not shift.has_left:
                return
            time.sleep(LOOK)  # halted, with nothing in progress
            continue
        yield from shift.collect()


class _Shift:
    """The jobs of one call of `results`: the pending ones, those in progress, and those that may be poison."""

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
        """Submit a suspect by itself, or else as many jobs as there is room for."""
        if self._suspects:
            if not self._under_way:
                self._submit(self._suspects.popleft())
            return
        if not self._again.isdisjoint(self._under_way.values()):
            return  # the last suspect is still in progress
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
        """Create a new pool after a worker died, and find out which of the lost jobs was to blame."""
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
        """Submit a job. Return False if the pool broke meanwhile."""
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
