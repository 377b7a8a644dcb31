"""Drives a run: its trainer makes the steps, its writer stores the rows, and any exception becomes the run's outcome.

A device that works asynchronously delivers rows some steps after they were made, so that the trainer is ahead of the
run. All rows are buffered for a moment (HELD). Anything that needs trainer and run at the same step settles first: it
waits for the rows. Steps beyond the row that ends a run do not belong to it: their rows are dropped, and the trainer is
moved back."""

from __future__ import annotations

import contextlib
import math
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, cast

from gradstudio.core import jit, ranks_allowed
from gradstudio.core.history import BLOCK
from gradstudio.core.knobs import KnobError, Value
from gradstudio.core.row import Row
from gradstudio.session import own_model
from gradstudio.session.footprint import budget
from gradstudio.session.record.run import Run, Status
from gradstudio.session.record.run_writer import RunWriter
from gradstudio.session.record.snapshots import Snapshots
from gradstudio.session.running import run_failure, trainer_making
from gradstudio.session.running.due_measurements import DueMeasurements
from gradstudio.session.running.gauge_sampling import GaugeSampler
from gradstudio.session.running.investigation import bring, explain
from gradstudio.session.running.pending_rows import PendingRows
from gradstudio.session.running.rewind import Rewinder

if TYPE_CHECKING:
    from gradstudio.engine.ranks.ranked_trainer import RankedTrainer
    from gradstudio.engine.trainer import Trainer

