"""A run and its trainer, brought forward step by step: any exception that training can raise becomes its status.

Where a device works beside the host, the rows come some steps after they were made (engine/deferred.py), and the trainer is ahead of the run.
Everywhere rows are held back for a moment (HELD). All that needs the two at the same step settles first: it waits for the rows. What a
trainer did beyond a row that ends its run never belonged to that run: its rows are dropped, and it is taken back.
"""

from __future__ import annotations

import contextlib
import math
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from gradstudio.core import compiled
from gradstudio.core.experiment import Experiment
from gradstudio.core.history import SAMPLE_EVERY, Row
from gradstudio.core.knobs import KnobError, Value
from gradstudio.session import branches, torch_library
from gradstudio.session.investigation import bring, investigate
from gradstudio.session.probing import Probing
from gradstudio.session.replay import Replay
from gradstudio.session.run import Run, Status
from gradstudio.session.snapshots import Snapshots

if TYPE_CHECKING:
    from gradstudio.engine.trainer import Trainer

# Rows are taken in many at a time: after a step the processor's caches are full of the model, and only the first row has to pay for that.
HELD = 1 / 60  # seconds until they can be seen, at the end of a step: half the time between two frames of the window
UNSEEN = 0.2  # seconds until the rules look at them, likewise


class Lane:
    """Only its worker calls it."""

    def __init__(self, run: Run, snapshots: Snapshots) -> None:
        self.run = run
        self.trainer: Trainer | None = None
        self.outcome: Status | None = None  # once nothing more comes
        self.failure = ""  # the traceback of an exception, for whoever wants the details
        self._message, self._told = "", False
        self._held: list[Row] = []
        self._show_at = self._look_at = 0.0
        self._stands = False  # whether the trainer is where the run is
        self._snapshots, self._replay = snapshots, Replay(run, snapshots)
        self.probing = Probing(run)
        self._stopped: Callable[[], bool] = lambda: False
        self._planned = run.to_come
        self._compare_at = frozenset(run.compare_at)
        self._looked_at: Experiment | None = None
        self._accumulating = self._accumulation = None  # the way of accumulating now, and the latest that was checked

    def begin(self, trainer: Trainer | None, stopped: Callable[[], bool]) -> None:
        """Stand before the first step, or behind the rows that the run has; `trainer` is one of its family that can be brought there."""
        self.trainer, self._stopped = trainer, stopped
        with self._caught():
            torch_library.load_ahead()
            from gradstudio.engine.trainer import Trainer

            compiled.compile_all()  # also what draws the rows, for which a window is not to wait
            run = self.run
            if stopped():  # while another run had to end, or torch to load
                return
            if run.environment:
                branches.inherit(run)
                run.forked_from = None
                self.trainer = self._replay.stand(trainer, stopped)
                if run.replayed is not None:  # it was stopped on its way there
                    return
                run.environment = self.trainer.environment
                checked = [check.step for check in run.history.accumulated if math.isfinite(check.difference)]
                self._accumulation = _way_of_accumulating(run.values_at(checked[-1])) if checked else None
                self._check_plan(self.trainer)
            else:
                self.trainer = Trainer(run.experiment)
                self._check_plan(self.trainer)
                run.begin(self.trainer.layers, self.trainer.environment)
                run.keep(partial(self._replay.keep_if_due, self.trainer))
            self._keep = partial(self._replay.keep_if_due, self.trainer)
            self._stands = True
            self._end_at_the_last()

    def change_as_planned(self) -> None:
        while self._planned and self._planned[0].step <= self.trainer.step:
            change = self._planned.pop(0)
            self.change(change.knob, change.value)

    def change(self, name: str, value: Value) -> None:
        """A live knob changes; what the device or the knob does not allow is refused, and the run goes on as it was."""
        if self.run.in_force[name] == value:
            return
        self.settle()
        if self.outcome is not None:
            return
        with self._caught():
            try:
                self.trainer.change(name, value)
            except KnobError as fault:
                self.run.refuse(name, value, str(fault))
            else:
                self.run.change(name, value)

    def compare(self) -> None:
        """The next step also computes the gradient of its micro-batches joined into one."""
        self.trainer.compare_next = True

    def step(self, status: Status) -> None:
        """One optimizer step, made while the run has this status."""
        run = self.run
        with self._caught():
            gauge = self.probing.due(self.trainer)
            if gauge:
                self.settle()
                if self.outcome is not None:
                    return
            self.trainer.compare_next |= self.trainer.step in self._compare_at
            self._measure_if_due()
            run.status = status
            if gauge:
                self.probing.measure(self.trainer, gauge)
            rows = self.trainer.advance()
            self._held += rows
            if self.trainer.step >= run.experiment.run.steps or self._replay.due(run.seconds):
                self.settle()
            elif any(row.went_nonfinite or row.accumulated is not None for row in rows):
                self._record(self._let_go())
            elif time.perf_counter() > self._show_at:
                self._show()

    def settle(self) -> None:
        """The run has every row that was made. It may turn out to be over."""
        if self.outcome is None:
            with self._caught():
                self._held += self.trainer.settle()
                self._record(self._let_go())

    def _let_go(self) -> list[Row]:
        """The rows that were held back."""
        rows, self._held = self._held, []
        return rows

    def _show(self) -> None:
        """Rows that were held back can be seen; now and then they are looked at too."""
        for row in self._let_go():
            self.run.append(row)
        self._show_at = time.perf_counter() + HELD
        if self._show_at > self._look_at:
            self._look()

    def _look(self) -> None:
        self.run.look()
        self._look_at = time.perf_counter() + UNSEEN

    def _record(self, rows: Iterable[Row]) -> None:
        run, rows = self.run, deque(rows)
        self._look()
        while rows:
            row = rows.popleft()
            run.record(row)
            if row.accumulated is not None and math.isfinite(row.accumulated.difference):  # not where a loss scale overflowed
                self._accumulation = self._accumulating
            if self.trainer.step == len(run.history) and self.outcome != "failed":  # not what a fault left in mid-step
                run.keep(self._keep)
            if run.first_nonfinite_step == row.step:
                rows += self.trainer.settle()  # before the trainer is used to look for the cause
                self._investigate()
            if row.went_nonfinite and run.in_force.run.stop_on_nonfinite:
                self.outcome = "nonfinite"
                self._take_back()
                return
            self._end_at_the_last()

    def _take_back(self) -> None:
        """Stand behind the last row, where the trainer has gone beyond it."""
        self.trainer.settle()
        if self.trainer.step > len(self.run.history):
            self._stands = False
            with contextlib.suppress(Exception):  # it is no fault of the run
                self._stands = bring(self.run, self.trainer, self._snapshots, len(self.run.history), self._stopped)

    def stand(self, interrupted: Callable[[], bool]) -> None:
        """The run stands; whoever looks at gauges wants them of here."""
        if self._stands:
            self.probing.standing(self.trainer, interrupted)

    def _measure_if_due(self) -> None:
        """What is measured now and then, beside the step: activations, and once in every way of accumulating whether the sum is right."""
        self.trainer.sample_activations_next = self.trainer.step % SAMPLE_EVERY == 0
        if self.run.in_force is not self._looked_at:
            self._looked_at = self.run.in_force
            self._accumulating = _way_of_accumulating(self._looked_at)
        self.trainer.check_accumulation_next = self._looked_at.accumulation.steps > 1 and self._accumulating != self._accumulation

    def end(self, *, leaving: bool) -> None:
        """Tell the run what came of it, once. One that is stopped to be left has no time for the test set."""
        if self._told:
            return
        self._told = True
        run, accuracy = self.run, None
        self.probing.end()
        if self.trainer and self._stands:
            self._read_the_rest()
        self.outcome = self.outcome or "stopped"
        if self.trainer and self._stands and self.outcome != "failed" and len(run.history) and not (leaving and self.outcome == "stopped"):
            with self._caught():
                accuracy = self.trainer.evaluate()
            if self.outcome == "finished" and accuracy is not None and math.isnan(accuracy):
                run.weights_broke()
                with self._caught():
                    self._investigate()
                self.outcome = "nonfinite"
        if self.outcome == "failed":
            self.trainer = None  # it may have been left in mid-step
        run.end(self.outcome, self._message, accuracy)

    def _read_the_rest(self) -> None:
        """What was made before it was stopped, or before a step failed; one that was not finite may be why that failed."""
        self.settle()
        if self.outcome == "failed":
            with contextlib.suppress(Exception):  # a device that is gone fails again; what was read of it before stays
                self._held += self.trainer.settle()
            with contextlib.suppress(Exception):
                self._record(self._let_go())
            if self.outcome != "failed":
                self._message = self.failure = ""

    def _check_plan(self, trainer: Trainer) -> None:
        """KnobError where the device cannot do what changes that are to come ask for, before a single step is made."""
        experiment = self.run.in_force
        for change in self._planned:
            experiment = experiment.with_value(change.knob, change.value)
            if change.knob == "precision.dtype":
                try:
                    trainer.check(experiment)
                except KnobError as fault:
                    raise KnobError(f"timeline at step {change.step}: {fault}") from None

    def _investigate(self) -> None:
        """Find where the first non-finite value came from. Whatever keeps it from being found is no fault of the run."""
        try:
            self.run.provenance = investigate(self.run, self.trainer, self._snapshots, self._stopped)
        except Exception:
            self.failure = traceback.format_exc()

    def _end_at_the_last(self) -> None:
        if len(self.run.history) >= self.run.experiment.run.steps:
            self.outcome = "finished" if self.run.first_nonfinite_step is None else "nonfinite"

    @contextlib.contextmanager
    def _caught(self) -> Iterator[None]:
        try:
            yield
        except KnobError as fault:
            self.outcome, self._message, self.run.refused = "failed", str(fault), True
        except Exception as fault:
            self.outcome, self._message = "failed", _describe(fault, self.run.in_force)
            self.run.refused = isinstance(fault, ModuleNotFoundError) and fault.name in _NEEDED
            self.failure = traceback.format_exc()


def _way_of_accumulating(knobs: Experiment) -> tuple[object, ...]:
    return knobs.accumulation, knobs.mistakes, knobs.precision.dtype


_NEEDED = {"torch": "PyTorch", "numba": "numba"}


def _describe(fault: BaseException, in_force: Experiment) -> str:
    """An exception as one sentence, with the usual way out where there is one."""
    text = str(fault).strip().partition("\n")[0] or type(fault).__name__
    if isinstance(fault, ModuleNotFoundError) and fault.name in _NEEDED:
        return f"{_NEEDED[fault.name]} is not installed, and nothing trains without it; install it with: pip install {fault.name}"
    if "out of memory" in text.lower() or isinstance(fault, MemoryError) or "can't allocate memory" in text.lower():
        return f"Out of memory: {text[:300]} Halve problem.batch_size or model.width and restart."
    mistakes = [knob.name for knob, value in in_force.items() if knob.section == "mistakes" and value]
    cause = f" (switched on: {', '.join(mistakes)})" if mistakes else ""
    return f"{type(fault).__name__}: {text[:400]}{cause}"
