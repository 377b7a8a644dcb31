"""The figures of a report, each drawn on given matplotlib axes, independent of the page."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter

from gradstudio.core.open_fonts import close_fonts
from gradstudio.core.row import loss_broke
from gradstudio.core.text import number
from gradstudio.core.unknown import known_mask
from gradstudio.session.files.report.figure_axis import log2_axis, log_axis, plain_axis, step_axis
from gradstudio.session.files.report.figure_data import Trace, reduce, thin
from gradstudio.session.record.own_steps import differ, own_step

WIDTH = 7.6  # inches
LEFT, RIGHT = 1.22, 0.62  # inches beside the axes, the same for every figure, so that their steps line up
SIZE = 8  # font size in points

Colours = Mapping[str, str]

STYLE = {
    "font.size": SIZE,
    "font.family": ["DejaVu Sans"],
    "text.parse_math": False,
    "axes.unicode_minus": False,
    "svg.fonttype": "none",
    "pdf.fonttype": 42,
    "path.simplify": True,
}


@contextmanager
def drawing(**more: Any) -> Iterator[None]:
    """Set the style of every figure while one is drawn, and close the fonts; `more` are further rcParams."""
    style: Any = {**STYLE, **more}
    with close_fonts(), matplotlib.rc_context(style), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")  # a name may contain letters that the font lacks
        yield


def loss(axes: Axes, trace: Trace, colours: Colours) -> None:
    """Draw the loss of every step, on a log axis."""
    log_axis(axes, trace["loss"])
    entries = curve(axes, trace["loss"], colours["accent"], colours, "loss")
    finish(axes, trace, colours, entries[1:])
    name_nonfinite(axes, trace, colours)


def gradient_norm(axes: Axes, trace: Trace, colours: Colours) -> None:
    """Draw the norm of the true gradient before and after clipping, and max_norm while it was in force."""
    before, after = trace["grad_norm"], trace["clipped_norm"]
    limits = [
        (start, stop, float(knobs.clipping.max_norm))
        for start, stop, knobs in trace.in_force
        if knobs.applies("clipping.max_norm")
    ]
    log_axis(axes, np.concatenate([before, after, [limit for _, _, limit in limits if 1e-6 < limit < 1e6]]))
    entries = curve(axes, before, colours["accent"], colours, "before clipping")
    clipped = known_mask(after).any() and not np.array_equal(before, after, equal_nan=True)
    if clipped:
        entries[1:1] = curve(axes, after, colours["good"], colours, "after clipping", dashes=(4, 2), mark=False)
    for start, stop, limit in limits:
        axes.plot([start - 0.5, stop - 0.5], [limit, limit], color=colours["warning"], linewidth=1.0, dashes=(1, 1.5))
    if limits:
        entries.append(Line2D([], [], color=colours["warning"], linewidth=1.0, dashes=(1, 1.5), label="max_norm"))
    finish(axes, trace, colours, entries)
    name_nonfinite(axes, trace, colours)


def loss_scale(axes: Axes, trace: Trace, colours: Colours) -> None:
    """Draw the loss scale on a log2 axis, with the steps whose update the scaler skipped."""
    log2_axis(axes, trace["scale"])
    mask = reduce(trace["scale"])
    axes.plot(mask, trace["scale"][mask], color=colours["accent"], linewidth=1.2, drawstyle="steps-mid")
    entries = []
    skipped = thin(np.flatnonzero(trace["skipped"]), len(trace))
    if len(skipped):
        entries = [marks(axes, skipped, 0.07, "x", colours["bad"], "skipped step")]
    finish(axes, trace, colours, entries)


def learning_rate(axes: Axes, trace: Trace, colours: Colours) -> None:
    """Draw the learning rate of every update."""
    plain_axis(axes, trace["lr"])
    mask = reduce(trace["lr"])
    axes.plot(mask, trace["lr"][mask], color=colours["accent"], linewidth=1.2, drawstyle="steps-mid")
    finish(axes, trace, colours, [])


def logged(axes: Axes, trace: Trace, colours: Colours, name: str) -> None:
    """Draw a number logged by the script, with a dot at each step that has one."""
    steps, values = map(np.array, trace.history.logged_as(name))
    plain_axis(axes, values)
    axes.plot(steps, values, color=colours["accent"], linewidth=1.2, marker="o", markersize=3)
    finish(axes, trace, colours, [])


def directions(axes: Axes, trace: Trace, colours: Colours) -> None:
    """Draw what was measured on the test set, with a dot at each such step, and the cosines of every step."""
    entries: list[Any] = []
    broken = np.zeros(len(trace), bool)
    for name, label, colour, dashes in _DIRECTIONS:
        steps, values = trace.measurements(name)
        if not len(steps):
            continue
        broken[steps[np.isnan(values)]] = True
        dots: dict[str, Any] = {}
        if len(steps) < len(trace) / 2:  # the course between them is unknown
            dots = {"linestyle": "none", "marker": "o", "markersize": 4, "fillstyle": "none" if dashes[0] else "full"}
        if not dots:  # at every step: a gap if one was not measured
            values = trace[name]
            steps = reduce(values)
            values = values[steps]
        style = dots or {"linewidth": 1.2, "dashes": dashes}
        entries += axes.plot(steps, values, label=label, color=colours[colour], **style)
    drawn = np.concatenate([np.zeros(1), *(np.asarray(line.get_ydata(), float) for line in entries)])
    axes.set_ylim(float(np.nanmin(drawn)) - 0.05, 1.05)
    if broken.any():
        entries.append(marks(axes, thin(np.flatnonzero(broken), len(trace)), 0.93, "x", colours["bad"], "NaN"))
    finish(axes, trace, colours, entries)


# Column, label, colour and dashes of its curve.
_DIRECTIONS: tuple[tuple[str, str, str, Any], ...] = (
    ("test_accuracy", "test accuracy", "accent", (None, None)),
    ("head_cosine", "cosine at the head", "dim", (4, 2)),
    ("clip_cosine", "of clipping", "good", (4, 2)),
    ("update_cosine", "of the update", "warning", (None, None)),
)


def curve(
    axes: Axes,
    values: np.ndarray,
    colour: str,
    colours: Colours,
    label: str,
    dashes: Any = (None, None),
    mark: bool = True,
) -> list[Line2D]:
    """Draw values over their steps on a log axis, with a gap if one is not a positive number, and a mark that shows the
    reason."""
    mask = reduce(values)
    shown = values[mask]
    drawable = np.isfinite(shown) & (shown > 0)
    line = axes.plot(
        mask,
        np.where(drawable, shown, np.nan),
        color=colour,
        linewidth=1.2,
        dashes=dashes,
        label=label,
        solid_joinstyle="round",
    )[0]
    padded = np.concatenate([[False], drawable, [False]])
    alone = drawable & ~padded[:-2] & ~padded[2:]
    axes.plot(mask[alone], shown[alone], linestyle="none", marker="o", markersize=2.5, color=colour)
    entries = [line]
    kinds = (
        (np.isnan(values) & known_mask(values), 0.93, "x", colours["bad"], "NaN"),
        (values == np.inf, 0.96, "^", colours["bad"], "Inf"),
        ((values <= 0) & np.isfinite(values), 0.05, "v", colours["warning"], "0" if (values >= 0).any() else "below 0"),
        (values == -np.inf, 0.05, "v", colours["bad"], "-Inf"),
    )
    for where, height, marker, mark_colour, name in kinds:
        if mark and where.any():
            entries.append(marks(axes, thin(np.flatnonzero(where), len(values)), height, marker, mark_colour, name))
    return entries


def finish(axes: Axes, trace: Trace, colours: Colours, entries: Sequence[Any]) -> None:
    """Draw what every figure of one run has: frame and grid, step axis, knob changes, the first non-finite step, and
    the legend."""
    frame(axes, len(trace), colours)
    if differ(trace.history):
        axes.xaxis.set_major_formatter(FuncFormatter(lambda row, _: f"{own_step(trace.history, round(row)):,}"))
    _change_marks(axes, trace, colours)
    if trace.first_nonfinite_step is not None:
        axes.axvline(trace.first_nonfinite_step, color=colours["bad"], linewidth=1.1)
    key(axes, entries, colours)


def frame(axes: Axes, count: int, colours: Colours) -> None:
    """Draw the frame, the grid and the axis of steps."""
    step_axis(axes, count)
    axes.set_facecolor(colours["plot"])
    axes.grid(True, color=colours["grid"], linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(length=0, pad=4, labelsize=SIZE, labelcolor=colours["dim"])
    for side, spine in axes.spines.items():
        spine.set_visible(side == "bottom")
        spine.set(color=colours["line"], linewidth=0.8)


def key(axes: Axes, entries: Sequence[Any], colours: Colours, length: float = 1.8) -> None:
    """Draw the legend of a figure above it, on the right; `length` of its lines, in widths of a letter."""
    if entries:
        shown = axes.legend(
            handles=list(entries),
            loc="lower right",
            bbox_to_anchor=(1.0, 1.0),
            ncols=len(entries),
            frameon=False,
            fontsize=SIZE,
            borderpad=0,
            borderaxespad=0.3,
            handlelength=length,
            columnspacing=1.4,
            handletextpad=0.5,
        )
        for text in shown.get_texts():
            text.set_color(colours["dim"])


def _change_marks(axes: Axes, trace: Trace, colours: Colours) -> None:
    """Draw a dashed line at every change of a knob, with its number in the timeline. Changes close together share a
    label."""
    shown = [(index, change.step) for index, change in enumerate(trace.changes, 1) if change.step < len(trace)]
    groups: list[list[tuple[int, int]]] = []
    for index, step in shown:
        if groups and step - groups[-1][0][1] < 0.03 * len(trace):
            groups[-1].append((index, step))
        else:
            groups.append([(index, step)])
    plate = {"facecolor": colours["plot"], "edgecolor": "none", "pad": 0.8}  # marks of NaN may overlap the numbers
    for group in groups:
        first, last, step = group[0][0], group[-1][0], group[0][1]
        for place in sorted({step for _, step in group})[:20]:
            axes.axvline(place - 0.5, color=colours["accent"], linewidth=0.9, dashes=(3, 2))
        text = {1: f"{first}", 2: f"{first}, {last}"}.get(len(group), f"{first}–{last}")
        axes.annotate(text, (step - 0.5, 1), (2.5, -2), xycoords=axes.get_xaxis_transform(), textcoords="offset points",
                      va="top", ha="left", fontsize=SIZE - 1, fontweight="bold", color=colours["accent"], zorder=5,
                      bbox=plate)  # fmt: skip


def name_nonfinite(axes: Axes, trace: Trace, colours: Colours) -> None:
    """Label the line of the first non-finite step."""
    step = trace.first_nonfinite_step
    if step is None or step >= len(trace):
        return
    value = trace["loss"][step]
    what = number(value) if loss_broke(value) else "not finite"
    left = step > 0.6 * len(trace)
    axes.annotate(
        f"{what} · step {own_step(trace.history, step)}",
        (step, 0.5),
        (-5 if left else 5, 0),
        xycoords=axes.get_xaxis_transform(),
        textcoords="offset points",
        va="center",
        ha="right" if left else "left",
        fontsize=SIZE,
        fontweight="bold",
        color=colours["bad"],
        bbox={"facecolor": colours["plot"], "edgecolor": "none", "alpha": 0.85, "pad": 1.5},
    )


def marks(axes: Axes, steps: np.ndarray, height: float, marker: str, colour: str, label: str = "_") -> Line2D:
    """Draw marks at a fixed height of the axes."""
    return axes.plot(
        steps,
        np.full(len(steps), height),
        linestyle="none",
        marker=marker,
        markersize=4,
        color=colour,
        markeredgewidth=1.1,
        transform=axes.get_xaxis_transform(),
        label=label,
        clip_on=False,
        zorder=4,
    )[0]
