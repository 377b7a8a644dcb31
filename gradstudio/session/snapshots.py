"""The snapshots that are kept of runs: dense near now and thinner with age, in a budget of memory. The worker adds, any thread reads."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gradstudio.core.experiment import KNOBS, Experiment, differing
from gradstudio.core.rules import Finding, Rule
from gradstudio.session.run import Run

if TYPE_CHECKING:
    from gradstudio.engine.snapshot import Snapshot
    from gradstudio.engine.trainer import Trainer

BUDGET = 256 << 20  # bytes
GAP = 0.12  # seconds of training between two, at the least: what it takes to get from one to any step before the next
COST = 1 / 100  # of the time of training that taking them may cost
LATEST = 1000  # steps that are thinned last, so that any of them is near
OLDER = 0.2  # of the budget, which what is older than those has at the most where there is no room for all
MOST = 600


@dataclass(frozen=True, eq=False)
class Kept:
    """A state before `step` of a run, and what the rules had made of the steps before it, None where that is to be found out again.
    `seconds` were spent in those steps."""

    run: str
    step: int
    state: Snapshot | Any
    rules: list[Rule] | None
    findings: dict[str, Finding]
    seconds: float
    progress: Any = None  # what rules share; it is worked out again where it is not there


class Stored(NamedTuple):
    """A state that was written at another time, as bytes."""

    run: str
    step: int
    seconds: float
    content: bytes


class Snapshots:
    """Those of a run and of all that branched from it."""

    def __init__(self, budget: int = BUDGET, *, gap: float = GAP, stored: Callable[[list[str]], Iterable[Stored]] | None = None) -> None:
        """`stored` gives what was written of runs."""
        self.budget, self.used = budget, 0  # bytes
        self._stored, self._fetched = stored, set[str]()
        self._gap = gap  # seconds
        self._costs = deque[float](maxlen=5)  # seconds that the latest took
        self._line: dict[str, float] = {}  # the runs that the latest one's run has steps of, and up to which
        self._kept: dict[int, Kept] = {}  # by how many were taken before, in that order
        self._taken = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._kept)

    def steps(self, run: Run) -> list[int]:
        """From which steps the run can go on at once, in order."""
        return sorted({kept.step for kept in list(self._kept.values()) if _serves(kept, run)})

    def due(self, seconds: float) -> bool:
        """Whether it is time for the next one, after so many seconds in steps."""
        cost = min(self._costs) if len(self._costs) > 2 else 0.0  # the dearer of them were held up by something else
        return seconds >= max(self._gap, cost / COST)

    def add(self, kept: Kept, cost: float, ancestors: Mapping[str, int] | None = None) -> None:
        """Keep this one, which took so many seconds to take; others may have to go for it. `ancestors` are those of the run that it was
        taken of."""
        self._costs.append(cost)
        self._line = {kept.run: np.inf, **(ancestors or {})}
        self._put(kept)

    def fetch(self, run: Run, trainer: Trainer) -> None:
        """Keep too what was written of the run, and of those that it branched from, where nothing is kept of them and it fits the trainer.
        Any thread that trains may say so."""
        from gradstudio.engine.snapshot import Snapshot, SnapshotError

        with self._lock:
            known = self._fetched | {kept.run for kept in self._kept.values()}
            wanted = [each for each in (*run.ancestors, *([run.id] if run.own else [])) if each not in known]
            self._fetched.update(wanted)
        for run_id, step, seconds, content in self._stored(wanted) if self._stored and wanted else ():
            try:
                state = Snapshot.unpack(content, trainer.device)
            except SnapshotError:
                continue  # the steps before it are made again instead
            if state.step == step and same_kind(state.experiment, trainer.experiment) and state.fits(trainer):
                self._put(Kept(run_id, step, state, None, {}, seconds))

    def of(self, run: Run) -> list[Kept]:
        """Those of this very run, in order."""
        return sorted((kept for kept in list(self._kept.values()) if kept.run == run.id), key=lambda kept: kept.step)

    def _put(self, kept: Kept) -> None:
        with self._lock:
            if not any(kept.run == other.run and kept.step == other.step for other in self._kept.values()):
                self._kept[self._taken] = kept
                self._taken += 1
            self._thin()

    def nearest(self, run: Run, step: int) -> Kept | None:
        """The latest that the run can go on from to reach a step."""
        with self._lock:
            return max((kept for kept in self._kept.values() if kept.step <= step and _serves(kept, run)), key=lambda kept: kept.step, default=None)

    def resize(self, budget: int) -> None:
        """Take no more than so many bytes from now on."""
        with self._lock:
            self.budget = budget
            self._thin()

    def forget(self, runs: Iterable[str]) -> None:
        """These runs are gone."""
        with self._lock:
            gone = set(runs)
            self._kept = {number: kept for number, kept in self._kept.items() if kept.run not in gone}
            self._thin()

    def _thin(self) -> None:
        """Let go of as many as must go: always the one without which the least is lost, the way to its neighbour against its age."""
        self.used = sum(kept.state.nbytes for kept in self._kept.values())
        while self._kept and (self.used > self.budget or len(self._kept) > MOST):
            self.used -= self._kept.pop(self._least()).state.nbytes

    def _least(self) -> int:
        """Those of the latest steps lie evenly, as near to each other as there is room for; those before them the thinner the older."""
        kept = list(self._kept.values())
        numbers, steps, sizes = (np.array(each) for each in (list(self._kept), [each.step for each in kept], [each.state.nbytes for each in kept]))
        latest = np.array([kept[-1].step - LATEST <= each.step <= self._line.get(each.run, -1) for each in kept])
        ages = self._taken - numbers
        worth = np.where(latest, 1.0, ages[latest].max() / ages) * _lost(kept, self._gap)
        worth[steps == 0] *= 1e9
        if sizes[~latest].sum() > OLDER * self.budget or (~latest).sum() > OLDER * MOST:
            worth[latest] = np.inf
        worth[-1] = np.inf  # now
        return int(numbers[worth.argmin()])


def _lost(kept: list[Kept], gap: float) -> np.ndarray:
    """For each the seconds from the one before it to the one after it, of the same run."""
    seconds, steps, runs = (np.array(each) for each in ([each.seconds for each in kept], [each.step for each in kept], [each.run for each in kept]))
    lost = np.empty(len(kept))
    for run in set(runs):
        own = np.flatnonzero(runs == run)
        own = own[np.argsort(steps[own], kind="stable")]
        lost[own] = np.diff(seconds[own], append=seconds[own[-1]] + gap) + np.diff(seconds[own], prepend=0.0)
    return lost


def same_kind(one: Experiment, other: Experiment) -> bool:
    """Whether a trainer of one can be brought to any state of the other."""
    return all(KNOBS[name].live or name == "run.steps" for name in differing(one, other))


def _serves(kept: Kept, run: Run) -> bool:
    """Whether a run has the steps before this state in common with the one that it was taken of."""
    return kept.run == run.id or kept.step <= run.ancestors.get(kept.run, -1)
