"""Training one cell: the task of a worker process. The run is that of the cell's experiment, bit for bit on the CPU.

Measurements that only serve display are omitted. The trainer of an earlier cell is reused if the two differ only in
knobs that its recorded passes do not depend on: it is set to the initial state of the new one."""

from __future__ import annotations

import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from gradstudio.core.events import Change
from gradstudio.core.experiment import Experiment
from gradstudio.core.knobs import KnobError, Value
from gradstudio.core.text import clean
from gradstudio.session.map.outcome import CellResult, Judge, final_loss

if TYPE_CHECKING:
    from gradstudio.engine.trainer import Trainer

KEPT = 4  # cached trainers: one for each seed or panel, if there are few
LOOK_EVERY = 16  # steps between two checks whether to stop
# Knobs that act only before the first step, besides those that act live.
FIRST_STATE = frozenset({"model.init", "model.init_gain", "model.initial_bias", "run.steps", "run.stop_on_nonfinite"})


class Order(NamedTuple):
    """A run to be made: its experiment and its planned changes."""

    experiment: Experiment
    timeline: tuple[Change, ...]


class Bench:
    """Trains cells one after another, and caches trainers for reuse."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # a worker of a cluster may have several threads
        self._kept: OrderedDict[tuple[tuple[str, Value], ...], Trainer] = OrderedDict()

    def train(self, order: Order, stopped: Callable[[], bool]) -> CellResult | None:
        """Return the result of a cell; None if it was stopped."""
        with self._lock:
            started = time.perf_counter()
            try:
                return self._train(order, stopped, started)
            except Exception as fault:
                self._kept.clear()  # an earlier one may have stopped in mid-step
                text = clean(str(fault).strip().partition("\n")[0][:300])
                message = text if isinstance(fault, KnobError) else f"{type(fault).__name__}: {text}"
                return CellResult("failed", -1, math.nan, math.nan, time.perf_counter() - started, message)

    def _train(self, order: Order, stopped: Callable[[], bool], started: float) -> CellResult | None:
        trainer, judge, losses = self.trainer_for(order.experiment), Judge(order.experiment), []
        to_come = [change for change in order.timeline if change.step < order.experiment.run.steps]
        diverged = False
        while trainer.step < order.experiment.run.steps and not diverged:
            if trainer.step % LOOK_EVERY == 0 and stopped():
                return None
            while to_come and to_come[0].step <= trainer.step:
                change = to_come.pop(0)
                trainer.change(change.knob, change.value)
            if not trainer.skip_batches(stopped):
                return None
            row = next(trainer.steps())
            losses.append(row.loss)
            diverged = judge.has_diverged(row.loss) or row.went_nonfinite
        accuracy = math.nan
        if not diverged:
            if judge.by_accuracy and (test_accuracy := trainer.evaluate()) is not None:
                accuracy = test_accuracy
            diverged = not trainer.weights_are_finite()
        level = math.nan if diverged else final_loss(losses)
        outcome = "diverged" if diverged else judge.at_the_end(level, accuracy)
        seconds = time.perf_counter() - started
        return CellResult(outcome, len(losses) - 1, losses[-1], level, seconds, "", trainer.environment)

    def trainer_for(self, experiment: Experiment) -> Trainer:
        """Return a trainer before the first step of an experiment."""
        from gradstudio.engine.snapshot import Snapshot
        from gradstudio.engine.trainer import Trainer

        fresh = Trainer(experiment, measured=False)
        if experiment.studio_file is not None:
            return fresh  # its own model may have state that no snapshot includes
        kind = _kind(experiment)
        kept = self._kept.pop(kind, None)
        if kept is not None:
            Snapshot.take(fresh).restore(kept)
        self._kept[kind] = kept or fresh
        if len(self._kept) > KEPT:
            self._kept.popitem(last=False)
        return self._kept[kind]


def _kind(experiment: Experiment) -> tuple[tuple[str, Value], ...]:
    """Return the values that are fixed when a trainer is built."""
    return tuple(
        (knob.name, value) for knob, value in experiment.items() if not knob.live and knob.name not in FIRST_STATE
    )
