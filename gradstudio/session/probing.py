"""Gauges that somebody looks at: measured between a run's steps, as often as they may take a small share of the time."""

from __future__ import annotations

import math
import time
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING

from gradstudio.core.experiment import Experiment
from gradstudio.core.probes import NAMES, Unmeasurable, kept
from gradstudio.session.run import Run

if TYPE_CHECKING:
    from gradstudio.engine.probes import Prober
    from gradstudio.engine.trainer import Trainer

SHARE = 0.1  # of the time that passes, for all gauges together
FIRST = 0.25  # of what the first sample of a gauge cost is what the next will cost: it copies the model and begins from nothing
SOONEST = 0.1  # seconds from one sample of a gauge to the next: nobody sees more


class Probing:
    """Only the run's worker calls it. What it finds goes to run.probes, and why there is nothing to run.probe_problems."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._wanted: tuple[str, ...] = ()
        self._prober: Prober | None = None
        self._costs: dict[str, float] = {}  # seconds that the latest sample of a gauge took
        self._latest: dict[str, tuple[int, Experiment, float]] = {}  # the step and the values that it was taken under, and when
        self.failure = ""  # the traceback of the latest exception, for whoever wants the details

    def want(self, names: frozenset[str]) -> None:
        """From now on these are looked at, and nothing else."""
        self._wanted = tuple(name for name in NAMES if name in names)
        if not self._wanted and self._prober:
            self._prober.rest()

    def due(self, trainer: Trainer) -> str:
        """The gauge that is to be measured before the next step: that which is most overdue, if any is. So a run which breaks at once was
        looked at too."""
        if not self._wanted:
            return ""
        now = time.perf_counter()
        over = {name: now - self._latest[name][-1] - self._interval(name) if name in self._latest else math.inf for name in self._wanted}
        name = max(over, key=lambda each: over[each])
        return name if over[name] >= 0 and self._is_new(trainer, name) else ""

    def standing(self, trainer: Trainer, interrupted: Callable[[], bool]) -> None:
        """The run stands: measure what was not measured here yet."""
        for name in self._wanted:
            if interrupted():
                return
            if self._is_new(trainer, name):
                self.measure(trainer, name)

    def _is_new(self, trainer: Trainer, name: str) -> bool:
        """Whether the trainer stands elsewhere, or under other values, than when this gauge was last measured."""
        step, values, _ = self._latest.get(name, (-1, None, 0.0))
        return step != trainer.step or values is not trainer.experiment

    def end(self) -> None:
        self._prober = None

    def _interval(self, name: str) -> float:
        """Seconds between two samples of a gauge. All together they take SHARE of the time, and one that is four times as dear comes half
        as often."""
        roots = sum(math.sqrt(self._costs.get(each, 0.0)) for each in self._wanted)
        return max(math.sqrt(self._costs[name]) * roots / SHARE, SOONEST)

    def measure(self, trainer: Trainer, name: str) -> None:
        """Whatever goes wrong is said beside the gauge, and is no fault of the run."""
        run, started = self._run, time.perf_counter()
        try:
            if self._prober is None:
                from gradstudio.engine.probes import Prober

                self._prober = Prober(trainer)
            value = self._prober.measure(name)
        except Unmeasurable as fault:
            run.probe_problems[name] = str(fault)
        except Exception as fault:
            self.failure = traceback.format_exc()
            text = str(fault).strip().partition("\n")[0] or "no reason given"
            run.probe_problems[name] = f"It could not be measured ({type(fault).__name__}: {text[:200]})."
        else:
            run.probes[name] = kept(run.probes.get(name, []), (trainer.step, value))
            run.probe_problems.pop(name, None)
        now = time.perf_counter()
        self._costs[name] = (now - started) * (1 if name in self._costs else FIRST)
        self._latest[name] = (trainer.step, trainer.experiment, now)
