"""The threads that look into steps for one panel: the latest one, and those that were told to stop."""

from __future__ import annotations

import time
from typing import Generic, TypeVar
from weakref import WeakSet

from gradstudio.session.running.step_sampling import StepSampler

Sampler = TypeVar("Sampler", bound=StepSampler)


class SamplerThreads(Generic[Sampler]):
    """One sampler at a time; another one, or `stop`, ends it after its present step."""

    def __init__(self) -> None:
        self.latest: Sampler | None = None
        self._leaving = WeakSet[StepSampler]()  # told to stop, perhaps still in a step

    def start(self, sampler: Sampler) -> None:
        self.stop()
        self.latest = sampler
        sampler.start()

    def stop(self) -> None:
        if self.latest is not None:
            self.latest.stop()
            self._leaving.add(self.latest)
            self.latest = None

    def take_ended(self) -> Sampler | None:
        """Return the sampler if it has ended, once."""
        if self.latest is None or self.latest.is_alive():
            return None
        ended, self.latest = self.latest, None
        return ended

    def close(self, seconds: float) -> bool:
        """Stop before the window closes; wait so many seconds at most and return whether the threads have ended."""
        self.stop()
        end = time.monotonic() + seconds
        for each in list(self._leaving):
            each.join(max(end - time.monotonic(), 0))
        return not any(each.is_alive() for each in self._leaving)
