"""The measurements of a rank's step, as sent to rank 0, and what has arrived there."""

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
    """The figures of a step on one rank. `moved`: norm of the update; `after`: norm of the gradient as the optimizer's
    step has left it, UNKNOWN if not checked. `layers`: (metrics, layers), float32, only for a rank that has shards of
    the parameters."""

    step: int
    loss: float
    norm: float
    nonfinite: int
    clipped: float
    along: float
    moved: float
    after: float
    layers: np.ndarray | None

    @classmethod
    def of(cls, made: MeasuredStep, *, with_layers: bool) -> Figures:
        """Return the figures of a step that this rank has made, or in which the script ended."""
        gradient = made.gradient
        return cls(
            made.step, made.loss, gradient.norm, gradient.nonfinite, made.clipped_norm, made.change.along_gradient,
            made.change.norm, UNKNOWN if made.after is None else made.after.norm,
            gradient.layers.copy() if with_layers else None,
        )  # fmt: skip


@dataclass
class Letter:
    """One message of a rank: steps, where a NaN in one was born, batches that its script skipped, its end."""

    steps: list[Figures] = field(default_factory=list)
    births: dict[int, Birth] = field(default_factory=dict)  # by step
    skipped: list[str] = field(default_factory=list)
    over: bool = False

    def to_bytes(self) -> bytes:
        """Return the letter as bytes. Only processes of one training read each other's."""
        return pickle.dumps(self)

    @staticmethod
    def from_bytes(text: bytes) -> Letter:
        """Return the letter from its bytes."""
        return pickle.loads(text)


class Box:
    """The messages that have arrived from one rank."""

    def __init__(self) -> None:
        self.latest = time.monotonic()  # of its letters
        self.is_open = True  # whether more may arrive
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
        """Return where the first non-finite value of a step was born, as determined by the rank."""
        return self.births.pop(step, NO_BIRTH)

    def has(self, step: int) -> bool:
        """Return whether the rank has reported this step, or will report nothing more."""
        while self._steps and self._steps[0].step < step:
            self._steps.popleft()
        return bool(self._steps) or not self.is_open

    def of(self, step: int) -> Figures | None:
        """Return the figures of a step, and remove them; None if they have not arrived."""
        if self.has(step) and self._steps and self._steps[0].step == step:
            return self._steps.popleft()
        return None
