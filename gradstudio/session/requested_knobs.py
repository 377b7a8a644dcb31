"""The knobs that the user requests: a live one is sent to the worker, any other waits for a restart."""

from __future__ import annotations

from collections.abc import Mapping

from gradstudio.core import threads
from gradstudio.core.adjusted_knobs import with_adjustments
from gradstudio.core.experiment import Experiment, differing_values
from gradstudio.core.knobs import KnobError, Value
from gradstudio.core.presets import Preset
from gradstudio.core.worker_places import Place
from gradstudio.session.record.run import Run
from gradstudio.session.running.backend import AnyWorker
from gradstudio.session.running.worker_commands import SetKnob
from gradstudio.session.undo import DEVICE, Change, Changes, KnobsAndPlace

MOST_TRIED = 200  # number of values that `nearest` tries


class RequestedKnobs:
    """The part of a simulator that has the requested knobs and compares them with the run that is shown."""

    preset: Preset
    requested: Experiment
    run: Run

    def __init__(self) -> None:
        self.next_place: Place | None = None  # where the next family of runs is trained; None: here
        self._worker: AnyWorker | None = None
        self._changes = Changes()
        self._sent: dict[str, Value] = {}  # live values that were sent to the worker
        self._later: dict[str, Value] = {}  # live values to send when a stopped run goes on
        self._refusals_told = self._events_read = 0  # of the run
        self._news: list[str] = []  # of the simulator itself, for `notices`

    @property
    def has_begun(self) -> bool:
        """True once the run has begun, now or earlier."""
        raise NotImplementedError

    def _show_new_run(self) -> None:
        """Show a new run of the requested knobs that is ready to begin."""
        raise NotImplementedError

    def set(self, name: str, value: Value) -> dict[str, Value]:
        """Request a value: a live knob acts at the next step, any other on restart. KnobError if it is not allowed.
        Return the other knobs that had to change too, so that the values go together."""
        return self._set(name, value, self.next_place)

    def train_at(self, place: Place | None, device: str) -> dict[str, Value]:
        """Train on a device of a place from the next restart on; None: here. Return the same as `set`."""
        return self._set(DEVICE, device, place)

    def _set(self, name: str, value: Value, place: Place | None) -> dict[str, Value]:
        before = self._now
        experiment = with_adjustments(before.knobs, name, value)
        self.next_place = place
        self._request(experiment, name)
        self._changes.remember(before, self._now)
        return {other: new for other, new in differing_values(before.knobs, experiment).items() if other != name}

    @property
    def _now(self) -> KnobsAndPlace:
        return KnobsAndPlace(self.requested, self.next_place)

    def set_together(self, values: Mapping[str, Value]) -> None:
        """Request several values as one change. KnobError if they do not go together."""
        before, experiment = self._now, self.requested.with_values(values)
        self._request(experiment, *values)
        self._changes.remember(before, self._now)

    def reset(self) -> None:
        """Request the preset's own knobs."""
        before = self._now
        self._request(self.preset.experiment)
        self._changes.remember(before, self._now)

    def undo(self) -> dict[str, Value]:
        """Undo the latest request. A change that has not taken effect yet leaves no trace in the timeline. Return the
        values that are requested again; none if there is nothing left to undo."""
        return self._take_back(redo=False)

    def redo(self) -> dict[str, Value]:
        """Request again what was undone last. Return those values; none if nothing was undone since the latest
        change."""
        return self._take_back(redo=True)

    def _take_back(self, *, redo: bool) -> dict[str, Value]:
        if (replaced := self._changes.latest(redo=redo)) is None:
            return {}
        before = self._now
        experiment = before.knobs.with_values(replaced.values)
        self.next_place = replaced.place
        self._request(experiment)
        self._changes.took_back(before, self._now, redo=redo)
        return replaced.values

    @property
    def undoable(self) -> list[Change]:
        """The changes that can be undone, the latest first."""
        return self._changes.undoable(self.requested)

    @property
    def undone(self) -> list[Change]:
        """The changes that can be redone, the last undone first."""
        return self._changes.undone(self.requested)

    def nearest(self, name: str, value: Value, *, onwards: bool) -> Value:
        """Return the whole number nearest to `value` that goes with the other knobs. `onwards`: search only in the
        direction from the current value to `value`."""
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
        """Return the changes that the run has refused since the last call, in words. For each of these knobs, request
        the value in force again."""
        events = self.run.refusals[self._refusals_told :]
        self._refusals_told += len(events)
        for event in events:
            if self.requested[event.knob] == event.value:
                self._sent.pop(event.knob, None)
                self.requested = self.requested.with_value(event.knob, self.run.in_force[event.knob])
        return [event.text for event in events]

    def notices(self) -> list[str]:
        """Return the news for the user since the last call: what the engine has reported through the run, such as a
        missing part of torch and its cost, and which branch was dropped."""
        new = self.run.events[self._events_read :]
        self._events_read += len(new)
        own, self._news = self._news, []
        return [*own, *(event.text for event in new if event.kind == "notice")]

    def script(self) -> str:
        """Return the plain PyTorch program of the requested knobs, with the preset's own changes."""
        return self._program(self.requested)

    def script_of_preset(self) -> str:
        """Return the program of the preset's own knobs."""
        return self._program(self.preset.experiment)

    def _program(self, knobs: Experiment) -> str:
        from gradstudio.program import script

        return script(knobs, self.preset.timeline, title=self.preset.title, threads=threads.chosen())

    def waiting(self) -> set[str]:
        """Return the knobs whose requested value is not in force yet: a live one waits for the next step, any other for
        a restart."""
        if not self.has_begun:
            return set()
        run = self.run
        if self.requested == run.in_force:
            return set()
        return {
            name
            for name in differing_values(run.in_force, self.requested)
            if (
                self._sent.get(name) == self.requested[name]
                if self.requested.find_knob(name).live and not run.over
                else self.requested[name] != run.experiment[name]
            )
        }

    @property
    def waiting_for_restart(self) -> bool:
        """Whether one of the requested values acts only when the run begins again."""
        return any(not self.requested.find_knob(name).live for name in self.waiting())

    def _request(self, experiment: Experiment, *named: str) -> None:
        """Request these values, and send the new live ones to the worker. A `named` knob is sent too if its value in
        force differs, for example after a planned change."""
        new = differing_values(self.requested, experiment)
        new |= {name: experiment[name] for name in named if experiment[name] != self.run.in_force[name]}
        self.requested = experiment
        if not self.has_begun:
            self._show_new_run()
            return
        for name, value in new.items():
            if (live := self.requested.find_knob(name).live) and self.run.over:
                self._later[name] = value
            elif self._worker and live:
                self._sent[name] = value
                self._worker.send(SetKnob(name, value))
