"""Everything that the user sees of a map, computed at once, so that it can be done beside the thread that shows it."""

from __future__ import annotations

from dataclasses import dataclass

from gradstudio.session.map import grid as grids
from gradstudio.session.map.drawing import Drawing, drawing_of
from gradstudio.session.map.journal import JournalContent
from gradstudio.session.map.map_plan import Spot
from gradstudio.session.map.map_texts import cell_in_words, in_words


@dataclass(frozen=True)
class View:
    """The state of a map at one moment. `words`: lines of text; `whole`: no cell is left to train."""

    stored: JournalContent
    drawing: Drawing
    words: str
    whole: bool

    def about(self, spot: Spot) -> str:
        """Return what is known about a cell."""
        return cell_in_words(self.stored, self.drawing.grid, spot)


def view_of(stored: JournalContent) -> View:
    drawing = drawing_of(stored)
    words = in_words(stored, drawing.grid)
    return View(stored, drawing, words, not grids.next_jobs(stored.plan, stored.results))
