"""Drives a run: its trainer makes the steps, its writer stores the rows, and any exception becomes the run's outcome.

A device that works asynchronously delivers rows some steps after they were made, so that the trainer is ahead of the
run. All rows are buffered for a moment (HELD). Anything that needs trainer and run at the same step settles first: it
waits for the rows. Steps beyond the row that ends a run do not belong to it: their rows are dropped, and the trainer is
moved back."""

from __future__ import annotations

import contextlib
import math
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, cast

from gradstudio.core import jit, plugins, ranks_allowed
from gradstudio.core.events import MOST_CHANGES
from gradstudio.core.experiment import Experiment
from gradstudio.core.history import BLOCK, LOOK_EVERY, SAMPLE_EVERY, Row
from gradstudio.core.knobs import KnobError, Value
from gradstudio.core.provenance import ProvenanceUnknown
from gradstudio.core.text import duration, first_line, one_line
from gradstudio.session import own_model
from gradstudio.session.footprint import budget
from gradstudio.session.record.run import Run, Status
from gradstudio.session.record.run_writer import RunWriter, SoFar
from gradstudio.session.record.snapshots import Snapshots
from gradstudio.session.running.gauge_sampling import GaugeSampler
from gradstudio.session.running.investigation import bring, investigate, investigate_ranks
from gradstudio.session.running.left_behind import LeftBehind
from gradstudio.session.running.rewind import Rewinder

if TYPE_CHECKING:
    from gradstudio.engine.ranks.ranked_trainer import RankedTrainer
    from gradstudio.engine.trainer import Trainer

# The run takes many rows at a time: after a step the processor's caches are full of the model, and only the first row
# pays for that.
HELD = 1 / 60  # seconds until rows are shown, checked at the end of a step: half the time between two frames
UNSEEN = 0.2  # seconds until the rules look at them, likewise
LONG = 0.2  # seconds of a step after which the rows before it are shown without waiting for its end


