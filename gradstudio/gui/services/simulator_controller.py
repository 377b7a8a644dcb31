"""The user's requests to the simulator, and the messages about their results. No widget except the message bar."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from PySide6.QtCore import QObject, Signal

from gradstudio.core import presets, user_presets
from gradstudio.core.experiment import Experiment, parse_assignment
from gradstudio.core.knobs import KnobError, Value, values_text
from gradstudio.core.text import plural, storable
from gradstudio.core.worker_places import Place
from gradstudio.gui.services.message_bar import MessageBar
from gradstudio.gui.services.possible_actions import PossibleActions
from gradstudio.session import own_model
from gradstudio.session.record.branches import manual_changes
from gradstudio.session.record.run import Run
from gradstudio.session.running.fix_trials import Trials
from gradstudio.session.simulator import Simulator


class SimulatorController(QObject):
    """Passes requests to the simulator; a request that is not allowed changes nothing, and the message bar says why."""

    knobs_changed = Signal()  # the visible knobs may differ from those of the simulator
    title_changed = Signal(str)  # title of the preset
    preset_opened = Signal()  # the user has opened a preset, to start with it
    refresh_asked = Signal()  # the window should show the simulator at once, not at the next beat
    agreement_asked = Signal(object, object)  # the Agreement that a run lacks, and what to do then
    request_asked = Signal(str, float)  # word and factor: the request to another program about its run
    rate_asked = Signal()  # the user wants to enter that factor
    baseline_asked = Signal()  # the user wants the run in the plots as the baseline, or no baseline
    file_asked = Signal(str)  # path of a file to open, of any kind
    file_opened = Signal(str)  # path of a file that could be opened
    place_asked = Signal(object)  # the Place whose runs are to be listed; None: one that is yet to be chosen
    open_asked = Signal(str)  # id of a run of the library to be shown

    def __init__(self, simulator: Simulator, message: MessageBar) -> None:
        super().__init__()
        self._simulator, self._message = simulator, message
        self.possible = PossibleActions(simulator)
        self.trials: Trials | None = None  # the fixes that are or were tried for a run of this family

    # ---- the run

    def run_or_pause(self) -> None:
        """Run if the run is paused or over, pause if it is running."""
        if self.possible.is_trained_elsewhere:
            self.request_asked.emit("resume" if self._simulator.run.status == "paused" else "pause", 1.0)
        elif self.possible.playing:
            self._simulator.pause()
        elif self._simulator.going.over and self.possible.can_run:
            self.if_agreed(self._go_on)
        elif self.possible.can_run:
            self.if_agreed(self._simulator.play)

    def _go_on(self) -> None:
        """Continue a finished run, and report if the schedule has ended before the additional steps."""
        schedule, steps = self._simulator.requested.schedule, len(self._simulator.run.history)
        self._message.hide()
        self._is_done(self._simulator.go_on)
        self.knobs_changed.emit()
        if schedule.kind != "constant" and schedule.total_steps <= steps:
            longer = self._simulator.run.experiment.run.steps
            action = f"Set total_steps to {longer:,}", partial(self.set_knob, "schedule.total_steps", longer)
            text = f"The schedule ended at total_steps = {schedule.total_steps:,}: the learning rate stays as it is."
            self._message.show_news(text, action=action)

    def step(self) -> None:
        """Make one optimizer step, then pause."""
        if self.possible.can_step:
            self.if_agreed(self._simulator.step)

    def restart(self) -> None:
        """Begin again from step 0 with the current knobs."""
        if not self._refuses_change():
            self._message.hide()
            self.if_agreed(self._simulator.restart)

    def stop(self) -> None:
        """End the run at its current step."""
        if self.possible.is_trained_elsewhere:
            self.request_asked.emit("stop", 1.0)
        else:
            self._simulator.stop()

    def rewind(self, step: int) -> None:
        """Rewind the run to the start of a step, or move it forward to one that was already made."""
        if not self._refuses_change():
            self.if_agreed(partial(self._rewind, step))

    def _rewind(self, step: int) -> None:
        """Rewind, report which knobs were changed at this step, and offer to continue without."""
        if self._is_done(lambda: self._simulator.rewind(step)) and (
            changes := manual_changes(self._simulator.run, step)
        ):
            text = values_text({name: after for name, (_, after) in changes.items()}, " and ")
            verb, them = ("was", "it") if len(changes) == 1 else ("were", "them")
            before = {name: value for name, (value, _) in changes.items()}
            self._message.show_news(
                f"{text} {verb} set at this step.",
                action=(f"Go on without {them}", partial(self.set_together, before)),
            )  # fmt: skip
        self.knobs_changed.emit()

    def rewind_without(self) -> None:
        """Rewind a run that diverged to its last manual change, and revert that change."""
        step, changes = self.possible.last_changes
        if not self._refuses_change():
            self.if_agreed(partial(self._rewind_without, step, {name: value for name, (value, _) in changes.items()}))

    def _rewind_without(self, step: int, values: Mapping[str, Value]) -> None:
        if self._is_done(lambda: self._simulator.rewind(step)):
            self._is_done(lambda: self._simulator.set_together(values))
        self.knobs_changed.emit()

    def show(self, run: Run) -> None:
        """Show another run of the family in the plots."""
        self._simulator.show(run)
        self.knobs_changed.emit()

    def compare_with_large_batch(self) -> None:
        """Compare the accumulated gradient of the next step with that of one large batch."""
        if self._refuses_change():
            return
        if self._simulator.run.over:
            self._message.show_error("The run is over, so there is no next step to compare: press Restart first.")
        else:
            self.if_agreed(self._simulator.compare)

    # ---- the knobs

    def set_knob(self, name: str, value: Value) -> None:
        """Set a knob; the message bar says which other knobs had to change with it."""
        self._set_knob(name, value, partial(self._simulator.set, name, value))

    def _set_knob(self, name: str, value: Value, act: Callable[[], Mapping[str, Value]]) -> None:
        if self._refuses_change():
            return
        others: dict[str, Value] = {}
        if self._is_done(lambda: others.update(act())) and others:
            needs = f"{values_text({name: value})} needs {values_text(others, ' and ')}"
            self._message.show_news(f"{needs}, so {'that was' if len(others) == 1 else 'those were'} set too.")
        self.knobs_changed.emit()

    def set_own(self, name: str, value: Value) -> None:
        """Set a knob at the user's request: a text for a studio file needs no other agreement then."""
        own_model.agree_to_own(self._simulator.requested, {name: value})
        self.set_knob(name, value)

    def slide_knob(self, name: str, value: Value, by_keys: bool) -> None:
        """Set a knob to the value of its slider, or to the nearest one that the other knobs allow."""
        self.set_knob(name, self._simulator.nearest(name, value, onwards=by_keys))

    def set_max_norm(self, max_norm: float) -> None:
        """Set max_norm to where its line was dragged; switch clipping on if nothing is clipped yet."""
        if self._simulator.requested.clipping.kind == "none":
            self.set_knob("clipping.kind", "norm")
        self.set_knob("clipping.max_norm", max_norm)

    def apply_remedy(self, remedy: str) -> None:
        """Set the knobs that a remedy names, such as `clipping.kind=norm clipping.max_norm=1`."""
        for name, value in map(parse_assignment, remedy.split()):
            self.set_knob(name, value)

    def reset_knobs(self) -> None:
        """Set every knob to the preset's value."""
        if not self._refuses_change():
            self._simulator.reset()
            self.knobs_changed.emit()

    def undo(self) -> None:
        """Undo the latest change of a knob."""
        self._move("Undone", self._simulator.undo, "There is no knob change left to undo.", " again")

    def redo(self) -> None:
        """Redo the last undone change of a knob."""
        self._move("Redone", self._simulator.redo, "There is no undone knob change to redo.")

    def _move(self, done: str, act: Callable[[], Mapping[str, Value]], nothing: str, after: str = "") -> None:
        if not self._refuses_change():
            told = values_text(act(), f"{after} and ")
            self.knobs_changed.emit()
            self._message.show_news(f"{done}: {told}{after}." if told else nothing)

    def train_at(self, place: Place | None, device: str) -> None:
        """Train on a device of a place from the next restart on; None: here."""
        self._set_knob("run.device", device, partial(self._simulator.train_at, place, device))
        if place == self._simulator.next_place != self._simulator.present_place:
            where = f"at {place.name}" if place else "here"
            self._message.show_news(f"The next run trains {where}.", action=("Restart", self.restart))

    def set_together(self, values: Mapping[str, Value]) -> None:
        """Set several knobs as one change, and offer the restart that it needs."""
        if self._refuses_change():
            return
        if self._is_done(lambda: self._simulator.set_together(values)):
            text = f"Set: {values_text(values, ' and ')}"
            if not self._simulator.has_begun:
                self._message.show_news(f"{text}.", action=("Run", self.run_or_pause))
            elif self._simulator.run.over or self._simulator.waiting_for_restart:
                again = ("Restart", self.restart)
                self._message.show_news(f"{text}. It takes effect when the run begins again.", action=again)
            else:
                self._message.show_news(f"{text}, from the next step on.")
        self.knobs_changed.emit()

    # ---- presets and other runs

    def open_preset(self, source: str | Path) -> None:
        """Load a preset from an id or a file, to start over; if it cannot be read, report it and change nothing."""
        try:
            preset = presets.load(source)
        except presets.PresetError as fault:
            self._message.show_error(str(fault))
            return
        if isinstance(source, Path) and not preset.bundled:
            self.file_opened.emit(str(source))
        self.load(preset)

    def load(self, preset: presets.Preset) -> None:
        """Load a preset; a running run is stopped and stays in the library."""
        self._leave(lambda: self._simulator.load(preset))
        self.preset_opened.emit()

    def show_stored(self, run: Run, relatives: Sequence[Run] = ()) -> None:
        """Show a run of the library with its knobs, and other runs of its family."""
        self._leave(lambda: self._simulator.open(run, relatives))

    def run_again(self, preset: presets.Preset) -> None:
        """Load a preset and run it."""
        self._leave(lambda: self._simulator.load(preset))
        self.if_agreed(self._simulator.play)

    def start_twins(self, name: str, value: Value) -> None:
        """Begin again with a twin in which this knob has this value; KnobError if it cannot."""
        if why := self._simulator.only_shown:
            raise KnobError(why)
        own_model.agree_to_own(self._simulator.requested, {name: value})
        self._leave(lambda: self._simulator.start_twins(name, value))

    def save_preset_as(self, title: str) -> None:
        """Save the current knobs as the user's own preset, and continue with that preset."""
        if self._refuses_change():
            return
        title = storable(title).strip()
        try:
            path = user_presets.save_as(self._simulator.preset, title, self._simulator.requested)
            self._simulator.rename(presets.read(path))
        except presets.PresetError as fault:
            self._message.show_error(str(fault))
            return
        self.title_changed.emit(title)
        self.knobs_changed.emit()
        self.file_opened.emit(str(path))
        self._message.show_news(f"Saved as {path}")

    def _is_done(self, act: Callable[[], object]) -> bool:
        """Do something that the simulator may refuse, and show why it did. Return whether it was done."""
        try:
            act()
        except KnobError as fault:
            self._message.show_error(str(fault))
            return False
        return True

    def _refuses_change(self) -> bool:
        """Show why nothing can be changed, if the run can only be viewed."""
        if why := self._simulator.only_shown:
            self._message.show_news(why)
            self.knobs_changed.emit()
        return bool(why)

    def if_agreed(self, act: Callable[[], object], *experiments: Experiment) -> None:
        """Run experiments, by default the requested one, at once or when the user has agreed to their file."""
        experiments = experiments or (self._simulator.requested,)
        if agreement := own_model.to_agree(*experiments):
            self.agreement_asked.emit(agreement, act)
            return
        for each in experiments:
            own_model.keep_agreement(each)
        act()

    def _leave(self, load: Callable[[], object]) -> None:
        """Load something else; offer to return to the current run, which the library keeps."""
        run, preset = self._simulator.run, self._simulator.preset
        going = self._simulator.has_begun and not run.over and not self.possible.is_trained_elsewhere
        left = run if run.own and not self._simulator.only_shown else None  # without a step it is not stored
        self._message.hide()
        load()
        self.title_changed.emit(self._simulator.preset.title)
        self.knobs_changed.emit()
        afresh = self._simulator.preset.id == preset.id and not self._simulator.has_begun
        if left is not None and (going or afresh) and not self._simulator.library_problem:
            steps = plural(len(left.history), "step", "steps")
            what = f"was stopped after {steps} and" if going else f"of {steps}"
            again = partial(self.open_asked.emit, left.id)  # refers to the id, not to the run
            self._message.show_news(f"{left.title} {what} is kept in the library.", action=("Open it again", again))
