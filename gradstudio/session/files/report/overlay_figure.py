"""One quantity of several runs in one figure: each run has a colour, a dash and a letter."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from gradstudio.session.files.report.figure_data import Trace, reduce, thin
from gradstudio.session.files.report.figures import SIZE, Colours, frame, key, marks
from gradstudio.session.files.report.palette import LETTERS, looks

POINTS = 1200  # drawn points a run, at most
MARKS = 60  # marks of a kind a run, at most
_APART = 8.5  # points between two letters


def overlaid(
    axes: Axes, traces: Sequence[Trace], colours: Colours, *, column: str, scale: Callable[[Axes, np.ndarray], None],
    journey: bool = False,
) -> None:  # fmt: skip
    """Draw the column of every run on one axis: a gap and a mark where it is not finite, a letter at its end."""
    columns = [trace[column] for trace in traces]
    kept = [reduce(values, POINTS) for values in columns]
    scale(axes, np.concatenate([values[places] for values, places in zip(columns, kept, strict=True)]))
    frame(axes, max(map(len, traces)), colours)
    positive = axes.get_yscale() == "log"
    entries, reasons, ends = [], {}, []
    worn = looks(len(traces), journey=journey)
    for index, (values, places) in enumerate(zip(columns, kept, strict=True)):
        colour, dashes = colours[worn[index][0]], worn[index][1] or (None, None)
        shown = values[places]
        drawable = np.isfinite(shown) & ((shown > 0) | (not positive))
        line = axes.plot(
            places, np.where(drawable, shown, np.nan), color=colour, linewidth=1.2, dashes=dashes, label=LETTERS[index]
        )[0]
        entries.append(line)
        padded = np.concatenate([[False], drawable, [False]])
        alone = drawable & ~padded[:-2] & ~padded[2:]
        axes.plot(places[alone], shown[alone], linestyle="none", marker="o", markersize=2.5, color=colour)
        for name, marker, where in (("NaN", "x", np.isnan(values)), ("Inf", "^", np.isinf(values))):
            if where.any():
                steps = thin(np.flatnonzero(where), len(values), MARKS)
                marks(axes, steps, 0.96 - 0.05 * index, marker, colour)
                reasons[name] = Line2D(
                    [], [], linestyle="none", marker=marker, markersize=4, color=colours["dim"], label=name
                )
        if drawable.any():
            last = int(np.flatnonzero(drawable)[-1])
            ends.append((index, float(places[last]), float(shown[last])))
    _letters(axes, ends, colours, [name for name, _ in worn])
    key(axes, [*entries, *reasons.values()], colours, length=3.2)


def _letters(axes: Axes, ends: Sequence[tuple[int, float, float]], colours: Colours, names: Sequence[str]) -> None:
    """Draw a letter behind the end of each curve. Curves that end in one point share a label; labels at the same step
    are moved apart, in the order of their heights."""
    points = 72 / axes.figure.dpi
    places: dict[tuple[int, int], list[int]] = {}
    for index, step, value in ends:
        x, y = axes.transData.transform((step, value)) * points
        places.setdefault((round(x), round(y)), []).append(index)
    at = {index: (step, value) for index, step, value in ends}
    placed: list[tuple[int, float]] = []
    edge = axes.transAxes.transform((0.99, 0))[0] * points  # beyond it a letter covers nothing
    for (x, y), runs in sorted(places.items(), key=lambda place: place[0][1]):
        lifted = float(y)
        for other_x, other_y in placed:  # from the lowest up
            if abs(other_x - x) < _APART and lifted - other_y < _APART:
                lifted = other_y + _APART
        placed.append((x, lifted))
        colour = colours[names[runs[0]]] if len(runs) == 1 else colours["dim"]
        axes.annotate(
            "".join(LETTERS[run] for run in runs),
            at[runs[0]],
            (4, lifted - y),
            textcoords="offset points",
            va="center",
            ha="left",
            fontsize=SIZE,
            fontweight="bold",
            color=colour,
            annotation_clip=False,
            zorder=5,
            bbox={"facecolor": "none" if x > edge else colours["plot"], "edgecolor": "none", "pad": 0.8},
        )
