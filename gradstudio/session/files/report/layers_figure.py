"""The figures Layers x steps and Ranks x steps: the gradient norm of each at every step, as a colour."""

from __future__ import annotations

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm, to_rgba
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from gradstudio.core.text import short_name
from gradstudio.session.files.report.figure_axis import log_ticks, power_of_ten
from gradstudio.session.files.report.figure_data import Trace
from gradstudio.session.files.report.figures import SIZE, Colours, finish

NOT_FINITE, ZERO = "#e5484d", "#9aa1ac"  # neither is a colour of the map, on a light or a dark page
LABELS = 20  # names beside the map, at most
LONGEST = 22  # letters of a name


def height(rows: int) -> float:
    """Return the height in inches of `rows` rows."""
    return min(max(0.24 * rows, 1.5), 3.6) + 0.65


def layers_by_steps(axes: Axes, trace: Trace, colours: Colours) -> None:
    """Draw the gradient norm of every layer."""
    _draw(axes, trace, colours, trace.layer_norms, [layer.name for layer in trace.layers])


def ranks_by_steps(axes: Axes, trace: Trace, colours: Colours) -> None:
    """Draw the norm of every rank's own gradient."""
    cells = trace.rank_norms
    _draw(axes, trace, colours, cells, [f"rank {rank}" for rank in range(len(cells))])


def _draw(axes: Axes, trace: Trace, colours: Colours, cells: np.ndarray, names: list[str]) -> None:
    """Draw every cell, (rows, columns): viridis on a log scale, with separate colours for NaN or Inf and for
    exactly 0."""
    low, high, extend = _levels(cells)
    scale = LogNorm(low, high, clip=True)
    picture = colormaps["viridis"](scale(np.where(cells > 0, cells, low)))
    picture[cells == 0] = to_rgba(ZERO)
    picture[np.isnan(cells)] = to_rgba(NOT_FINITE)
    axes.imshow(
        picture, aspect="auto", interpolation="nearest", extent=(-0.5, len(trace) - 0.5, len(cells) - 0.5, -0.5)
    )
    entries = [Patch(color=ZERO, label="exactly 0")] if (cells == 0).any() else []
    if np.isnan(cells).any():
        entries.append(Patch(color=NOT_FINITE, label="NaN or Inf"))
    finish(
        axes, trace, {**colours, "accent": "#ffffff", "plot": "none"}, entries
    )  # white changes stand out from the map
    axes.grid(False)
    axes.set_ylim(len(cells) - 0.5, -0.5)
    _names(axes, names)
    _colour_bar(axes, scale, log_ticks(float(np.log10(low)), float(np.log10(high))), extend, colours)


def _levels(cells: np.ndarray) -> tuple[float, float, str]:
    """Return the range of colours, from finite values only, without the few cells of a spike."""
    positive = cells[np.isfinite(cells) & (cells > 0)]
    if not len(positive):
        return 0.1, 1.0, "neither"
    low, high = np.quantile(positive, [0.002, 0.995])
    if high < low * 1.01:
        low, high = low / 2, high * 2
    below, above = positive.min() < low, positive.max() > high
    extend = {(True, True): "both", (True, False): "min", (False, True): "max"}.get(
        (bool(below), bool(above)), "neither"
    )
    return float(low), float(high), extend


def _names(axes: Axes, names: list[str]) -> None:
    every = max(1, -(-len(names) // LABELS))
    shown = list(range(0, len(names), every))
    axes.yaxis.set_major_locator(FixedLocator(shown))
    axes.set_yticks(shown, [short_name(names[index], LONGEST) for index in shown], fontsize=SIZE - 1)


def _colour_bar(axes: Axes, scale: LogNorm, ticks: list[float], extend: str, colours: Colours) -> None:
    beside = axes.inset_axes((1.012, 0.0, 0.014, 1.0))
    bar = axes.figure.colorbar(ScalarMappable(scale, colormaps["viridis"]), cax=beside, extend=extend, extendfrac=0.04)
    for quads in bar.ax.collections:
        quads.set_rasterized(True)  # 256 of them, which would show seams
    for spine in bar.ax.spines.values():
        spine.set_visible(False)
    bar.ax.yaxis.set_major_locator(FixedLocator(ticks))
    bar.ax.yaxis.set_minor_locator(NullLocator())
    bar.ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: power_of_ten(value)))
    bar.ax.tick_params(length=0, pad=3, labelsize=SIZE - 1, labelcolor=colours["dim"])
