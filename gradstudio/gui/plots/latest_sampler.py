"""The thread that looks into a step for one panel."""

from __future__ import annotations

from typing import Generic, TypeVar

from gradstudio.gui.services.jobs import Jobs
from gradstudio.session.running.step_sampling import StepSampler

Sampler = TypeVar("Sampler", bound=StepSampler)


class LatestSampler(Generic[Sampler]):
    """One sampler at a time; another one, or `stop`, ends it after its current step."""

    def __init__(self, jobs: Jobs) -> None:
        self.latest: Sampler | None = None
        self._jobs = jobs

    def start(self, sampler: Sampler) -> None:
        self.stop()
        self.latest = sampler
        sampler.start()

    def stop(self) -> None:
        if self.latest is not None:
            self._jobs.leave(self.latest)
            self.latest = None

    def take_ended(self) -> Sampler | None:
        """Return the sampler if it has ended, once."""
        if self.latest is None or self.latest.is_alive():
            return None
        ended, self.latest = self.latest, None
        return ended
