"""The section of a report on the ranks of a run: what they reduced, how they spent their time, how far they drifted."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from gradstudio.core.text import number, percent, plural
from gradstudio.session.files.report import figure_data, layers_figure
from gradstudio.session.files.report.blocks import Block, Plot, Prose, Section, Table
from gradstudio.session.files.report.figure_axis import plain_axis
from gradstudio.session.files.report.figure_data import Trace
from gradstudio.session.files.report.figures import Colours, finish
from gradstudio.session.record.run import Run


def ranks(run: Run) -> Section | None:
    """Return the section; None for a single-process run."""
    trace = figure_data.take(run)
    if run.watched is not None or run.experiment.distributed.ranks == 1 or not len(trace):
        return None
    blocks: list[Block] = [Prose(_reductions(run, trace))]
    if trace.ranks_known:
        blocks += [
            _table(trace),
            Prose("Time in communication includes waiting for the other ranks; the rest is computing.", True),
            Plot(
                "ranks", "Ranks × steps", "norm of each rank's own gradient before it is averaged, log colour",
                layers_figure.height(run.experiment.distributed.ranks), layers_figure.ranks_by_steps, trace,
            ),
        ]  # fmt: skip
    else:
        blocks.append(Prose("What each rank measured by itself was not kept with this run.", dim=True))
    if trace.measurements("rank_drift")[1].any():
        note = "largest distance of a rank's weights from those of rank 0, relative to their norm"
        blocks.append(Plot("drift", "Drift of the ranks", note, 1.1, _drift, trace))
    return Section("ranks", "Ranks", tuple(blocks))


def _reductions(run: Run, taken: Trace) -> str:
    """Return how often the gradients were reduced."""
    count = run.experiment.distributed.ranks
    calls, sent = (_range(taken.measurements(name)[1]) for name in ("all_reduces", "reduced_bytes"))
    drifts = taken.measurements("rank_drift")[1]
    apart = ""
    if len(drifts) and np.isfinite(drifts).all():
        apart = f" The weights of the ranks were at most {number(float(drifts.max()))} of their norm apart."
        apart = apart if drifts.any() else " Their weights were the same at each look, every 20 steps."
    return (
        f"{plural(count, 'process', 'processes')} trained together. All-reduces a step: {calls or 'not known'}, of "
        f"{sent or 'not known'} bytes.{apart}"
    )


def _range(values: np.ndarray) -> str:
    """Return the smallest and largest of some counts; "" if there are none."""
    if not len(values):
        return ""
    low, high = int(values.min()), int(values.max())
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _table(trace: Trace) -> Table:
    ranks = trace.history.ranks
    columns = [ranks.column(name, 0, trace.count).astype(float) for name in ("norm", "seconds", "computing", "drift")]
    told: list[tuple[str, ...]] = []
    for rank in range(ranks.ranks):
        norm, waits, computes, drift = (values[:, rank] for values in columns)
        whole = float(waits.sum() + computes.sum())
        told.append(
            (
                f"rank {rank}", _median(norm), percent(float(waits.sum()) / whole) if whole else "–",
                f"{number(1e3 * float(np.median(waits)))} ms", f"{number(1e3 * float(np.median(computes)))} ms",
                number(float(drift[-1])),
            )
        )  # fmt: skip
    head = ("", "own norm, median", "in communication", "of a step, median", "computing, median", "drift at the end")
    return Table(head, tuple(told), (0.12, 0.18, 0.18, 0.18, 0.18, 0.16))


def _median(norms: np.ndarray) -> str:
    """Return the median of the finite norms, and how many are not."""
    finite = norms[np.isfinite(norms)]
    text = number(float(np.median(finite))) if len(finite) else "–"
    return text if len(finite) == len(norms) else f"{text}; {len(norms) - len(finite):,} not finite"


def _drift(axes: Axes, trace: Trace, colours: Colours) -> None:
    steps, values = trace.measurements("rank_drift")
    plain_axis(axes, values)
    style: Any = {"color": colours["accent"], "linewidth": 1.2, "marker": "o", "markersize": 3}
    mask = figure_data.reduce(values)
    axes.plot(steps[mask], values[mask], **style)
    finish(axes, trace, colours, [])