class RunDriver:
    """Drives one run. Only the run's worker calls it."""

    def __init__(self, run: Run, snapshots: Snapshots) -> None:
        self.run, self.writer = run, RunWriter(run)
        self.trainer: Trainer | None = None
        self.outcome: Status | None = None  # set once no more steps come
        self.failure = ""  # the traceback of an exception, for those who want the details
        self.gauges = GaugeSampler(self.writer)
        self._ranked = ranks_allowed.several(run.experiment)
        self._message, self._ended = "", False
        self._held: list[Row] = []
        self._changing, self._within = threading.Lock(), False  # whether the thread is within a step
        self.left = False  # whether it was abandoned there: the run is over, and no longer written by this thread
        self._show_at = self._look_at = 0.0
        self._stands = False  # whether the trainer is at the same step as the run
        self._snapshots, self._rewinder = snapshots, Rewinder(self.writer, snapshots)
        self._stopped: Callable[[], bool] = lambda: False
        # From the engine, once that is loaded
        self._take_notices: Callable[[], list[str]] = list
        self._check_room: Callable[[int], None] = lambda layers: None
        self._planned = run.to_come
        self._compare_at = frozenset(run.compare_at)
        self._looked_at: Experiment | None = None
        self._test_every = 1  # steps between two measurements of the test set
        self._accumulating: tuple[object, ...] | None = None  # the current way of accumulating
        self._accumulation: tuple[object, ...] | None = None  # and the last one that was checked

    @property
    def _ready(self) -> Trainer:
        """The trainer, once `begin` has created one."""
        assert self.trainer is not None
        return self.trainer

    def begin(self, trainer: Trainer | None, stopped: Callable[[], bool]) -> None:
        """Move to the first step, or behind the rows that the run has. `trainer` is one of its family that can be
        brought there."""
        self.trainer, self._stopped = trainer, stopped
        with self._caught():
            import gradstudio.engine.trainer  # noqa: F401 - first: where torch is missing, that is what to say
            from gradstudio.engine import memory, notices

            self._take_notices, self._check_room = notices.take, memory.check_more_rows
            jit.compile_all()  # including what draws the rows, so that a window need not wait for it
            if not stopped():
                own_model.check(self.run.experiment, stopped)
            if not stopped() and (unknown := budget.check(self.run.in_force, self._planned, stopped)):
                self.writer.note("notice", unknown)
            if stopped():  # while another run had to end, torch to load, or a studio file to be checked
                return
            stands = self._stand_again(trainer) if self.run.environment else self._stand_at_first()
            self._stands = stands
            if stands:
                self._end_at_the_last()

    def _stand_at_first(self) -> bool:
        """Build the model and move to the start of step 0."""
        trainer = self.trainer = self._new_trainer()
        self._check_plan(trainer)
        self.writer.begin(trainer.layers, trainer.environment)
        if self._ranked and (notice := cast("RankedTrainer", trainer).notice):
            self.writer.note("notice", notice)
        self._keep_if_due(trainer)
        return True

    def _new_trainer(self) -> Trainer:
        """Return the trainer of the run; with several ranks, one that controls them."""
        if not self._ranked:
            from gradstudio.engine.trainer import Trainer

            return Trainer(self.run.experiment)
        from gradstudio.engine.ranks.ranked_trainer import RankedTrainer

        return cast("Trainer", RankedTrainer(self.run.experiment, self._stopped))

    def _keep_if_due(self, trainer: Trainer) -> None:
        """Take a snapshot if one is due; the state of several ranks is not stored."""
        if not self._ranked:
            self._rewinder.keep_if_due(trainer, *SoFar.of(self.writer.run))

    def _stand_again(self, trainer: Trainer | None) -> bool:
        """Move behind the rows that the run has. Return whether it got there before it was stopped."""
        run = self.run
        self.writer.inherit()
        self.writer.let_go_of_parent()
        self.trainer = self._rewinder.stand(trainer, self._stopped)
        if run.replayed is not None:
            return False
        self.writer.go_on(self.trainer.environment)
        checked = [check.step for check in run.history.accumulated if math.isfinite(check.difference)]
        self._accumulation = _way_of_accumulating(run.values_at(checked[-1])) if checked else None
        self._check_plan(self.trainer)
        return True

    def train(self, goes_on: Callable[[], bool] = lambda: True) -> None:
        """Make steps until the run is over, is stopped, or does not continue."""
        while self.outcome is None and not self._stopped() and goes_on():
            self.change_as_planned()
            if self.outcome is None:
                self.step("running")

    def change_as_planned(self) -> None:
        """Make the planned changes that are due before the next step."""
        while self._planned and self._planned[0].step <= self._ready.step:
            change = self._planned.pop(0)
            self.change(change.knob, change.value)

    def change(self, name: str, value: Value) -> None:
        """Change a live knob. If the device or the knob does not allow it, the run continues unchanged."""
        if self.run.in_force[name] == value:
            return
        self.settle()
        if self.outcome is not None:
            return
        with self._caught():
            try:
                self._check_changes()
                self._ready.change(name, value)
            except KnobError as fault:
                self.writer.refuse(name, value, str(fault))
            else:
                self.writer.change(name, self._ready.experiment[name])

    def _check_changes(self) -> None:
        """Raise KnobError if the run has as many changes as its file may contain."""
        if len(self.run.timeline) + len(self._planned) >= MOST_CHANGES:
            raise KnobError(f"a run has at most {MOST_CHANGES:,} changes, and this one has; restart it to change more")

    def compare(self) -> None:
        """Let the next step also compute the gradient of its micro-batches joined into one."""
        self._ready.requests.compare = True

    def step(self, status: Status) -> None:
        """Make one optimizer step; the run has this status meanwhile."""
        run = self.run
        with self._caught():
            trainer = self._ready
            if trainer.step % BLOCK == 0:
                self._check_room(len(trainer.layers))
            gauge = self.gauges.due(trainer)
            if gauge:
                self.settle()
                if self.outcome is not None:
                    return
            trainer.requests.compare |= trainer.step in self._compare_at
            self._measure_if_due(trainer)
            self.writer.set_status(status)
            if gauge:
                self.gauges.measure(trainer, gauge)
            if not trainer.pass_over(self._stopped):
                return
            rows = self._advance(trainer)
            self._held += rows
            if trainer.step >= run.experiment.run.steps or self._rewinder.due(run.seconds):
                self.settle()
            elif any(row.went_nonfinite or row.accumulated is not None for row in rows):
                self._record(self._let_go())
            elif time.perf_counter() > self._show_at:
                self._show()

    def _advance(self, trainer: Trainer) -> list[Row]:
        """Make one step. LeftBehind if it is no longer awaited."""
        with self._changing:
            self._within = True
        self.writer.step_begins(trainer.step)
        try:
            rows = trainer.advance()
            self._measure_added(trainer)
            return rows
        finally:
            with self._changing:
                self._within = False
            if self.left:
                raise LeftBehind
            self.writer.step_ends()

    def _measure_added(self, trainer: Trainer) -> None:
        """Measure the gauges of plug-ins on the model after the step."""
        if plugins.names("gauges"):
            from gradstudio.engine.gauges import added_gauges

            step = trainer.step - 1
            if figures := added_gauges.measure(getattr(trainer, "model", None), step):
                self.writer.gauges[step] = figures

    def show_waiting(self) -> None:
        """Show the buffered rows while a step takes long, from another thread."""
        with self._changing:
            now = self.run.step_now
            if self._within and not self.left and now is not None and time.monotonic() - now[1] > LONG:
                for row in self._let_go():
                    self.writer.append(row)

    def leave(self) -> bool:
        """End the run from another thread, without the step that blocks the driver's own. Return False if there is
        none. An abandoned driver no longer writes its run."""
        with self._changing:
            if not self._within or self._ranked:
                return False
            self.left = True
        self._end_without_step()
        return True

    def _end_without_step(self) -> None:
        step, since = self.run.step_now or (len(self.run.history), time.monotonic())
        self.trainer, self._stands, self._ended = None, False, True
        for row in self._let_go():
            self.writer.record(row)
        self.writer.step_ends()
        took = duration(time.monotonic() - since)
        self.writer.note("notice", f"Step {step:,} was left before its end, as it took {took} so far.")
        self.outcome = self.outcome or "stopped"
        self.writer.end(self.outcome, self._message, None)

    def settle(self) -> None:
        """Wait for every row that was made, and add it to the run, which may turn out to be over."""
        if self.outcome is None:
            with self._caught():
                self._held += self._ready.settle()
                self._record(self._let_go())

    def _let_go(self) -> list[Row]:
        """Return the buffered rows, and clear the buffer."""
        rows, self._held = self._held, []
        return rows

    def _show(self) -> None:
        """Show the buffered rows, and now and then let the rules look at them too."""
        for row in self._let_go():
            self.writer.append(row)
        self._show_at = time.perf_counter() + HELD
        if self._show_at > self._look_at:
            self._look()

    def _look(self) -> None:
        """Let the rules look at the new rows."""
        self._pass_on_notices()
        self.writer.look()
        self._look_at = time.perf_counter() + UNSEEN

    def _record(self, rows: Iterable[Row]) -> None:
        """Add rows to the run, one by one, until one of them ends it."""
        run, trainer, rows = self.run, self._ready, deque(rows)
        self._look()
        while rows:
            row = rows.popleft()
            self.writer.record(row)
            # a loss scale that overflowed shows nothing about the way of accumulating
            if row.accumulated is not None and math.isfinite(row.accumulated.difference):
                self._accumulation = self._accumulating
            if trainer.step == len(run.history) and self.outcome != "failed":  # not what an error left in mid-step
                self._keep_if_due(trainer)
            if run.first_nonfinite_step == row.step:
                rows += trainer.settle()  # before the trainer is used to look for the cause
                self._investigate()
            if row.went_nonfinite and run.in_force.run.stop_on_nonfinite:
                self.outcome = "nonfinite"
                self._take_back(trainer)
                return
            self._end_at_the_last()

    def _take_back(self, trainer: Trainer) -> None:
        """Move back behind the last row, if the trainer has gone beyond it."""
        trainer.settle()
        if trainer.step > len(self.run.history):
            self._stands = False
            with contextlib.suppress(BaseException):  # not a fault of the run
                self._stands = bring(self.run, trainer, self._snapshots, len(self.run.history), self._stopped)

    def stand(self, interrupted: Callable[[], bool]) -> None:
        """Measure the visible gauges while the run is paused."""
        if self._stands:
            self.gauges.measure_all(self._ready, interrupted)

    def _measure_if_due(self, trainer: Trainer) -> None:
        """Request the periodic measurements from the next step: activations, the test set, and once for every way of
        accumulating whether the sum is correct."""
        trainer.requests.activations = trainer.step % SAMPLE_EVERY == 0
        knobs = self.run.in_force
        trainer.requests.attention = trainer.step % LOOK_EVERY == 0 and knobs.applies("model.qk_norm")
        if knobs is not self._looked_at:
            self._looked_at, self._accumulating = knobs, _way_of_accumulating(knobs)
            self._test_every = trainer.test_interval
        trainer.requests.test = trainer.step % self._test_every == 0
        trainer.requests.accumulation = knobs.accumulation.steps > 1 and self._accumulating != self._accumulation

    def end(self, *, leaving: bool) -> None:
        """Record how the run ended, once. A run that is stopped for another one has no time for the test set."""
        if self._ended:
            return
        self._ended = True
        with self._caught():
            self.gauges.end()
            if self.trainer and self._stands:
                self._read_the_rest()
        self._leave_torch_as_it_was()
        self.outcome = self.outcome or "stopped"
        accuracy = None if leaving and self.outcome == "stopped" else self._accuracy()
        if self._ranked:
            self._end_ranks()
        if self.outcome == "failed":
            self.trainer = None  # it may have been interrupted in mid-step
        self._pass_on_notices()
        self.writer.end(self.outcome, self._message, accuracy)

    def _leave_torch_as_it_was(self) -> None:
        """End the run with an error line if its studio file has modified torch itself. An earlier error is kept."""
        if self.trainer is None or self._ranked:
            return
        with self._caught() if self.outcome != "failed" else contextlib.suppress(KnobError):
            self.trainer.subject.end()

    def _end_ranks(self) -> None:
        """End the processes of the ranks. No run continues from them."""
        trainer, self.trainer, self._stands = self.trainer, None, False
        if trainer is not None:
            cast("RankedTrainer", trainer).close()

    def test_accuracy(self) -> float | None:
        """Return the test accuracy at the run's current step; None if there is no model to compute it with, or if that
        fails, which ends the run."""
        self.settle()
        if self.trainer is None or not self._stands or self.outcome == "failed":
            return None
        with self._caught():
            return self.trainer.evaluate()
        return None

    def _accuracy(self) -> float | None:
        """Return the accuracy on the test set; None if there is no model to compute it with. It may show that the last
        update broke the weights."""
        trainer, accuracy = self.trainer, None
        if trainer is None or not self._stands or self.outcome == "failed" or not len(self.run.history):
            return None
        with self._caught():
            accuracy = trainer.evaluate()
        if self.outcome == "finished" and accuracy is not None and math.isnan(accuracy):
            self.writer.diverge_in_weights()
            with self._caught():
                self._investigate()
            self.outcome = "nonfinite"
        return accuracy if trainer.subject.judged else None

    def _read_the_rest(self) -> None:
        """Read what was made before the run was stopped, or before a step failed. A non-finite row may be why the step
        failed."""
        self.settle()
        if self.outcome == "failed":
            # a lost device fails again; what was read from it before stays
            with contextlib.suppress(BaseException):
                self._held += self._ready.settle()
            with contextlib.suppress(BaseException):
                self._record(self._let_go())
            if self.outcome != "failed":
                self._message = self.failure = ""

    def _check_plan(self, trainer: Trainer) -> None:
        """Raise KnobError if the device does not support a planned change, before a single step is made."""
        experiment = self.run.in_force
        for change in self._planned:
            experiment = experiment.with_value(change.knob, change.value)
            if change.knob == "precision.dtype":
                try:
                    trainer.check(experiment)
                except KnobError as fault:
                    raise KnobError(f"timeline at step {change.step}: {fault}") from None

    def _investigate(self) -> None:
        """Find where the first non-finite value came from. An error here is not a fault of the run."""
        try:
            if self._ranked:
                self.writer.explain(investigate_ranks(self.run, cast("RankedTrainer", self._ready)))
                return
            self.writer.explain(investigate(self.run, self._ready, self._snapshots, self._stopped))
        except ProvenanceUnknown as why:
            if not self._stopped():
                self.writer.note("notice", f"Where the first NaN or Inf was born is unknown: {why}.")
        except BaseException:
            self.failure = traceback.format_exc()

    def _pass_on_notices(self) -> None:
        """Record the engine's notices for the user, such as a missing part of torch."""
        for text in self._take_notices():
            self.writer.note("notice", text)

    def _end_at_the_last(self) -> None:
        """End the run if it has made all its steps."""
        if len(self.run.history) >= self.run.experiment.run.steps:
            self.outcome = "finished" if self.run.first_nonfinite_step is None else "nonfinite"

    @contextlib.contextmanager
    def _caught(self) -> Iterator[None]:
        """Turn an exception into the outcome of the run."""
        try:
            yield
        except LeftBehind:
            raise
        except KnobError as fault:
            self.outcome, self._message = "failed", str(fault)
            if not self.run.own:  # later it is a fault of a studio file, which has started to run
                self.writer.refuse_to_train()
        except BaseException as fault:  # including SystemExit: otherwise it would go unreported
            where = own_model.place_of(fault, self.run.experiment)
            self.outcome, self._message = "failed", f"{where}{_describe(fault, self.run.in_force)}"
            if isinstance(fault, ModuleNotFoundError) and fault.name in _NEEDED:
                self.writer.refuse_to_train()
            self.failure = traceback.format_exc()


