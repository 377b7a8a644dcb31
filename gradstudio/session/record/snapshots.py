"""The snapshots that are kept of a family of runs: dense for recent steps, sparser with age, within a memory budget.

The worker adds them; any thread reads them."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

import numpy as np

from gradstudio.core.diagnosis.diagnosis import Diagnosis
from gradstudio.core.diagnosis.finding import Finding
from gradstudio.core.experiment import Experiment, differing_values
from gradstudio.session.record.run import Run

if TYPE_CHECKING:
    from gradstudio.engine.snapshot import Snapshot
    from gradstudio.engine.spilled_snapshot import SpilledSnapshot
    from gradstudio.engine.trainer import Trainer

BUDGET = 256 << 20  # bytes
GAP = 0.12  # seconds of training between two, at least: a rewind takes no longer from the one before its step
COST = 1 / 100  # share of the training time that taking snapshots may cost
LATEST = 1000  # latest steps whose snapshots are dropped last, so that a rewind to any of them is short
OLDER = 0.2  # share of the budget reserved for older snapshots if there is no room for all
MOST = 600  # snapshots
FEW = 4  # snapshots of which memory must have room, or they go to disk
LARGE = 16 << 20  # bytes of a snapshot; smaller ones never go to disk
DISK = 16 << 30  # bytes on disk
DISK_RATE = 50e6  # bytes a second of training that are written to disk, at most


@dataclass(frozen=True, eq=False)
class KeptSnapshot:
    """The state of a trainer before `step` of a run, with the diagnosis at that point: None if its rules have to be
    replayed on the steps before it. `seconds` were spent in those steps."""

    run: str
    step: int
    state: Snapshot | SpilledSnapshot | Any
    diagnosis: Diagnosis | None
    findings: dict[str, Finding]
    seconds: float


class StoredSnapshot(NamedTuple):
    """A snapshot that the library has, as bytes."""

    run: str
    step: int
    seconds: float
    content: bytes


class RemoteSnapshots(Protocol):
    """The snapshots of a family that another process keeps, as far as they are known here."""

    budget: int
    used: int
    on_disk: bool

    def __len__(self) -> int: ...
    def steps(self, run: Run) -> list[int]: ...
    def resize(self, budget: int) -> None: ...
    def forget(self, runs: Iterable[str]) -> None: ...
    def pack(self, run: Run) -> list[tuple[int, bytes]]:
        """Return step and bytes of the snapshots of a run for the library."""
        ...


class Snapshots:
    """The snapshots of a run and of all its branches."""

    def __init__(
        self,
        budget: int = BUDGET,
        *,
        gap: float = GAP,
        stored: Callable[[list[str]], Iterable[StoredSnapshot]] | None = None,
    ) -> None:
        """`stored` returns the snapshots that the library has of these runs."""
        self.budget, self.used = budget, 0  # bytes
        self.on_disk = False  # whether they are on disk, as memory has room for few
        self._stored, self._fetched = stored, set[str]()
        self._gap = gap  # seconds
        self._costs = deque[float](maxlen=5)  # seconds that the latest took
        self._line: dict[str, float] = {}  # the latest snapshot's run and its ancestors, and up to which step
        self._kept: dict[int, KeptSnapshot] = {}  # in the order in which they were taken, by their number in it
        self._taken = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._kept)

    def all(self) -> list[KeptSnapshot]:
        """Return every snapshot, of any run."""
        return list(self._kept.values())

    def steps(self, run: Run) -> list[int]:
        """Return the steps from which the run can go on at once, in order."""
        return sorted({snapshot.step for snapshot in list(self._kept.values()) if _serves(snapshot, run)})

    def due(self, seconds: float) -> bool:
        """Return whether it is time for the next snapshot, `seconds` of training after the latest."""
        cost = min(self._costs) if len(self._costs) > 2 else 0.0  # the others were delayed by something else
        latest = next(reversed(self._kept.values()), None) if self.on_disk else None
        writing = latest.state.nbytes / DISK_RATE if latest is not None else 0.0
        return seconds >= max(self._gap, cost / COST, writing) and not (latest is not None and latest.state.moving)

    def add(self, kept: KeptSnapshot, cost: float, ancestors: Mapping[str, int] | None = None) -> None:
        """Keep a snapshot that took `cost` seconds to take; others may be dropped for it. `ancestors` are those of the
        snapshot's run."""
        if kept.state.nbytes > max(self.budget // FEW, LARGE):
            from gradstudio.engine.spilled_snapshot import SpilledSnapshot

            kept = replace(kept, state=SpilledSnapshot(cast("Snapshot", kept.state)))
        self._costs.append(cost)
        self._line = {kept.run: np.inf, **(ancestors or {})}
        self._insert(kept)

    def fetch(self, run: Run, trainer: Trainer) -> None:
        """Load the library's snapshots of the run and its ancestors, if none of them are kept yet and they fit the
        trainer. Any training thread may call this."""
        from gradstudio.engine.snapshot import Snapshot, SnapshotError

        with self._lock:
            known = self._fetched | {snapshot.run for snapshot in self._kept.values()}
            wanted = [each for each in (*run.ancestors, *([run.id] if run.own else [])) if each not in known]
            self._fetched.update(wanted)
        for run_id, step, seconds, content in self._stored(wanted) if self._stored and wanted else ():
            try:
                state = Snapshot.unpack(content, trainer.device, trainer.experiment.studio_file)
            except SnapshotError:
                continue  # the steps before it are replayed instead
            if state.step == step and same_kind(state.experiment, trainer.experiment) and state.fits(trainer):
                self._insert(KeptSnapshot(run_id, step, state, None, {}, seconds))

    def of(self, run: Run) -> list[KeptSnapshot]:
        """Return the snapshots of this run itself, in order."""
        return sorted(
            (snapshot for snapshot in list(self._kept.values()) if snapshot.run == run.id), key=lambda kept: kept.step
        )

    def _insert(self, kept: KeptSnapshot) -> None:
        """Keep a snapshot unless there is one of the same step."""
        with self._lock:
            if not any(kept.run == other.run and kept.step == other.step for other in self._kept.values()):
                self._kept[self._taken] = kept
                self._taken += 1
            self._thin()

    def nearest(self, run: Run, step: int) -> KeptSnapshot | None:
        """Return the latest snapshot from which the run can reach a step; None if there is none."""
        with self._lock:
            return max(
                (snapshot for snapshot in self._kept.values() if snapshot.step <= step and _serves(snapshot, run)),
                key=lambda kept: kept.step,
                default=None,
            )

    def resize(self, budget: int) -> None:
        """Limit the snapshots to `budget` bytes from now on."""
        with self._lock:
            self.budget = budget
            self._thin()

    def forget(self, runs: Iterable[str]) -> None:
        """Release the snapshots of these runs."""
        with self._lock:
            gone = set(runs)
            self._kept = {number: snapshot for number, snapshot in self._kept.items() if snapshot.run not in gone}
            self._thin()

    def _thin(self) -> None:
        """Release snapshots until the rest fits into the budget, always the least useful one."""
        while (self._is_full() or len(self._kept) > MOST) and self._kept:
            self._kept.pop(self._least())

    def _is_full(self) -> bool:
        """Count the bytes, and return whether memory or disk has too many."""
        states = [snapshot.state for snapshot in self._kept.values()]
        disk = sum(state.nbytes for state in states if state.on_disk)
        self.used, self.on_disk = sum(state.nbytes for state in states), disk > 0
        return self.used - disk > self.budget or disk > DISK

    @property
    def _room(self) -> int:
        return DISK if self.on_disk else self.budget

    def _least(self) -> int:
        """Return the number of the least useful snapshot. The value of a snapshot is the training time between its
        neighbours, divided by its age unless it is among the latest steps: those are evenly spaced, older ones get
        sparser."""
        snapshots = list(self._kept.values())
        numbers, steps, sizes = (
            np.array(each)
            for each in (list(self._kept), [each.step for each in snapshots], [each.state.nbytes for each in snapshots])
        )
        latest = np.array(
            [snapshots[-1].step - LATEST <= each.step <= self._line.get(each.run, -1) for each in snapshots]
        )
        ages = self._taken - numbers
        worth = np.where(latest, 1.0, ages[latest].max() / ages) * _gaps(snapshots, self._gap)
        worth[steps == 0] *= 1e9
        if sizes[~latest].sum() > OLDER * self._room or (~latest).sum() > OLDER * MOST:
            worth[latest] = np.inf
        worth[-1] = np.inf  # now
        return int(numbers[worth.argmin()])


def _gaps(kept: list[KeptSnapshot], gap: float) -> np.ndarray:
    """Return for each snapshot the seconds of training between its two neighbours of the same run."""
    seconds, steps, runs = (
        np.array(each)
        for each in ([each.seconds for each in kept], [each.step for each in kept], [each.run for each in kept])
    )
    lost = np.empty(len(kept))
    for run in set(runs):
        own = np.flatnonzero(runs == run)
        own = own[np.argsort(steps[own], kind="stable")]
        lost[own] = np.diff(seconds[own], append=seconds[own[-1]] + gap) + np.diff(seconds[own], prepend=0.0)
    return lost


def same_kind(one: Experiment, other: Experiment) -> bool:
    """Return whether a trainer of one experiment can be brought to any state of the other."""
    if one.studio_file != other.studio_file:
        return False
    return all(one.find_knob(name).live or name == "run.steps" for name in differing_values(one, other))


def _serves(snapshot: KeptSnapshot, run: Run) -> bool:
    """Return whether a run shares the steps before this snapshot with the run that it was taken of."""
    return snapshot.run == run.id or snapshot.step <= run.ancestors.get(snapshot.run, -1)
