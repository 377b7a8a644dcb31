"""On-demand gauges: those that are visible, measured between a run's steps for a small share of the time."""

from __future__ import annotations

import math
import time
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING

from gradstudio.core import plugins, ranks_allowed
from gradstudio.core.experiment import Experiment
from gradstudio.core.gauge_samples import NAMES, Unmeasurable
from gradstudio.session.record.run_writer import RunWriter

if TYPE_CHECKING:
    from gradstudio.engine.probes import OnDemandGauges
    from gradstudio.engine.trainer import Trainer

SHARE = 0.1  # of the elapsed time, for all gauges together
FIRST = 0.25  # the next sample costs this share of the first one, which also copies the model and starts from scratch
NO_MODEL = "Not measured with several ranks: the model is in their processes."
SOONEST = 0.1  # seconds from one sample of a gauge to the next: more would not be visible


class GaugeSampler:
    """Measures the visible gauges of a run. Only the run's worker calls it."""

    def __init__(self, writer: RunWriter) -> None:
        self._writer = writer
        self._wanted: tuple[str, ...] = ()
        self._prober: OnDemandGauges | None = None
        self._costs: dict[str, float] = {}  # seconds that the latest sample of a gauge took
        # by gauge: the step of its latest sample, the values in force there, and when that was
        self._latest: dict[str, tuple[int, Experiment | None, float]] = {}
        self.failure = ""  # the traceback of the latest exception, for those who want the details

    def want(self, names: frozenset[str]) -> None:
        """Measure these gauges from now on, and no others."""
        self._wanted = tuple(name for name in NAMES if name in names)
        if not self._wanted and self._prober:
            self._prober.rest()

    def due(self, trainer: Trainer) -> str:
        """Return the gauge to measure before the next step: the most overdue one, "" if none is. A gauge without a
        sample is always overdue, so that a run that diverges at once has one too."""
        if not self._wanted:
            return ""
        now = time.perf_counter()
        over = {
            name: now - self._latest[name][-1] - self._interval(name) if name in self._latest else math.inf
            for name in self._wanted
        }
        name = max(over, key=lambda each: over[each])
        return name if over[name] >= 0 and self._is_new(trainer, name) else ""

    def measure_added(self, trainer: Trainer) -> None:
        """Measure the gauges of plug-ins on the model as the latest step has left it."""
        if plugins.names("gauges"):
            from gradstudio.engine.gauges import added_gauges

            step = trainer.step - 1
            if figures := added_gauges.measure(getattr(trainer, "model", None), step):
                self._writer.gauges[step] = figures

    def measure_all(self, trainer: Trainer, interrupted: Callable[[], bool]) -> None:
        """Measure every gauge that has no sample at the current step, while the run is paused."""
        for name in self._wanted:
            if interrupted():
                return
            if self._is_new(trainer, name):
                self.measure(trainer, name)

    def _is_new(self, trainer: Trainer, name: str) -> bool:
        """Return whether the trainer has moved, or its values have changed, since this gauge was last measured."""
        step, values, _ = self._latest.get(name, (-1, None, 0.0))
        return step != trainer.step or values is not trainer.experiment

    def end(self) -> None:
        """Release what was cached for the next sample."""
        self._prober = None

    def _interval(self, name: str) -> float:
        """Return the seconds between two samples of a gauge. All gauges together take SHARE of the time, and a gauge
        that costs four times as much is measured half as often."""
        roots = sum(math.sqrt(self._costs.get(each, 0.0)) for each in self._wanted)
        return max(math.sqrt(self._costs[name]) * roots / SHARE, SOONEST)

    def measure(self, trainer: Trainer, name: str) -> None:
        """Measure a gauge. An error is shown beside the gauge, and does not affect the run."""
        started = time.perf_counter()
        try:
            if ranks_allowed.several(trainer.experiment):
                raise Unmeasurable(NO_MODEL)
            if self._prober is None:
                from gradstudio.engine.probes import OnDemandGauges

                self._prober = OnDemandGauges(trainer)
            value = self._prober.measure(name)
        except Unmeasurable as fault:
            self._writer.fail_gauge(name, str(fault))
        except Exception as fault:
            self.failure = traceback.format_exc()
            text = str(fault).strip().partition("\n")[0] or "no reason given"
            self._writer.fail_gauge(name, f"It could not be measured ({type(fault).__name__}: {text[:200]}).")
        else:
            self._writer.add_gauge_sample(name, (trainer.step, value))
        now = time.perf_counter()
        self._costs[name] = (now - started) * (1 if name in self._costs else FIRST)
        self._latest[name] = (trainer.step, trainer.experiment, now)