def _way_of_accumulating(knobs: Experiment) -> tuple[object, ...]:
    """Return the values that determine whether the sum over micro-batches is correct."""
    return knobs.accumulation, knobs.mistakes, knobs.precision.dtype


_NEEDED = {"torch": "PyTorch"}


def _describe(fault: BaseException, in_force: Experiment) -> str:
    """Return an exception as one sentence, with the usual solution if there is one."""
    text, kind = first_line(fault, 400), one_line(type(fault).__name__)
    if isinstance(fault, ranks_allowed.RankFailure):
        return text
    if isinstance(fault, ModuleNotFoundError) and fault.name in _NEEDED:
        return (
            f"{_NEEDED[fault.name]} is not installed, and nothing trains without it; install it with: pip install "
            f"{fault.name}"
        )
    if "out of memory" in text.lower() or isinstance(fault, MemoryError) or "can't allocate memory" in text.lower():
        lower = "problem.batch_size or model.width" if in_force.studio_file is None else "problem.batch_size"
        return f"Out of memory{f': {text[:300]}' if text else '.'} Halve {lower} and restart."
    mistakes = [knob.name for knob, value in in_force.items() if knob.section == "mistakes" and value]
    cause = f" (switched on: {', '.join(mistakes)})" if mistakes else ""
    return f"{kind}{f': {text}' if text else ''}{cause}"
