"""The smoothed loss of the overlaid runs, with the same smoothing as that of the run itself."""

from __future__ import annotations

from weakref import WeakKeyDictionary

from gradstudio.gui.drawing.overlay import Overlaid, Overlays
from gradstudio.gui.drawing.smoothing import SMOOTHING, Smoother
from gradstudio.gui.plots.run_source import RunSource


class OverlaySmoothing:
    def __init__(self, source: RunSource, overlays: Overlays) -> None:
        self._source, self._overlays = source, overlays
        # of an overlay: the smoothing of its loss, and its length then
        self._smoothed = WeakKeyDictionary[Overlaid, tuple[float, int]]()

    def refresh(self) -> None:
        """Smooth what differs from the source, or has grown."""
        for overlaid in self._overlays.places.values():
            before, wanted = self._smoothed.get(overlaid), (self._source.smoothing, overlaid.length)
            if before is None or before[1] != overlaid.length:
                before = (SMOOTHING, overlaid.length)  # as the code that adds rows smooths them
            self._smoothed[overlaid] = wanted
            if overlaid.run is None or before == wanted:
                continue
            steps, _ = overlaid.rows("smooth")
            first = int(steps[0]) if len(steps) else 0
            losses = overlaid.run.history.column("loss", 0, first + len(steps))
            overlaid.columns["smooth"] = (steps, Smoother(self._source.smoothing).smooth(losses)[first:])
