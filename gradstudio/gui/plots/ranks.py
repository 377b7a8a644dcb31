"""The measurements of each rank, over the steps, as a heatmap with a row for each rank. Why look: the mean of all
gradients hides the rank that has a different one, waits for the others or drifts away from them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from gradstudio.core.rank_figures import METRICS
from gradstudio.core.text import number, percent, strong
from gradstudio.gui.drawing.shared_cursor import Cursor, StepRange
from gradstudio.gui.plots.heatmap_plot import HeatmapPlot
from gradstudio.session.record.run import Run

LATEST = 100  # steps for which the share of communication is shown


class RanksPlot(HeatmapPlot):
    """A plot that is shown only for a run on several ranks."""

    title = "Ranks × steps"
    help = (
        "One row for each rank. The gradient norm is that of the rank's own share of the batch, before the ranks "
        "average their gradients."
    )
    names: ClassVar[Mapping[str, str]] = {
        "norm": "own gradient norm", "waiting": "time in communication", "drift": "drift from rank 0",
    }  # fmt: skip
    units: ClassVar[Mapping[str, str]] = {"norm": "L2 norm", "waiting": "share", "drift": "ratio"}
    meanings = METRICS
    shares: ClassVar[frozenset[str]] = frozenset(("waiting",))
    choice_name = "Metric of the ranks"
    finely = True

    def __init__(self, steps: StepRange, cursor: Cursor) -> None:
        super().__init__(steps, cursor)
        self.restyle()
        self.hide()

    def show_ranks(self, run: Run) -> None:
        """Show or hide the plot, depending on whether a run's ranks were measured, or will be."""
        if has_ranks(run) == self.isHidden():
            self.setVisible(has_ranks(run))

    def rows(self, run: Run) -> int:
        return min(len(run.history), len(run.history.ranks))

    def row_names(self, run: Run) -> tuple[str, ...]:
        return tuple(f"rank {rank}" for rank in range(run.experiment.distributed.ranks))

    def values(self, run: Run, metric: str, start: int, stop: int) -> np.ndarray:
        return run.history.ranks.metric(metric, start, stop)

    def legend(self) -> str:
        kind = super().legend()
        if self.run is None or not (count := self.rows(self.run)):
            return kind
        ranks = self.run.history.ranks
        communication, computing = (
            ranks.column(name, count - LATEST, count).sum(dtype=float) for name in ("seconds", "computing")
        )
        whole = communication + computing
        text = f"{percent(float(communication / whole))} of the time in communication" if whole else ""
        drift = f"drift {number(float(ranks.column('drift', count - 1, count).max()))}"
        ways = ((text, drift, kind), (text, kind), (kind,))
        return self.header.first_that_fits(*(" · ".join(filter(None, parts)) for parts in ways))

    def reading(self, run: Run, step: int) -> str:
        if step >= self.rows(run):
            return ""
        ranks = run.history.ranks
        if self._row is not None and 0 <= self._row < ranks.ranks:
            norm, waits, computes, drift, weight, _ = ranks.rows(step, step + 1)[0, self._row].tolist()
            parts = [
                f"rank {self._row}: own norm {number(norm)}",
                f"{number(1e3 * waits)} of {number(1e3 * (waits + computes))} ms in communication",
                f"drift {number(drift)}",
                *([] if abs(weight - 1) < 1e-3 else [f"weight of an example {number(weight)}"]),
            ]
            while len(parts) > 1 and not self.header.fits(f"{strong(f'step {step:,}')} · {' · '.join(parts)}"):
                parts.pop()
            return " · ".join(parts)
        values = ranks.metric(self.shown, step, step + 1)[0].tolist()
        told = percent if self.shown in self.shares else number
        return " · ".join(f"rank {rank} {told(value)}" for rank, value in enumerate(values))

    def own_data(self) -> str:
        lines = ["step,rank,own_norm,communication_seconds,computing_seconds,drift,weight,steps_left"]
        if self.run is not None:
            rows = self.run.history.ranks.rows(0, self.rows(self.run)).tolist()
            lines += [
                ",".join(map(repr, (step, rank, *figures)))
                for step, ranks in enumerate(rows)
                for rank, figures in enumerate(ranks)
            ]
        return "\n".join(lines) + "\n"


def has_ranks(run: Run) -> bool:
    """Return whether the ranks of a run are measured, now or later."""
    several = run.watched is None and run.experiment.distributed.ranks > 1
    return several and (len(run.history.ranks) > 0 or not (len(run.history) or run.over))
