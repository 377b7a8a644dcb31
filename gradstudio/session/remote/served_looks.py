"""What a worker measures besides its runs: looks into a step, trials of fixes, and the future with the best one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from gradstudio.core.cliff import Cliff
from gradstudio.core.layer_sample import LayerSample
from gradstudio.core.time_steps import TimeMap, TimeSteps
from gradstudio.core.typed_json import to_plain
from gradstudio.session.record.run import Run
from gradstudio.session.record.snapshots import Snapshots
from gradstudio.session.remote.run_news import RunSender
from gradstudio.session.running.cliff_sampling import CliffSampler
from gradstudio.session.running.fix_trials import Trials
from gradstudio.session.running.future_run import FutureRun
from gradstudio.session.running.step_sampling import LayerSampler, StepSampler, TimeMapSampler, TimeStepSampler
from gradstudio.worker.worker_process import Said

LOOKS: dict[str, type[StepSampler]] = {
    "layers": LayerSampler, "cliff": CliffSampler, "time_steps": TimeStepSampler, "time_map": TimeMapSampler,
}  # fmt: skip
FOUND: dict[str, tuple[str, Any]] = {
    "layers": ("sample", LayerSample), "cliff": ("cliff", Cliff), "time_steps": ("sample", TimeSteps),
    "time_map": ("sample", TimeMap),
}  # fmt: skip
# The values sent about a trial, in this order; its outcome comes last.
TRIAL: dict[str, Any] = {
    "from_step": int, "broke_at": int | None, "nonfinite": bool, "loss": float | None, "score": float | None,
    "accuracy": float | None, "learns": bool, "useless": bool, "seconds": float, "message": str,
    "outcome": str | None,
}  # fmt: skip


class ServedTask:
    """A task that runs for the client, which identifies it by a number."""

    def __init__(self, to: int) -> None:
        self.to = to
        self.begun = self.over = self.told_end = False

    def begin(self) -> None:
        self.begun = True

    def news(self) -> list[Said]:
        """Return the new messages; `over` is set once there will be no more."""
        raise NotImplementedError

    def pause(self, paused: bool) -> None:
        raise NotImplementedError

    def stop(self) -> None:
        raise NotImplementedError


class ServedLook(ServedTask):
    """A measurement within a step, made for the client."""

    def __init__(self, to: int, look: StepSampler) -> None:
        super().__init__(to)
        self._look = look
        self._place = next(FOUND[kind][0] for kind, each in LOOKS.items() if type(look) is each)
        self._told: tuple[Any, ...] = (None, None)

    def begin(self) -> None:
        self._look.start()
        super().begin()

    def stop(self) -> None:
        self._look.stop()

    def news(self) -> list[Said]:
        look = self._look
        self.over = not look.is_alive()
        now = look.at, getattr(look, self._place)
        before, self._told = self._told, now
        if not self.over and now[0] == before[0] and now[1] is before[1]:
            return []
        raw: list[np.ndarray] = []
        head: dict[str, Any] = {"m": "look", "to": self.to, "at": now[0], "over": self.over}
        if now[1] is not before[1]:
            head["found"] = to_plain(now[1], raw)
        if self.over:
            head |= {"problem": look.problem, "failure": look.failure}
        return [(head, raw)]


class _TrialsSender(Trials):
    """Trials whose runs are sent from their beginning."""

    def __init__(self, run: Run, snapshots: Snapshots, remedies: Iterable[str]) -> None:
        super().__init__(run, snapshots, remedies)
        self.told: dict[str, RunSender] = {}

    def run_with(self, remedy: str) -> Run:
        run = super().run_with(remedy)
        self.told[run.id] = RunSender(run)
        return run


class ServedTrials(ServedTask):
    """Trials of fixes, one after the other."""

    def __init__(self, to: int, run: Run, snapshots: Snapshots, remedies: list[str]) -> None:
        super().__init__(to)
        self.trials = _TrialsSender(run, snapshots, remedies)
        self._told: dict[int, list[Any]] = {}
        self._now: int | None = None
        self._runs: set[int] = set()

    def begin(self) -> None:
        self.trials.start()
        super().begin()

    def stop(self) -> None:
        self.trials.stop()

    def news(self) -> list[Said]:
        trials, said = self.trials, list[Said]()
        self.over = not trials.is_alive()
        current = trials.now
        now = next((place for place, trial in enumerate(trials.trials) if trial is current), None)
        for place, trial in enumerate(trials.trials):
            values = [getattr(trial, name) for name in TRIAL]  # before its rows, which are at least as new
            run = trial.run
            if run is not None and place not in self._runs:
                self._runs.add(place)
                began = {"id": run.id, "started": run.started, "from_step": trial.from_step}
                said.append(({"m": "trial_run", "to": self.to, "trial": place, "run": began}, ()))
            if run is not None and (trial is current or self._told.get(place) != values):
                news = self.trials.told[run.id].news(self.to)
                said += [({**head, "m": "trial_news", "trial": place}, raw) for head, raw in news]
            if self._told.get(place) != values:
                self._told[place] = values
                said.append(({"m": "trial", "to": self.to, "trial": place, "values": to_plain(values)}, ()))
        if now != self._now or self.over:
            self._now = now
            head = {"m": "trials", "to": self.to, "now": now, "over": self.over, "failure": trials.failure}
            said.append((head, ()))
        return said


class ServedFuture(ServedTask):
    """The continued training of the best fix."""

    def __init__(self, to: int, of: ServedTrials, trial: int, pace: Callable[[], float]) -> None:
        super().__init__(to)
        self._future = FutureRun(of.trials, of.trials.trials[trial], pace)
        self._told = of.trials.told[self._future.record.id]

    def begin(self) -> None:
        self._future.start()
        super().begin()

    def stop(self) -> None:
        self._future.stop()

    def news(self) -> list[Said]:
        self.over = not self._future.is_alive()
        said = self._told.news(self.to)
        return [*said, ({"m": "end", "to": self.to, "failure": self._future.failure}, ())] if self.over else said
