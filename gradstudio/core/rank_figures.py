"""What each rank measures of a step by itself, beside what all of them share."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

_BLOCK = 4096  # rows


class RankFigures(NamedTuple):
    """`norm`: L2 norm of the rank's own gradient, before it is averaged. `seconds`: in communication. `reductions`:
    calls of all-reduce, of `reduced` bytes. `drift`: distance of the weights from those of rank 0, relative to their
    norm, UNKNOWN where it was not measured."""

    norm: float
    seconds: float
    reductions: int
    reduced: int
    drift: float


class RankRows:
    """For each step and rank two numbers: the norm of its own gradient before it was averaged, and its seconds in
    communication. In memory only: a run that is read from a library has none. One writer, many readers, as History."""

    def __init__(self) -> None:
        self._blocks: list[np.ndarray] = []  # each (rows, ranks, 2), float32
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def append(self, figures: np.ndarray) -> None:
        """Add a step: (ranks, 2)."""
        if self._count % _BLOCK == 0:
            self._blocks.append(np.empty((_BLOCK, *figures.shape), np.float32))
        with np.errstate(over="ignore"):
            self._blocks[-1][self._count % _BLOCK] = figures
        self._count += 1

    def rows(self, start: int = 0, stop: int | None = None) -> np.ndarray:
        """Return steps start to stop: (steps, ranks, 2)."""
        stop = self._count if stop is None else min(stop, self._count)
        start = min(max(start, 0), stop)
        parts = [
            block[max(start - first, 0) : min(stop - first, _BLOCK)]
            for first, block in zip(range(0, self._count, _BLOCK), self._blocks, strict=False)
            if start < first + _BLOCK and stop > first
        ]
        return np.concatenate(parts) if parts else np.empty((0, 0, 2), np.float32)
