"""The runs of a simulator: the one that is shown, its family and its twin, and the workers that train them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from weakref import WeakSet

from gradstudio.core import ranks_allowed
from gradstudio.core.presets import Preset
from gradstudio.core.worker_places import Place
from gradstudio.session.library import stored_snapshots
from gradstudio.session.library.writer import LibraryWriter
from gradstudio.session.map.place_cells import PlaceCells
from gradstudio.session.record import branches
from gradstudio.session.record.branches import Family
from gradstudio.session.record.run import Run
from gradstudio.session.record.snapshots import RemoteSnapshots, Snapshots
from gradstudio.session.record.twins import Twins
from gradstudio.session.remote.place_library import PlaceLibrary
from gradstudio.session.remote.remote_backend import PlacesBackend
from gradstudio.session.requested_knobs import RequestedKnobs
from gradstudio.session.running.backend import AnyWorker, Backend, LocalBackend, RunFamily
from gradstudio.session.running.worker_commands import UNLIMITED, Stop, WatchGauges

LAST_WRITING = 0.5  # seconds allowed for the library's last write, even if training took all the time


class SimulatedRuns(RequestedKnobs):
    """The run that is shown, and everything that trains, stores or resembles it."""

    def __init__(self, preset: Preset, library: Path | None, backend: Backend | None) -> None:
        """Write every run into the `library`, if given. Runs are trained by the `backend`, by default in this
        process."""
        super().__init__()
        self._backend = PlacesBackend(backend or LocalBackend())
        self.speed = UNLIMITED
        self._library_writer = LibraryWriter(library) if library else None
        self._stored = partial(stored_snapshots.read, library) if library else None
        self.trained_by: RunFamily = self._backend.family(None)
        # the family's latest finished one: it may have a trainer to continue with
        self._before: AnyWorker | None = None
        # told to stop, perhaps still within a step; a thread that ended is released
        self._leaving = WeakSet[AnyWorker]()
        self._watched: frozenset[str] = frozenset()  # visible gauges
        self._followed: Run | None = None  # the latest run that another program was training when it was opened
        self.preset, self.requested = preset, preset.experiment

    # ---- what is shown

    @property
    def snapshots(self) -> Snapshots | RemoteSnapshots:
        """The snapshots of the family."""
        return self.trained_by.snapshots

    @property
    def busy(self) -> bool:
        """True while a training thread is alive, even one that was told to stop."""
        workers = [*self._leaving, *([self._worker] if self._worker else [])]
        return any(worker.is_alive() for worker in workers)

    @property
    def has_begun(self) -> bool:
        """True once the run has begun, now or earlier."""
        return self._worker is not None or self.run.over or self.is_trained_elsewhere  # over: opened, or shown again

    @property
    def trained_here(self) -> bool:
        """Whether the run that is shown was trained just now, rather than opened or shown again."""
        return self._worker is not None

    @property
    def going(self) -> Run:
        """The run that Run, Pause and Step act on: the one that is shown, or its twin if only that continues."""
        twin = self.twins.other if self.twins is not None and self.run is self.twins.one and self.run.over else None
        return self.run if twin is None or twin.over else twin

    @property
    def is_trained_elsewhere(self) -> bool:
        """True if another program trains the run that is shown."""
        return self.run is self._followed and not self.run.over

    @property
    def only_shown(self) -> str:
        """Why the run that is shown can only be viewed, as a sentence; "" if the simulator can train it."""
        if (watched := self.run.watched) is not None:
            if watched.log:
                return f"This run was read from the log {watched.script}: what is not in it is unknown."
            return f"This run was watched in {watched.script or 'a program'}: what it trains is set there."
        return (
            "Another program trains this run; when it is over, it can be rewound here."
            if self.is_trained_elsewhere
            else ""
        )

    @property
    def rewinds(self) -> bool:
        """Whether the run that is shown can be rewound."""
        return not self.only_shown and not ranks_allowed.several(self.run.experiment)

    @property
    def can_resume(self) -> bool:
        """True if the run that is shown was stopped here and can continue."""
        return (
            self._can_resume(self.run, len(self.run.history)) and len(self.run.history) < self.run.experiment.run.steps
        )

    def _can_resume(self, run: Run, step: int) -> bool:
        """Return whether this run itself can continue: it was stopped here, and the step is its end."""
        if ranks_allowed.several(run.experiment):
            return False
        return run.status == "stopped" and bool(run.environment) and step == len(run.history) and run.id in self._left

    @property
    def failure(self) -> str:
        """The traceback of the exception that ended the run, or ""."""
        return self._worker.failure if self._worker else ""

    @property
    def library_problem(self) -> str:
        """Reason why the library cannot be written now; "" if all is well."""
        return self._library_writer.problem if self._library_writer else ""

    @property
    def library_notice(self) -> str:
        """What happened to a damaged or replaced library, or to snapshots that cannot be stored; "" for nothing."""
        return self._library_writer.notice if self._library_writer else ""

    def library_at(self, place: Place) -> PlaceLibrary:
        """Return the run library of a place."""
        return PlaceLibrary(place, self._backend.at(place))

    def cells_at(self, place: Place | None) -> PlaceCells | None:
        """Return the object that trains the cells of a map at a place; None: here."""
        return PlaceCells(place, self._backend.at(place)) if place is not None else None

    def leaves(self, run: str) -> bool:
        """Return whether a run with this id was told to stop, and is still in a step or not yet completely written."""
        going = any(worker.is_alive() and worker.record.id == run and not worker.abandoned for worker in self._leaving)
        return going or (self._library_writer is not None and self._library_writer.follows(run))

    # ---- starting and stopping workers

    def abandon_stuck(self) -> None:
        """Abandon a training thread that was told to stop and is in a step that does not end."""
        for worker in (*self._leaving, *([self._worker] if self._worker else [])):
            if worker.is_alive():
                worker.abandon_if_stuck()

    def close(self, seconds: float) -> bool:
        """Stop, and wait at most this many seconds. Return whether the training threads have ended and everything is
        written."""
        self._leave()
        end = time.monotonic() + seconds
        for worker in self._leaving:
            if not worker.abandon_if_stuck():
                worker.join(max(end - time.monotonic(), 0))
            if worker.is_alive() and not worker.abandon_if_stuck():
                worker.abandon()
        written = self._library_writer is None or self._library_writer.close(max(end - time.monotonic(), LAST_WRITING))
        ended = not self.busy
        self._backend.close()
        return ended and written

    def train_beside(self, run: Run, stopped: Callable[[], bool]) -> None:
        """Train another run to its end, or until it is stopped; call this in a thread that may wait."""
        self._backend.here.family().train_whole(run, stopped)

    def _start(self, *, paused: bool) -> None:
        """Start a worker for the run that is shown, and for its twin."""
        self._sent = {}
        twins = self.twins if self.twins is not None and self.run is self.twins.one and not self.has_begun else None
        self._worker = self.trained_by.worker(
            self.run, paused=paused, speed=self.speed, before=self._before,
            twin=twins.other if twins else None, twin_knob=twins.knob if twins else "",
        )  # fmt: skip
        self._before = None
        if self._watched:
            self._worker.send(WatchGauges(self._watched))
        self._worker.start()
        if self._library_writer and twins:
            self._library_writer.follow(twins.other, self.snapshots)
        if self._library_writer:
            self._library_writer.follow(self.run, self.snapshots, self._worker.on_request, self._worker.show_waiting)

    def _leave(self) -> None:
        """Stop the current run and release its models, for another family."""
        if self._before:
            self._before.release()
            self._before = None
        if self._worker:
            self._worker.release()
            self._worker.send(Stop())
            self._leaving.add(self._worker)
            self._worker = None

    def _step_aside(self) -> None:
        """Stop the current run, for another one of the family. A rewound run that never continued is forgotten."""
        if self._worker:
            self._worker.send(Stop(leaving=True))
            self._leaving.add(self._worker)
            self._before, self._worker = self._worker, None
            self._left.add(self.run.id)
        if self.run.parent and not self.run.own:
            self.family.members.pop(self.run.id, None)

    def _show(self, run: Run) -> None:
        """Show this run, and request the values in force in it."""
        self.run = run
        self.family.shows(run)
        self.requested = run.in_force
        self._refusals_told, self._events_read = len(run.refusals), len(run.events)
        self._changes.forget()
        self._sent, self._later = {}, {}

    def _start_family(self, run: Run, relatives: Iterable[Run] = ()) -> None:
        """Show this run, with a family of its own."""
        self.run, self.family = run, Family([run, *relatives])
        self.twins: Twins | None = None
        self.present_place = self.next_place  # of this family; None: here
        self.trained_by = self._backend.family(self.present_place, self.snapshots.budget, self._stored)
        self._refusals_told, self._events_read = len(run.refusals), len(run.events)
        self._left: set[str] = set()  # ids of runs that were stopped here and may continue
        self._made_room = False  # whether a branch of the family had to be dropped
        self._later = {}

    def _show_new_run(self) -> None:
        self._start_family(self._new_run())

    def _new_run(self) -> Run:
        """Return a run of the requested knobs that is ready to begin."""
        return Run(self.preset, self.requested, self.preset.timeline)

    def _make_room(self) -> None:
        """Drop branches if the family has too many, provided that the library has them."""
        family = self.family
        while self._library_writer and not self.library_problem and len(family.members) > branches.MOST:
            run = family.missed_least(self.run)
            if run is None:
                return
            if not family.children(run):  # otherwise they rewind from its snapshots
                self.snapshots.forget([run.id])
            del family.members[run.id]
            self._left.discard(run.id)
            if not self._made_room:
                self._news.append(
                    f"“{run.title}” is kept in the library only: a run has at most {branches.MOST - 1} branches here."
                )
            self._made_room = True
