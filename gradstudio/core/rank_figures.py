"""What each rank measures of a step by itself, besides what all of them share."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gradstudio.core.row_blocks import BLOCK, places, stretches


class RankFigures(NamedTuple):
    """`norm`: L2 norm of the rank's own gradient, before averaging. `seconds`: time in communication, including waiting
    for the others. `reductions`: calls of all-reduce, with `reduced` bytes. `drift`: distance of the weights from those
    of rank 0, relative to their norm, UNKNOWN if not measured. `computing`: seconds of the step outside communication.
    `weight`: weight of one of its examples in the mean gradient; 1 if all count the same. `left`: number of steps that
    the rank will still take part in."""

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
RANK_COLUMNS = ("norm", "seconds", "computing", "drift", "weight", "left")  # of RankFigures, in the order of RankRows


class RankRows:
    """RANK_COLUMNS of each rank at each step; `drift` is the last measured one. One writer, many readers, like
    History."""

    def __init__(self) -> None:
        self._blocks: list[np.ndarray] = []  # each (BLOCK, ranks, columns), float32
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def ranks(self) -> int:
        """Number of ranks, 0 before the first step."""
        return self._blocks[0].shape[1] if self._blocks else 0

    def extend(self, figures: np.ndarray) -> None:
        """Add steps: (steps, ranks, columns)."""
        for lines, taken in places(self._count, len(figures)):
            if lines.start == 0:
                self._blocks.append(np.empty((BLOCK, *figures.shape[1:]), np.float32))
            with np.errstate(over="ignore"):
                self._blocks[-1][lines] = figures[taken]
            self._count += lines.stop - lines.start

    def rows(self, start: int = 0, stop: int | None = None) -> np.ndarray:
        """Return steps start to stop: (steps, ranks, columns)."""
        parts = [self._blocks[block][first:last] for block, first, last in stretches(start, stop, self._count)]
        return np.concatenate(parts) if parts else np.empty((0, self.ranks, len(RANK_COLUMNS)), np.float32)

    def column(self, name: str, start: int = 0, stop: int | None = None) -> np.ndarray:
        """Return steps start to stop of one of RANK_COLUMNS: float32, (steps, ranks)."""
        return self.rows(start, stop)[:, :, RANK_COLUMNS.index(name)]

    def metric(self, name: str, start: int = 0, stop: int | None = None) -> np.ndarray:
        """Return steps start to stop of one of METRICS: float32, (steps, ranks)."""
        if name != "waiting":
            return self.column(name, start, stop)
        seconds, computing = self.column("seconds", start, stop), self.column("computing", start, stop)
        return seconds / np.maximum(seconds + computing, np.finfo(np.float32).tiny)
