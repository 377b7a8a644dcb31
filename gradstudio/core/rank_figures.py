"""What each rank measures of a step by itself, beside what all of them share."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

_BLOCK = 4096  # rows


class RankFigures(NamedTuple):
    """`norm`: L2 norm of the rank's own gradient, before it is averaged. `seconds`: in communication, which includes
    waiting for the others. `reductions`: calls of all-reduce, of `reduced` bytes. `drift`: distance of the weights
    from those of rank 0, relative to their norm, UNKNOWN where it was not measured. `computing`: seconds of the step
    beside communication. `weight`: of one of its examples in the mean gradient; 1 where all count the same. `left`:
    steps after this one that it will come to."""

    norm: float
    seconds: float
    reductions: int
    reduced: int
    drift: float
    computing: float
    weight: float
    left: float


METRICS: dict[str, str] = {
    "norm": "L2 norm of the rank's own gradient: unscaled, before it is averaged over the ranks",
    "waiting": "share of the rank's time in communication, which includes waiting for the other ranks",
    "drift": "distance of the rank's weights from those of rank 0 / their norm, as last measured (every 20 steps)",
}
FIGURES = 6  # of a rank, as RankRows has them


class RankRows:
    """For each step and rank six numbers: the norm of its own gradient before it was averaged, its seconds in
    communication, its seconds computing, its drift as last measured, the weight of one of its examples, and the
    number of steps that it will still come to. One writer, many readers, as History."""

    def __init__(self) -> None:
        self._blocks: list[np.ndarray] = []  # each (rows, ranks, 6), float32
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def ranks(self) -> int:
        """Number of ranks, 0 before the first step."""
        return self._blocks[0].shape[1] if self._blocks else 0

    def append(self, figures: np.ndarray) -> None:
        """Add a step: (ranks, 6)."""
        if self._count % _BLOCK == 0:
            self._blocks.append(np.empty((_BLOCK, *figures.shape), np.float32))
        with np.errstate(over="ignore"):
            self._blocks[-1][self._count % _BLOCK] = figures
        self._count += 1

    def extend(self, figures: np.ndarray) -> None:
        """Add steps that were measured before: (steps, ranks, 6)."""
        taken = 0
        while taken < len(figures):
            line = self._count % _BLOCK
            if line == 0:
                self._blocks.append(np.empty((_BLOCK, *figures.shape[1:]), np.float32))
            count = min(_BLOCK - line, len(figures) - taken)
            self._blocks[-1][line : line + count] = figures[taken : taken + count]
            self._count += count
            taken += count

    def rows(self, start: int = 0, stop: int | None = None) -> np.ndarray:
        """Return steps start to stop: (steps, ranks, 6)."""
        stop = self._count if stop is None else min(stop, self._count)
        start = min(max(start, 0), stop)
        parts = [
            block[max(start - first, 0) : min(stop - first, _BLOCK)]
            for first, block in zip(range(0, self._count, _BLOCK), self._blocks, strict=False)
            if start < first + _BLOCK and stop > first
        ]
        return np.concatenate(parts) if parts else np.empty((0, self.ranks, FIGURES), np.float32)

    def metric(self, name: str, start: int = 0, stop: int | None = None) -> np.ndarray:
        """Return steps start to stop of one of METRICS: float32, (steps, ranks)."""
        rows = self.rows(start, stop)
        if name == "waiting":
            return rows[:, :, 1] / np.maximum(rows[:, :, 1] + rows[:, :, 2], np.finfo(np.float32).tiny)
        return rows[:, :, {"norm": 0, "drift": 3}[name]]
