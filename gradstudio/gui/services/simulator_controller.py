"""The user's requests to the simulator, and the messages about their results. No widget except the message bar."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from PySide6.QtCore import Signal

from gradstudio.core import presets, user_presets
from gradstudio.core.experiment import Experiment
from gradstudio.core.knobs import KnobError, Value, value_text
from gradstudio.core.text import plural, storable
from gradstudio.core.worker_places import Place
from gradstudio.gui.services.knob_requests import KnobRequests
from gradstudio.gui.services.message_bar import MessageBar
from gradstudio.gui.services.possible_actions import PossibleActions
from gradstudio.session import own_model
from gradstudio.session.record.branches import manual_changes
from gradstudio.session.record.run import Run
from gradstudio.session.running.fix_trials import Trials
from gradstudio.session.simulator import Simulator

LEFT_STAYS = 20_000  # ms for which the message bar offers to open a stopped run again


class SimulatorController(KnobRequests):
    """Passes requests to the simulator; a request that is not allowed changes nothing, and the message bar says why."""

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
        super().__init__(simulator, message)
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
            self._if_agreed(self._go_on)
        elif self.possible.can_run:
            self._if_agreed(self._simulator.play)

    def _go_on(self) -> None:
        """Continue a finished run, and report if the schedule has ended before the additional steps."""
        schedule, steps = self._simulator.requested.schedule, len(self._simulator.run.history)
        self._message.hide()
        self._is_done(self._simulator.go_on)
        self.knobs_changed.emit()
        if schedule.kind != "constant" and schedule.total_steps <= steps:
            longer = self._simulator.run.experiment.run.steps
            self._message.show_news(
                f"The schedule ended at total_steps = {schedule.total_steps:,}: the learning rate stays as it is.",
                action=(f"Set total_steps to {longer:,}", partial(self.set_knob, "schedule.total_steps", longer)),
                stay=LEFT_STAYS,
            )

    def step(self) -> None:
        """Make one optimizer step, then pause."""
        if self.possible.can_step:
            self._if_agreed(self._simulator.step)

    def restart(self) -> None:
        """Begin again from step 0 with the current knobs."""
        if not self._refuses_change():
            self._message.hide()
            self._if_agreed(self._simulator.restart)

    def stop(self) -> None:
        """End the run at its current step."""
        if self.possible.is_trained_elsewhere:
            self.request_asked.emit("stop", 1.0)
        else:
            self._simulator.stop()

    def ask_for_rate(self, factor: float) -> None:
        """Request another learning rate from the program that trains the run: a factor on its own."""
        self.request_asked.emit("rate", factor)

    def rewind(self, step: int) -> None:
        """Rewind the run to the start of a step, or move it forward to one that was already made."""
        if not self._refuses_change():
            self._if_agreed(partial(self._rewind, step))

    def _rewind(self, step: int) -> None:
        if self._is_done(lambda: self._simulator.rewind(step)):
            self._tell_changes(step)
        self.knobs_changed.emit()

    def _tell_changes(self, step: int) -> None:
        """Report which knobs were changed at the step that the run was set to, and offer to continue without."""
        if not (changes := manual_changes(self._simulator.run, step)):
            return
        text = " and ".join(f"{name} = {value_text(after)}" for name, (_, after) in changes.items())
        before = {name: value for name, (value, _) in changes.items()}
        self._message.show_news(
            f"{text} {'was' if len(changes) == 1 else 'were'} set at this step.",
            action=(f"Go on without {'it' if len(changes) == 1 else 'them'}", partial(self.set_together, before)),
            stay=LEFT_STAYS,
        )

    def rewind_without(self) -> None:
        """Rewind a run that diverged to its last manual change, and revert that change."""
        step, changes = self.possible.last_changes
        if not self._refuses_change():
            self._if_agreed(partial(self._rewind_without, step, {name: value for name, (value, _) in changes.items()}))

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
            self._if_agreed(self._simulator.compare)

    # ---- the knobs

    def train_at(self, place: Place | None, device: str) -> None:
        """Train on a device of a place from the next restart on; None: here."""
        self._set_knob("run.device", device, partial(self._simulator.train_at, place, device))
        if place == self._simulator.next_place != self._simulator.present_place:
            where = f"at {place.name}" if place else "here"
            self._message.show_news(f"The next run trains {where}.", action=("Restart", self.restart), stay=LEFT_STAYS)

    def set_together(self, values: Mapping[str, Value]) -> None:
        """Set several knobs as one change, and offer the restart that it needs."""
        if self._refuses_change():
            return
        if self._is_done(lambda: self._simulator.set_together(values)):
            text = " and ".join(f"{name} = {value_text(value)}" for name, value in values.items())
            if not self._simulator.has_begun:
                self._message.show_news(f"Set: {text}.", action=("Run", self.run_or_pause), stay=LEFT_STAYS)
            elif self._simulator.run.over or self._simulator.waiting_for_restart:
                text = f"Set: {text}. It takes effect when the run begins again."
                self._message.show_news(text, action=("Restart", self.restart), stay=LEFT_STAYS)
            else:
                self._message.show_news(f"Set: {text}, from the next step on.")
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
        self._if_agreed(self._simulator.play)

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

    # ---- inside

    def _if_agreed(self, act: Callable[[], object]) -> None:
        """Do something that runs the model, immediately or when the user has agreed to run its studio file."""
        self.if_agreed(act, self._simulator.requested)

    def if_agreed(self, act: Callable[[], object], *experiments: Experiment) -> None:
        """Do something that runs experiments, immediately or when the user has agreed to run their studio file."""
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
            text = f"{left.title} {what} is kept in the library."
            again = partial(self.open_asked.emit, left.id)  # refers to the id, not to the run
            self._message.show_news(text, action=("Open it again", again), stay=LEFT_STAYS)
