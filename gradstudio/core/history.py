"""The append-only numeric record of a run: one writer, many readers, no lock.

The writer fills a row and then raises the count; a reader takes the count and then the rows below it. Rows lie in
blocks that never move, so a reader's view stays valid while the writer goes on. NaN and Inf are kept as they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from gradstudio.core.loop_order import Loop, unskipped

BLOCK = 4096  # rows

COLUMNS: dict[str, str] = {
    "step": "number of the optimizer step, from 0",
    "loss": "mean loss of the step's batch, before the update",
    "grad_norm": "L2 norm of the true gradient: unscaled, before clipping",
    "clipped_norm": "L2 norm of the gradient that reached the optimizer",
    "clip_coef": "norm after clipping / norm before clipping; 1 where nothing was clipped",
    "lr": "learning rate of the update",
    "scale": "loss scale that the step's backward pass ran under; 1 without scaling",
    "skipped": "1 where the scaler skipped the update, else 0",
    "nonfinite": "NaN and Inf entries of the unscaled gradient",
    "update_ratio": "L2 norm of the change of the weights / L2 norm of the weights before it",
    "weight_norm": "L2 norm of all weights, before the update",
    "accuracy": "share of the step's training batch that was right; NaN where the task has none",
    "step_seconds": "wall-clock time of the step",
}

LAYER_METRICS: dict[str, str] = {
    "grad_norm": "L2 norm of the layer's true gradient: unscaled, before clipping",
    "weight_norm": "L2 norm of the layer's weights, before the update",
    "update_ratio": "L2 norm of the change of the weights / L2 norm of the weights before it",
    "largest_grad": "largest absolute entry of the true gradient",
    "zero_share": "share of gradient entries that are exactly 0",
    "nonfinite_share": "share of gradient entries that are NaN or Inf",
}


class Layer(NamedTuple):
    """One parameter tensor: its name in the model, what it is, how many entries it has. In forward order."""

    name: str
    role: Literal["weight", "recurrent", "bias", "norm"]
    size: int


@dataclass(frozen=True, slots=True)
class Row:
    """What was measured at one optimizer step. `layers`: (metrics, layers), in the order of LAYER_METRICS."""

    step: int
    loss: float
    grad_norm: float
    clipped_norm: float
    clip_coef: float
    lr: float
    scale: float
    skipped: bool
    nonfinite: int
    update_ratio: float
    weight_norm: float
    accuracy: float
    step_seconds: float
    layers: np.ndarray
    loop: Loop | None = None
    joined_difference: float | None = None  # only where it was asked for: see engine/accumulation.py
    joined_problem: str = ""  # why it could not be had

    @property
    def went_nonfinite(self) -> bool:
        """Whether a NaN or Inf reached the loss or the weights. An overflow that the scaler skipped did not."""
        return not np.isfinite(self.loss) or (self.nonfinite > 0 and not self.skipped)


class History:
    def __init__(self, layers: tuple[Layer, ...] = ()) -> None:
        self.layers = layers
        self._count = 0
        self._rows: list[np.ndarray] = []  # each (BLOCK, columns), float64
        self._layers: list[np.ndarray] = []  # each (BLOCK, metrics, layers), float32: 1e-38 to 1e38
        self.loops: list[tuple[int, Loop]] = []  # the first step of each stretch of steps that made the same calls, skips aside

    def __len__(self) -> int:
        return self._count

    def append(self, row: Row) -> None:
        """Add a row. Only the one writer may call this."""
        block, line = divmod(self._count, BLOCK)
        if line == 0:
            self._rows.append(np.empty((BLOCK, len(COLUMNS))))
            self._layers.append(np.empty((BLOCK, len(LAYER_METRICS), len(self.layers)), np.float32))
        self._rows[block][line] = [getattr(row, name) for name in COLUMNS]
        with np.errstate(over="ignore"):
            self._layers[block][line] = row.layers
        loop = row.loop and unskipped(row.loop)
        if loop is not None and (not self.loops or self.loops[-1][1] != loop):
            self.loops.append((row.step, loop))
        self._count += 1

    def column(self, name: str, start: int = 0, stop: int | None = None) -> np.ndarray:
        """Rows start to stop of one column: float64, (rows,)."""
        return self._read(self._rows, list(COLUMNS).index(name), start, stop)

    def layer_metric(self, name: str, start: int = 0, stop: int | None = None) -> np.ndarray:
        """Rows start to stop of one metric of every layer: float32, (rows, layers)."""
        return self._read(self._layers, list(LAYER_METRICS).index(name), start, stop)

    def row(self, step: int) -> dict[str, float]:
        """Every column at one step."""
        if not 0 <= step < self._count:
            raise IndexError(f"step {step} is not among the {self._count} measured steps")
        return dict(zip(COLUMNS, self._rows[step // BLOCK][step % BLOCK].tolist(), strict=True))

    def _read(self, blocks: list[np.ndarray], index: int, start: int, stop: int | None) -> np.ndarray:
        stop = self._count if stop is None else min(stop, self._count)
        start = min(max(start, 0), stop)
        parts = [blocks[block][max(start - block * BLOCK, 0) : stop - block * BLOCK, index] for block in range(start // BLOCK, -(-stop // BLOCK))]
        if len(parts) == 1:
            return parts[0]
        empty = np.empty((0, len(self.layers)), np.float32) if blocks is self._layers else np.empty(0)
        return np.concatenate(parts) if parts else empty
