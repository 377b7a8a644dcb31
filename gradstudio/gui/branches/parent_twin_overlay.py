"""The overlays that a run has by itself: its parent, from where the run branches off, and its twin."""

from __future__ import annotations

import time
from dataclasses import replace

from gradstudio.gui.branches import branch_list
from gradstudio.gui.drawing.overlay import PARENT, TWIN, Overlays
from gradstudio.gui.runs.run_overlay import overlaid
from gradstudio.session.simulator import Simulator

TWIN_EVERY = 0.2  # seconds between two drawings of the twin, at least
TWIN_REST = 20  # and at least so many times the seconds that one takes


class ParentTwinOverlay:
    def __init__(self, overlays: Overlays) -> None:
        self._overlays = overlays
        self._parent: tuple = ()  # what is drawn: the run, its parent, the parent's length and name
        self._twin_due = 0.0

    def refresh(self, simulator: Simulator) -> None:
        """Bring both overlays up to date; cheap where nothing is new."""
        self._draw_parent(simulator)
        self._draw_twin(simulator)

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

    def _draw_twin(self, simulator: Simulator) -> None:
        twins, now = simulator.twins, time.monotonic()
        twin = twins.other if twins and simulator.run is twins.one else None
        shown = self._overlays.places.get(TWIN)
        if twin is None:
            self._overlays.put(TWIN, None)
        elif shown is None or shown.run is not twin:
            self._overlays.put(TWIN, overlaid(twin))
        elif len(twin.history) > shown.length and now > self._twin_due:
            self._overlays.grow(TWIN, overlaid(twin))
            self._twin_due = now + max(TWIN_EVERY, TWIN_REST * (time.monotonic() - now))
