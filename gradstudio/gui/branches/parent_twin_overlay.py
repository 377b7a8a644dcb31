"""The automatic overlays of a run: its parent, from the branch point on, its twin, and its future with the best of the
fixes that were tried."""

from __future__ import annotations

import time
from dataclasses import replace

from gradstudio.gui.branches import branch_list
from gradstudio.gui.drawing.overlay import FUTURE, PARENT, TWIN, Overlays
from gradstudio.gui.runs.run_overlay import overlaid
from gradstudio.session.record.run import Run
from gradstudio.session.running.future_run import Future
from gradstudio.session.simulator import Simulator

TWIN_EVERY = 0.2  # seconds between two drawings of the twin, at least
TWIN_REST = 20  # and at least this many times the seconds that one takes


class ParentTwinOverlay:
    def __init__(self, overlays: Overlays) -> None:
        self._overlays = overlays
        self._parent: tuple = ()  # what is drawn: the run, its parent, the parent's length and name
        self._due = {TWIN: 0.0, FUTURE: 0.0}  # when each is drawn next

    def refresh(self, simulator: Simulator, future: Future | None = None) -> None:
        """Update the overlays; cheap when nothing has changed."""
        self._draw_parent(simulator)
        twins = simulator.twins
        twin = twins.other if twins and simulator.run is twins.one else None
        self._draw_live(TWIN, twin)
        if future is None:
            self._draw_live(FUTURE, None)
        else:
            self._draw_live(FUTURE, future.run, future.start, future.title)

    def _draw_parent(self, simulator: Simulator) -> None:
        run = simulator.run
        parent = simulator.family.parent(run)
        drawn = (
            (run, parent, len(parent.history), parent.name) if parent and len(parent.history) > run.parent_step else ()
        )
        if drawn == self._parent:
            return
        self._parent = drawn
        if parent is None or not drawn:
            self._overlays.put(PARENT, None)
            return
        self._overlays.remove(run.id, *(() if self._overlays.slots.get(parent.id) == PARENT else (parent.id,)))
        self._overlays.put(PARENT, replace(overlaid(parent, run.parent_step), title=branch_list.title(parent)))

    def _draw_live(self, place: int, run: Run | None, start: int = 0, title: str = "") -> None:
        """Draw a run that is still training in this slot, from a step on; none if there is no run."""
        shown, now = self._overlays.places.get(place), time.monotonic()
        if run is None:
            self._overlays.put(place, None)
        elif shown is None or shown.run is not run or (title and shown.title != title):
            drawn = overlaid(run, start)
            self._overlays.put(place, replace(drawn, title=title) if title else drawn)
        elif len(run.history) > shown.length and now > self._due[place]:
            self._overlays.grow(place, overlaid(run, start))
            self._due[place] = now + max(TWIN_EVERY, TWIN_REST * (time.monotonic() - now))
