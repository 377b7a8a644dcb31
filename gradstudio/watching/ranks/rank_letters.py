"""What a rank measured of a step, as it is sent to rank 0, and what has come there."""

from __future__ import annotations

import pickle
import time
from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from gradstudio.core.unknown import UNKNOWN
from gradstudio.watching.births.step_births import NO_BIRTH, Birth
from gradstudio.watching.steps.measured_step import MeasuredStep


class Figures(NamedTuple):
    """The figures of a step on one rank. `after`: norm of the gradient as the optimizer's step has left it, UNKNOWN
    if nobody looked. `layers`: (metrics, layers), float32, only of a rank that has parts of the parameters."""

    step: int
    loss: float
    norm: float
    nonfinite: int
    clipped: float
    along: float
    after: float
    layers: np.ndarray | None

    @classmethod
    def of(cls, made: MeasuredStep, *, with_layers: bool) -> Figures:
        """Return the figures of a step that this rank has made, or that the script ended in."""
        gradient = made.gradient
        return cls(
            made.step, made.loss, gradient.norm, gradient.nonfinite, made.clipped_norm, made.change.along_gradient,
            UNKNOWN if made.after is None else made.after.norm, gradient.layers.copy() if with_layers else None,
        )  # fmt: skip


@dataclass
class Letter:
    """What one rank sends at once: steps, where a NaN of one was born, batches that its script skipped, its end."""

    steps: list[Figures] = field(default_factory=list)
    births: dict[int, Birth] = field(default_factory=dict)  # by step
    skipped: list[str] = field(default_factory=list)
    over: bool = False

    def to_bytes(self) -> bytes:
        """Return the letter as bytes. Only processes of one training read each other's."""
        return pickle.dumps(self)

    @staticmethod
    def from_bytes(text: bytes) -> Letter:
        """Return the letter that was written so."""
        return pickle.loads(text)


class Box:
    """What has come from one rank."""

    def __init__(self) -> None:
        self.latest = time.monotonic()  # of its letters
        self.is_open = True  # whether more may come
        self.births: dict[int, Birth] = {}
        self.skipped: deque[str] = deque()
        self._steps: deque[Figures] = deque()

    @property
    def silence(self) -> float:
        """Seconds since the latest letter."""
        return time.monotonic() - self.latest

    def take(self, letter: Letter) -> None:
        self.latest = time.monotonic()
        self._steps += letter.steps
        self.births |= letter.births
        self.skipped += letter.skipped
        self.is_open = not letter.over

    def birth_of(self, step: int) -> Birth:
        """Return where the first value of a step was born that is not finite, as the rank has found it."""
        return self.births.pop(step, NO_BIRTH)

    def has(self, step: int) -> bool:
        """Return whether there is no more to wait for of a step."""
        while self._steps and self._steps[0].step < step:
            self._steps.popleft()
        return bool(self._steps) or not self.is_open

    def of(self, step: int) -> Figures | None:
        """Return the figures of a step, and take them out; None if they have not come."""
        if self.has(step) and self._steps and self._steps[0].step == step:
            return self._steps.popleft()
        return None