UNSEEN = 0.2  # seconds until the rules look at new rows, checked when rows are shown


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
        self.held, self._due, self._look_at = PendingRows(self.writer), DueMeasurements(run), 0.0
        self._stands = False  # whether the trainer is at the same step as the run
        self._snapshots, self._rewinder = snapshots, Rewinder(self.writer, snapshots)
        self._stopped: Callable[[], bool] = lambda: False
        self._take_notices: Callable[[], list[str]] = list  # this and the next from the engine, once it is loaded
        self._check_room: Callable[[int], None] = lambda layers: None
        self._planned = run.to_come

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
            self._stands = self._return_to_end(trainer) if self.run.environment else self._start_at_step_0()
            if self._stands:
                self._end_at_the_last()

    def _start_at_step_0(self) -> bool:
        """Build the model and move to the start of step 0."""
        trainer = self.trainer = trainer_making.make(self.run.experiment, self._stopped)
        trainer_making.check_changes(trainer, self.run.in_force, self._planned)
        self.writer.begin(trainer.layers, trainer.environment)
        if self._ranked and (notice := cast("RankedTrainer", trainer).notice):
            self.writer.note("notice", notice)
        self._keep_if_due(trainer)
        return True

    def _keep_if_due(self, trainer: Trainer) -> None:
        """Take a snapshot if one is due; the state of several ranks is not stored."""
        if not self._ranked:
            self._rewinder.keep_if_due(trainer, self.run.rule_watch.diagnosis, self.run.findings, self.run.seconds)

    def _return_to_end(self, trainer: Trainer | None) -> bool:
        """Move behind the rows that the run has. Return whether it got there before it was stopped."""
        run = self.run
        self.writer.inherit()
        self.writer.release_parent()
        self.trainer = self._rewinder.stand(trainer, self._stopped)
        if run.replayed is not None:
            return False
        self.writer.go_on(self.trainer.environment)
        self._due.resume()
        trainer_making.check_changes(self.trainer, run.in_force, self._planned)
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
                trainer_making.check_number(len(self.run.timeline) + len(self._planned))
                self._ready.change(name, value)
            except KnobError as fault:
                self.writer.refuse(name, value, str(fault))
            else:
                self.writer.change(name, self._ready.experiment[name])

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
            self._due.request(trainer)
            self.writer.set_status(status)
            if gauge:
                self.gauges.measure(trainer, gauge)
            if not trainer.skip_batches(self._stopped):
                return
            with self.held.in_step(trainer.step):
                rows = trainer.advance()
                self.gauges.measure_added(trainer)
            self.held.hold(rows)
            if trainer.step >= run.experiment.run.steps or self._rewinder.due(run.seconds):
                self.settle()
            elif any(row.went_nonfinite or row.accumulated is not None for row in rows):
                self._record(self.held.release())
            elif self.held.is_due() and self.held.show() > self._look_at:  # rows are looked at only now and then
                self._look()

    def settle(self) -> None:
        """Wait for every row that was made, and add it to the run, which may turn out to be over."""
        if self.outcome is None:
            with self._caught():
                self.held.hold(self._ready.settle())
                self._record(self.held.release())

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
            self._due.take(row)
            if trainer.step == len(run.history) and self.outcome != "failed":  # not what a fault left in mid-step
                self._keep_if_due(trainer)
            if run.first_nonfinite_step == row.step:
                rows += trainer.settle()  # before the trainer is used to look for the cause
                self._explain()
            if row.went_nonfinite and run.in_force.run.stop_on_nonfinite:
                self.outcome = "nonfinite"
                trainer.settle()
                if trainer.step > len(run.history):  # back behind the last row
                    self._stands = False
                    with contextlib.suppress(BaseException):  # not a fault of the run
                        self._stands = bring(run, trainer, self._snapshots, len(run.history), self._stopped)
                return
            self._end_at_the_last()

    def stand(self, interrupted: Callable[[], bool]) -> None:
        """Measure the visible gauges while the run is paused."""
        if self._stands:
            self.gauges.measure_all(self._ready, interrupted)

    def end(self, *, leaving: bool) -> None:
        """Record how the run ended, once. A run that is stopped for another one has no time for the test set."""
        if self._ended:
            return
        self._ended = True
        with self._caught():
            self.gauges.end()
            if self.trainer and self._stands:
                self._read_the_rest()
        if self.trainer is not None and not self._ranked:  # an error if its studio file has modified torch itself
            with self._caught() if self.outcome != "failed" else contextlib.suppress(KnobError):
                self.trainer.subject.end()
        self.outcome = self.outcome or "stopped"
        accuracy = None if leaving and self.outcome == "stopped" else self._accuracy()
        if self._ranked and self.trainer is not None:  # no run continues from their processes
            cast("RankedTrainer", self.trainer).close()
        if self._ranked or self.outcome == "failed":  # it may have been interrupted in mid-step
            self.trainer, self._stands = None, self._stands and not self._ranked
        self._pass_on_notices()
        self.writer.end(self.outcome, self._message, accuracy)

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
        accuracy = self.test_accuracy() if len(self.run.history) else None
        if self.outcome == "finished" and accuracy is not None and math.isnan(accuracy):
            self.writer.diverge_in_weights()
            with self._caught():
                self._explain()
            self.outcome = "nonfinite"
        return accuracy if accuracy is not None and self._ready.subject.judged else None

    def _read_the_rest(self) -> None:
        """Read what was made before the run was stopped, or before a step failed. A non-finite row may be why the step
        failed."""
        self.settle()
        if self.outcome == "failed":
            # a lost device fails again; what was read from it before stays
            with contextlib.suppress(BaseException):
                self.held.hold(self._ready.settle())
            with contextlib.suppress(BaseException):
                self._record(self.held.release())
            if self.outcome != "failed":
                self._message = self.failure = ""

    def _explain(self) -> None:
        """Record where the first non-finite value came from. An error here is not a fault of the run."""
        self.failure = explain(self.writer, self._ready, self._snapshots, self._stopped) or self.failure

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
        except KnobError as fault:
            self.outcome, self._message = "failed", str(fault)
            if not self.run.own:  # later it is a fault of a studio file, which has started to run
                self.writer.refuse_to_train()
        except BaseException as fault:  # including SystemExit: otherwise it would go unreported
            where = own_model.place_of(fault, self.run.experiment)
            self.outcome, self._message = "failed", f"{where}{run_failure.describe(fault, self.run.in_force)}"
            if isinstance(fault, ModuleNotFoundError) and fault.name in run_failure.NEEDED:
                self.writer.refuse_to_train()
            self.failure = traceback.format_exc()
