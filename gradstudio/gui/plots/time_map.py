"""The gradient along a sequence over training, as rows of a heatmap. Why look: a gradient that fades on its way back
through the time steps is dark at the top, and the map shows when that begins."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gradstudio.core.text import number
from gradstudio.core.time_steps import TimeMap
from gradstudio.core.unknown import UNKNOWN

KEY, NAME, UNIT = "time_steps", "|dL/dh| by time step", "L2 norm"
MEANING = (
    "L2 norm of the loss's gradient by the hidden state after each time step of a recurrent network. It is measured "
    "where the run stands, by a copy that makes its steps again"
)
WAITS, NOT_RECURRENT = "measured once the run stands", "this run has no recurrent network"


@dataclass(frozen=True)
class TimeMapRows:
    """The map of the visible run, and `note`: why there is none, or nothing behind its last step."""

    map: TimeMap | None = None
    note: str = WAITS

    @property
    def names(self) -> tuple[str, ...]:
        return () if self.map is None else tuple(f"t {place + 1}" for place in range(self.map.norms.shape[1]))

    def values(self, start: int, stop: int) -> np.ndarray:
        """Return the norms at steps start to stop, (steps, time steps): those of the latest look, UNKNOWN behind the
        last one."""
        if self.map is None:
            return np.empty((stop - start, 0), np.float32)
        steps = np.arange(start, stop)
        norms = self.map.norms[np.searchsorted(self.map.steps, steps, "right") - 1]
        return np.where((steps <= self.map.steps[-1])[:, None], norms, np.float32(UNKNOWN))

    def reading(self, step: int, row: int | None) -> str:
        if self.map is None or step > self.map.steps[-1]:
            return self.note
        norms = self.values(step, step + 1)[0]
        at = self.map.steps[np.searchsorted(self.map.steps, step, "right") - 1]
        measured = "" if at == step else f", at step {at:,}"
        if row is not None and row < len(norms):
            return f"t {row + 1} {number(float(norms[row]))}{measured}"
        return f"first {number(float(norms[0]))} · last {number(float(norms[-1]))}{measured}"

    def data(self) -> str:
        """Return the map as CSV."""
        lines = [",".join(("step", *(name.replace(" ", "_") for name in self.names)))]
        if self.map is not None:
            rows = zip(self.map.steps.tolist(), self.map.norms.tolist(), strict=True)
            lines += [",".join(map(repr, (step, *norms))) for step, norms in rows]
        return "\n".join(lines) + "\n"
