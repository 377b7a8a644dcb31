"""Asks for footprints in the background while knobs move, for whoever shows them: no method waits."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

from gradstudio.core.experiment import Experiment
from gradstudio.core.footprint import Cure, Footprint
from gradstudio.session.footprint import budget
from gradstudio.session.footprint.process import FootprintProcess, FootprintUnknown

DEBOUNCE = 0.25  # seconds that an experiment stays as it is before it is worked out


@dataclass(frozen=True)
class Known:
    """What is known of an experiment so far. `problem` says why it is not; `complete`: nothing more comes."""

    experiment: Experiment
    footprint: Footprint | None = None
    cures: tuple[Cure, ...] = ()
    problem: str = ""
    complete: bool = False


class Estimator:
    """Works out the latest experiment that it was given. Whoever shows it reads `known` now and then; each value is
    whole. Only one thread may call the methods."""

    def __init__(self, debounce: float = DEBOUNCE) -> None:
        self.known: Known | None = None  # the latest answer, perhaps of an earlier experiment than the one asked for
        self._debounce = debounce
        self._wanted: Experiment | None = None
        self._asked_at = 0.0
        self._changed = threading.Condition()
        self._closed = False
        self._thread: threading.Thread | None = None

    def ask(self, experiment: Experiment) -> None:
        """Work this experiment out, in place of the one before."""
        with self._changed:
            if self._closed or experiment == self._wanted:
                return
            self._wanted, self._asked_at = experiment, time.monotonic()
            self._changed.notify()
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="footprints", daemon=True)
            self._thread.start()

    def cancel(self) -> None:
        """Work nothing out until something is asked again. What is known stays."""
        with self._changed:
            self._wanted = None
            self._changed.notify()

    def rest(self, seconds: float) -> bool:
        """End the thread and its process, until something is asked again. Return whether they ended in time."""
        ended = self.close(seconds)
        if ended:
            self._closed, self._thread = False, None
        return ended

    @property
    def busy(self) -> bool:
        """Whether an answer is to come."""
        wanted, known = self._wanted, self.known
        return wanted is not None and (known is None or known.experiment != wanted or not known.complete)

    def close(self, seconds: float = 0.0) -> bool:
        """End the thread and its process; wait so long for them. Return whether they have ended."""
        with self._changed:
            self._closed, self._wanted = True, None
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(seconds)
        return self._thread is None or not self._thread.is_alive()

    def _work(self) -> None:
        process = FootprintProcess()
        while (experiment := self._next()) is not None:
            self._answer(process, experiment)
        process.close()

    def _next(self) -> Experiment | None:
        """Wait for an experiment that has no answer yet and has stayed as it is for a while; None at the end."""
        with self._changed:
            while not self._closed:
                left = self._asked_at + self._debounce - time.monotonic()
                if not self.busy:
                    self._changed.wait()
                elif left > 0:
                    self._changed.wait(left)
                else:
                    return self._wanted
        return None

    def _answer(self, process: FootprintProcess, experiment: Experiment) -> None:
        def stopped() -> bool:
            return self._wanted is not experiment

        footprint, cures, problem = None, list[Cure](), ""
        try:
            for answer in process.ask(experiment, stopped):
                if isinstance(answer, Footprint):
                    footprint = answer
                else:
                    cures.append(answer)
                self.known = Known(experiment, footprint, tuple(cures))
        except FootprintUnknown as why:
            problem = str(why)
        if not stopped():
            if footprint is not None and not problem:
                budget.ASKED.learn(experiment, (footprint, tuple(cures)))  # for the report of such a run
            self.known = Known(experiment, footprint, tuple(cures), problem, complete=True)
