"""The simulator behind the window: a preset, the requested knobs, one run at a time and its worker. No Qt in it."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from pathlib import Path

from gradstudio.core import ranks_allowed
from gradstudio.core.experiment import differing_values
from gradstudio.core.knobs import Value
from gradstudio.core.presets import Preset
from gradstudio.session.files.run_files import as_preset
from gradstudio.session.record import branches
from gradstudio.session.record.run import Run
from gradstudio.session.record.run_writer import RunWriter
from gradstudio.session.record.twins import Twins, twin_of
from gradstudio.session.running.backend import Backend
from gradstudio.session.running.worker_commands import Compare, Pause, Resume, SetSpeed, StepOnce, Stop, WatchGauges
from gradstudio.session.simulated_runs import SimulatedRuns

MORE_STEPS = 300  # number of steps by which a finished run continues


class Simulator(SimulatedRuns):
    """The user's actions on runs. Every method returns at once; only the GUI thread (or a test) calls them."""

    def __init__(self, preset: Preset, library: Path | None = None, backend: Backend | None = None) -> None:
        super().__init__(preset, library, backend)
        self.load(preset)

    def load(self, preset: Preset) -> None:
        """Load a preset: request its knobs and prepare a run. The current run is stopped."""
        self._leave()
        self.preset = preset
        self.requested = preset.experiment
        self._changes.forget()
        self._start_family(self._new_run())

    def open(self, run: Run, relatives: Iterable[Run] = ()) -> None:
        """Show a run of the library, and request its knobs. A restart repeats it with the changes that were made to it.
        `relatives` are other runs of its family. One that is not over is trained by another program; the caller keeps
        it up to date."""
        self._leave()
        self.preset = as_preset(run)
        self.requested = run.experiment
        self._changes.forget()
        self._followed = None if run.over else run
        self._start_family(run, relatives)

    def rename(self, preset: Preset) -> None:
        """Adopt a preset that contains the requested knobs. A run that trains continues."""
        self.preset = preset
        if not self.has_begun:
            self._start_family(self._new_run())

    def set_speed(self, steps_per_second: float) -> None:
        """Make no more than this many steps a second."""
        self.speed = steps_per_second
        self.trained_by.set_speed(steps_per_second)
        if self._worker:
            self._worker.send(SetSpeed(steps_per_second))

    def play(self) -> None:
        """Train, or continue where the run was paused or stopped."""
        if not self.has_begun:
            self._start(paused=False)
        elif self.can_resume:
            self._move_to_end()
        if self._worker:
            self._worker.send(Resume())

    @property
    def steps_to_go(self) -> int:
        """Number of steps that `go_on` adds to a run that is over: the rest of its plan, or else MORE_STEPS, and no
        more than the preset has. 0 if it cannot continue, as after it diverged or failed."""
        run = self.run
        if not self.rewinds or run.status not in ("stopped", "interrupted", "finished"):
            return 0
        left = max(run.experiment.run.steps, self.requested.run.steps) - len(run.history)
        return left if left > 0 else min(MORE_STEPS, self.preset.experiment.run.steps)

    def go_on(self) -> None:
        """Continue after the last step of a run that is over. A run that was stopped here continues itself; any other
        run gets a branch, which is what the run would have been with more steps in its plan."""
        if more := self.steps_to_go:
            self._move_to_end(len(self.run.history) + more)
            if self._worker:
                self._worker.send(Resume())

    def _move_to_end(self, steps: int | None = None) -> None:
        """Move behind the last step of a run that is over, with the values that were requested since. The continued run
        has `steps` in all."""
        restart = {
            name: value
            for name, value in differing_values(self.run.in_force, self.requested).items()
            if not self.requested.find_knob(name).live and name != "run.steps"
        }
        wanted = restart | self._later
        self.rewind(len(self.run.history), steps=steps)
        self._request(self.requested.with_values(wanted))

    def pause(self) -> None:
        """Pause the run after its current step."""
        if self._worker:
            self._worker.send(Pause())

    def step(self) -> None:
        """Make one optimizer step, then pause."""
        if not self.has_begun:
            self._start(paused=True)
        if self._worker:
            self._worker.send(StepOnce())

    def compare(self) -> None:
        """Compare the next step's accumulated gradient with that of its micro-batches joined into one large batch. A
        paused run makes that step."""
        if not self.has_begun:
            self._start(paused=True)
        if self._worker:
            self._worker.send(Compare())

    def watch_gauges(self, names: Iterable[str]) -> None:
        """Measure these on-demand gauges from now on, in this run and later ones, and no others."""
        self._watched = frozenset(names)
        if self._worker:
            self._worker.send(WatchGauges(self._watched))

    def restart(self) -> None:
        """Begin again from step 0 with the requested knobs."""
        self._leave()
        self._start_family(self._new_run())
        self._start(paused=False)

    # ---- rewinding, branches and twins

    def rewind(self, step: int, *, steps: int | None = None) -> None:
        """Rewind to the start of a step that the run, or an ancestor, has made. Everything is then as it was there, and
        continuing makes a branch, with `steps` in all. At the end of a run that was stopped, that run itself continues.
        KnobError for a step that was never made."""
        ranks_allowed.check_alone(self.run.experiment, "a run is not rewound")
        base = self.family.owner(self.run, step)
        if step > len(base.history) and not base.own and (parent := self.family.parent(base)):
            base = parent
        stands_there = base is self.run and step == len(base.history) and not base.over
        if stands_there and base.status != "running":  # a running one would be elsewhere by then
            self.pause()
            return
        longer = steps if steps is not None and steps > base.experiment.run.steps else None
        if base.over and step == len(base.history) >= (longer or base.experiment.run.steps):
            self.show(base)  # there is nothing to continue with
            return
        run = base if self._can_resume(base, step) and longer is None else branches.fork(base, step, steps=longer)
        self._step_aside()
        self.family.add(run)
        self._show(run)
        self._make_room()
        self._start(paused=True)

    def start_twins(self, name: str, value: Value) -> None:
        """Begin again from step 0, with a twin that differs in one knob. KnobError if the twin is not possible."""
        twin = twin_of(self.preset, self.requested, name, value)
        self._leave()
        run = self._new_run()
        self._start_family(run, [twin])
        self.twins = Twins(run, twin, name)
        self._start(paused=False)

    def catch_up(self, later: Run) -> None:
        """Copy what a later reading of a run trained by another program has."""
        if self.is_trained_elsewhere and later.id == self.run.id:
            RunWriter(self.run).catch_up(later)

    def rename_run(self, run: Run, name: str) -> None:
        """Name a run of the family; "" removes the name. The run's worker writes it, or this method if no worker has
        the run."""
        workers = [worker for worker in (self._worker, *self._leaving) if worker is not None]
        if not any(worker.rename(run, name) for worker in workers):
            RunWriter(run).rename(name)

    def show(self, run: Run) -> None:
        """Show another run of the family. The current run is stopped."""
        if run is not self.run:
            self._step_aside()
            self._show(run)

    def remove(self, run: Run) -> list[Run]:
        """Remove a branch and all its descendants from the family, and return them. The root stays."""
        runs = self.family.offspring(run)
        if not run.parent or run.parent not in self.family.members:
            return []
        if self.run in runs:
            self.show(self.family.members[run.parent])
        for each in runs:
            self.family.members.pop(each.id, None)
        self.snapshots.forget(each.id for each in runs)
        return runs

    def stop(self) -> None:
        """End the run after its current step."""
        if self._worker:
            self._left.add(self.run.id)
            self._worker.send(Stop())

    def as_of(self, view: Run) -> Simulator:
        """Return a read-only simulator with a view of its run in place of the run, and the knobs of that view."""
        past = copy.copy(self)
        past.run, past.requested = view, view.in_force
        return past
