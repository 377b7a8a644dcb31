"""What a person sits in front of: a preset, the knobs as asked for, one run at a time and its worker. No Qt in it."""

from __future__ import annotations

import time
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from gradstudio.core import combinations, threads
from gradstudio.core.experiment import KNOBS, Experiment, differing
from gradstudio.core.knobs import KnobError, Value
from gradstudio.core.presets import Preset
from gradstudio.session import branches
from gradstudio.session.branches import Family
from gradstudio.session.library import stored
from gradstudio.session.library.keeper import Keeper
from gradstudio.session.output import as_preset
from gradstudio.session.run import Run
from gradstudio.session.snapshots import Snapshots
from gradstudio.session.twins import Twins, twin_of
from gradstudio.session.worker import UNLIMITED, Compare, Pause, Probe, Resume, SetKnob, SetSpeed, StepOnce, Stop, Worker

LAST_WRITING = 0.5  # seconds that the library has for it, whatever training does
MOST_TRIED = 200  # values around one that a slider came to


class Simulator:
    """The state behind the window. Every method returns at once; only the GUI thread (or a test) calls them."""

    def __init__(self, preset: Preset, library: Path | None = None) -> None:
        """Every run is written into the `library`, where one is given."""
        self.speed = UNLIMITED
        self._keeper = Keeper(library) if library else None
        self._stored = partial(stored.read, library) if library else None
        self.snapshots = Snapshots()
        self._worker: Worker | None = None
        self._before: Worker | None = None  # the latest of the family that is over, and may have a trainer to go on with
        self._leaving: list[Worker] = []  # told to stop, perhaps still in a step
        self._probed: frozenset[str] = frozenset()  # gauges that somebody looks at
        self._asked: list[dict[str, Value]] = []  # what each change that was asked for took the place of
        self._sent: dict[str, Value] = {}  # live values that the worker was asked for
        self._later: dict[str, Value] = {}  # and those that are for the time when a run that was stopped goes on
        self._refusals = 0  # of the run, that were heard
        self.load(preset)

    def load(self, preset: Preset) -> None:
        """Take up a preset: its knobs are asked for, and a run stands ready. What ran is stopped."""
        self._leave()
        self.preset = preset
        self.requested: Experiment = preset.experiment
        self._asked = []
        self._take_up(self._new_run())

    def open(self, run: Run, relatives: Iterable[Run] = ()) -> None:
        """Take up a run that is over, such as one of the library: it is shown, its knobs are asked for, and a restart repeats it with
        the changes that were made to it. `relatives` are other runs of its family."""
        self._leave()
        self.preset = as_preset(run)
        self.requested = run.experiment
        self._asked = []
        self._take_up(run, relatives)

    def rename(self, preset: Preset) -> None:
        """Take up a preset that holds the knobs as asked for; what runs goes on."""
        self.preset = preset
        if not self.started:
            self._take_up(self._new_run())

    def set(self, name: str, value: Value) -> dict[str, Value]:
        """Ask for a value. A live knob acts at the next step, any other on restart. KnobError where it is not allowed.
        Gives what else had to be asked for with it, so that the values go together."""
        before = self.requested
        self._ask(combinations.with_companions(before, name, value), name)
        if self.requested != before:
            self._asked.append(differing(self.requested, before))
        return {other: new for other, new in differing(before, self.requested).items() if other != name}

    def reset(self) -> None:
        """Ask for the preset's own knobs."""
        self._asked.append(differing(self.preset.experiment, self.requested))
        self._ask(self.preset.experiment)

    def undo(self) -> dict[str, Value]:
        """Ask for what was asked for before the latest change; a change that has not acted yet leaves no trace. Gives what was taken back
        to which value, nothing where there is nothing left."""
        values = self._asked.pop() if self._asked else {}
        if values:
            self._ask(self.requested.with_values(values))
        return values

    def nearest(self, name: str, value: Value, *, onwards: bool) -> Value:
        """The whole number nearest to `value` that goes with the other knobs; `onwards`: on the side that `value` lies to."""
        now = self.requested[name]
        if not (isinstance(value, int) and isinstance(now, int)) or isinstance(value, bool):
            return value
        ways = ((1 if value > now else -1),) if onwards else (1, -1)
        for candidate in (value + way * distance for distance in range(MOST_TRIED) for way in ways):
            try:
                return self.requested.with_value(name, candidate)[name]
            except KnobError:
                continue
        return now

    def refusals(self) -> list[str]:
        """What the run would not take since the last call, in words. Each of these knobs is asked for as it is in force again."""
        heard = self.run.refusals[self._refusals :]
        self._refusals += len(heard)
        for event in heard:
            if self.requested[event.knob] == event.value:
                self._sent.pop(event.knob, None)
                self.requested = self.requested.with_value(event.knob, self.run.in_force[event.knob])
        return [event.text for event in heard]

    def set_speed(self, steps_per_second: float) -> None:
        self.speed = steps_per_second
        if self._worker:
            self._worker.send(SetSpeed(steps_per_second))

    def play(self) -> None:
        """Run, or go on where it paused or was stopped."""
        if not self.started:
            self._start(paused=False)
        elif self.can_resume:
            restart = {name: value for name, value in differing(self.run.in_force, self.requested).items() if not KNOBS[name].live}
            wanted = restart | self._later
            self.rewind(len(self.run.history))
            self._ask(self.requested.with_values(wanted))
        if self._worker:
            self._worker.send(Resume())

    def pause(self) -> None:
        if self._worker:
            self._worker.send(Pause())

    def step(self) -> None:
        """One optimizer step, then pause."""
        if not self.started:
            self._start(paused=True)
        if self._worker:
            self._worker.send(StepOnce())

    def compare(self) -> None:
        """Hold the next step's accumulated gradient against that of its micro-batches joined into one; a run that does not
        go makes that step."""
        if not self.started:
            self._start(paused=True)
        if self._worker:
            self._worker.send(Compare())

    def probe(self, names: Iterable[str]) -> None:
        """Somebody looks at these gauges from now on, of this run and of those that come, and at no others."""
        self._probed = frozenset(names)
        if self._worker:
            self._worker.send(Probe(self._probed))

    def script(self) -> str:
        """The plain PyTorch program of the knobs as asked for, with the preset's own changes."""
        from gradstudio.session.script import script

        return script(self.requested, self.preset.timeline, title=self.preset.title, threads=threads.chosen())

    def restart(self) -> None:
        """Begin again from step 0 with the knobs as asked for."""
        self._leave()
        self._take_up(self._new_run())
        self._start(paused=False)

    # ---- time travel

    def rewind(self, step: int) -> None:
        """Go to before a step that the run, or the one that it branched from, has made. Everything is then as it was there, and to go on
        makes a branch; at the end of a run that was left, that run goes on itself. KnobError for a step that nobody has made."""
        base = self.family.owner(self.run, step)
        if step > len(base.history) and not base.own and (parent := self.family.parent(base)):
            base = parent
        if base is self.run and step == len(base.history) and not base.over and base.status != "running":  # else it would be elsewhere by then
            self.pause()
            return
        if base.over and step == len(base.history) >= base.experiment.run.steps:
            self.show(base)  # there is nothing to go on with
            return
        run = base if self._can_resume(base, step) else branches.fork(base, step)
        self._step_aside()
        if run is base:
            run.note("resumed", "goes on")
        self.family.add(run)
        self._show(run)
        self._start(paused=True)

    def start_twins(self, name: str, value: Value) -> None:
        """Begin again from step 0, with a second run beside it that differs in one knob. KnobError where it cannot."""
        twin = twin_of(self.preset, self.requested, name, value)
        self._leave()
        run = self._new_run()
        self._take_up(run, [twin])
        self.twins = Twins(run, twin, name)
        self._start(paused=False)

    def show(self, run: Run) -> None:
        """Show another run of the family, as far as it came. What goes is stopped."""
        if run is not self.run:
            self._step_aside()
            self._show(run)

    def remove(self, run: Run) -> list[Run]:
        """Take a branch and all that branched from it out of the family; its root stays. Gives what went."""
        gone = self.family.offspring(run)
        if not run.parent or run.parent not in self.family.members:
            return []
        if self.run in gone:
            self.show(self.family.members[run.parent])
        for each in gone:
            self.family.members.pop(each.id, None)
        self.snapshots.forget(each.id for each in gone)
        return gone

    @property
    def can_resume(self) -> bool:
        """Whether the run that is shown was stopped here and can go on."""
        return self._can_resume(self.run, len(self.run.history)) and len(self.run.history) < self.run.experiment.run.steps

    def _can_resume(self, run: Run, step: int) -> bool:
        """Whether this very run can go on: it was stopped here, and stands at its end."""
        return run.status == "stopped" and bool(run.environment) and step == len(run.history) and run.id in self._left

    def _step_aside(self) -> None:
        """Stop what goes, for another run of the family. A run that was taken back to a step and never went on is forgotten."""
        if self._worker:
            self._worker.send(Stop(leaving=True))
            self._leaving = [worker for worker in (*self._leaving, self._worker) if worker.is_alive()]
            self._before, self._worker = self._worker, None
            self._left.add(self.run.id)
        if self.run.parent and not self.run.own:
            self.family.members.pop(self.run.id, None)

    def _show(self, run: Run) -> None:
        self.run = run
        self.requested = run.in_force
        self._refusals = len(run.refusals)
        self._asked, self._sent, self._later = [], {}, {}

    def stop(self) -> None:
        if self._worker:
            self._left.add(self.run.id)
            self._worker.send(Stop())

    def close(self, seconds: float) -> bool:
        """Stop and wait so long at most; whether the training threads have ended, and all is written."""
        self._leave()
        end = time.monotonic() + seconds
        for worker in self._leaving:
            worker.join(max(end - time.monotonic(), 0))
        written = self._keeper is None or self._keeper.close(max(end - time.monotonic(), LAST_WRITING))
        return not self.busy and written

    @property
    def busy(self) -> bool:
        """Whether a training thread lives, if only one that was told to stop."""
        self._leaving = [worker for worker in self._leaving if worker.is_alive()]
        return bool(self._leaving) or (self._worker is not None and self._worker.is_alive())

    @property
    def library_problem(self) -> str:
        """Why runs cannot be written into the library just now, or what became of it; empty where all is well."""
        return (self._keeper.problem or self._keeper.notice) if self._keeper else ""

    @property
    def started(self) -> bool:
        """Whether the run has begun, here or, where it was opened, at another time."""
        return self._worker is not None or self.run.over  # the latter also where the run was opened, or is shown again

    @property
    def going(self) -> Run:
        """The run that Run, Pause and Step are for: the one that is shown, or its twin that goes on alone."""
        twin = self.twins.other if self.twins is not None and self.run is self.twins.one and self.run.over else None
        return self.run if twin is None or twin.over else twin

    @property
    def failure(self) -> str:
        """The traceback of the exception that ended the run, or nothing."""
        return self._worker.failure if self._worker else ""

    def waiting(self) -> set[str]:
        """Knobs whose value was asked for and is not in force: live ones until the next step, others until a restart."""
        if not self.started:
            return set()
        run = self.run
        if self.requested == run.in_force:
            return set()
        return {
            name
            for name, knob in KNOBS.items()
            if self.requested[name] != run.in_force[name]
            and (self._sent.get(name) == self.requested[name] if knob.live and not run.over else self.requested[name] != run.experiment[name])
        }

    def _ask(self, wanted: Experiment, *named: str) -> None:
        new = differing(self.requested, wanted)
        new |= {name: wanted[name] for name in named if wanted[name] != self.run.in_force[name]}  # it may have changed as planned
        self.requested = wanted
        if not self.started:
            self._take_up(self._new_run())
            return
        for name, value in new.items():
            if KNOBS[name].live and self.run.over:
                self._later[name] = value
            elif self._worker and KNOBS[name].live:
                self._sent[name] = value
                self._worker.send(SetKnob(name, value))

    def _take_up(self, run: Run, relatives: Iterable[Run] = ()) -> None:
        """Begin a new family with this run."""
        self.run, self.family = run, Family([run, *relatives])
        self.twins: Twins | None = None
        self.snapshots = Snapshots(self.snapshots.budget, stored=self._stored)
        self._refusals = len(run.refusals)
        self._left: set[str] = set()  # runs that were stopped to show another one
        self._later = {}

    def _new_run(self) -> Run:
        return Run(self.preset, self.requested, self.preset.timeline)

    def _start(self, *, paused: bool) -> None:
        self._sent = {}
        twins = self.twins if self.twins is not None and self.run is self.twins.one and not self.started else None
        self._worker = Worker(
            self.run, paused=paused, speed=self.speed, snapshots=self.snapshots, before=self._before,
            twin=twins.other if twins else None, twin_knob=twins.knob if twins else "",
        )  # fmt: skip
        self._before = None
        if self._probed:
            self._worker.send(Probe(self._probed))
        self._worker.start()
        if self._keeper and twins:
            self._keeper.follow(twins.other, self.snapshots)
        if self._keeper:
            self._keeper.follow(self.run, self.snapshots)

    def _leave(self) -> None:
        if self._before:
            self._before.let_go()
            self._before = None
        if self._worker:
            self._worker.let_go()
            self._worker.send(Stop())
            self._leaving = [worker for worker in (*self._leaving, self._worker) if worker.is_alive()]
            self._worker = None
