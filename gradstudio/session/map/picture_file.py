"""The picture of a map as a file. Its content: drawing.py."""

from __future__ import annotations

import io
from typing import Any

from matplotlib.axes import Axes as Plot
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from gradstudio.core.text import one_line, shorten
from gradstudio.session.files.report.figures import drawing as styled
from gradstudio.session.map.axis import Axis
from gradstudio.session.map.drawing import UNKNOWN, Drawing, drawing_of, name_with_unit, ticks
from gradstudio.session.map.journal import JournalContent

SIDE = 4.2  # inches of a panel
LONGEST_TITLE = 80


def render(stored: JournalContent, kind: str) -> bytes:
    """Return the picture of a map as a PNG or SVG file."""
    made, count = drawing_of(stored), stored.plan.shape[0]
    with styled():
        figure = Figure(figsize=(SIDE * count + 2.2, SIDE + 0.9), dpi=150, layout="constrained")
        for panel, plot in enumerate(figure.subplots(1, count, squeeze=False)[0]):
            draw(plot, made, panel)
            plot.set_title(made.name_of(panel))
        figure.suptitle(shorten(one_line(stored.plan.preset.title), LONGEST_TITLE))
        figure.legend(handles=key(made), loc="outside right upper", frameon=False)
        buffer = io.BytesIO()
        figure.savefig(buffer, format=kind, metadata={"Date": None} if kind == "svg" else None)
    return buffer.getvalue()


def draw(plot: Plot, drawing: Drawing, panel: int) -> None:
    """Draw a panel of a map."""
    height, width = drawing.grid.outcomes[panel].shape
    extent = (0, width, 0, height)
    plot.imshow(drawing.colours[panel], origin="lower", aspect="auto", interpolation="nearest", extent=extent)
    edges = drawing.boundary(panel)
    plot.plot(
        [place for one, other in edges for place in (one[0], other[0], float("nan"))],
        [place for one, other in edges for place in (one[1], other[1], float("nan"))],
        color="black", linewidth=0.8, solid_capstyle="projecting",
    )  # fmt: skip
    for axis, values in ((plot.xaxis, drawing.plan.x), (plot.yaxis, drawing.plan.y)):
        _tick(axis, values)
    plot.set_xlabel(name_with_unit(drawing.plan.x, drawing.plan.experiment))
    plot.set_ylabel(name_with_unit(drawing.plan.y, drawing.plan.experiment))


def key(drawing: Drawing) -> list[Patch]:
    """Return the entries of the legend."""
    return [
        Patch(facecolor=colour, edgecolor="#888888" if colour == UNKNOWN else colour, label=text)
        for colour, text in drawing.key
    ]


def _tick(axis: Any, values: Axis) -> None:
    """Label some cells of an axis at their middles."""
    places = ticks(values)
    axis.set_ticks([place for place, _ in places], [text for _, text in places])
