"""The section of a run's report that shows the run on a map."""

from __future__ import annotations

from functools import partial
from typing import Any

from gradstudio.session.files.report.blocks import Plot, Prose, Section
from gradstudio.session.map import picture_file
from gradstudio.session.map.drawing import Drawing, drawing_of
from gradstudio.session.map.journal import JournalContent
from gradstudio.session.map.map_texts import in_words
from gradstudio.session.map.place import place_in_words, spot_of
from gradstudio.session.record.run import Run

HEIGHT = 3.4  # inches of a panel
KEY_WIDTH = 0.26  # share of a panel's width reserved for the legend


def of(run: Run, stored: JournalContent) -> Section:
    """Return the section: the content of the map, the position of the run on it, and a picture of each panel."""
    drawing, place = drawing_of(stored), spot_of(stored.plan, run.experiment)
    note = "each cell is a run; the line is the boundary between those that diverged and those that held"
    panels = [
        Plot(
            f"map-{panel}", drawing.name_of(panel) or "Where training holds", note, HEIGHT,
            partial(_draw, panel=panel, place=place), drawing,
        )
        for panel in range(stored.plan.shape[0])
    ]  # fmt: skip
    told = [Prose(line) for line in in_words(stored).splitlines()]
    return Section("map", "Stability map", (*told, Prose(place_in_words(run, stored)), *panels))


def _draw(axes: Any, drawing: Drawing, colours: Any, *, panel: int, place: tuple[int, float, float] | None) -> None:
    """Draw a panel of a map with a legend beside it, and the run as a cross."""
    picture_file.draw(axes, drawing, panel)
    left, bottom, width, height = axes.get_position().bounds
    axes.set_position((left, bottom + 0.06, width * (1 - KEY_WIDTH), height - 0.06))
    axes.legend(
        handles=picture_file.key(drawing),
        loc="upper left",
        bbox_to_anchor=(1.01, 1.0),
        frameon=False,
        labelcolor=colours["text"],
    )
    if place is not None and place[0] == panel:
        for colour, width in (("#ffffff", 3.0), ("#000000", 1.2)):
            axes.plot([place[1]], [place[2]], "+", color=colour, markersize=13, markeredgewidth=width)
