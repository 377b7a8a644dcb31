"""Connects the page Gauges to the simulator: gauges are measured only while they are visible."""

from __future__ import annotations

from PySide6.QtCore import QObject

from gradstudio.core.gauge_samples import NAMES
from gradstudio.gui.gauges.gauges_panel import GaugesPanel
from gradstudio.session.simulator import Simulator


class GaugesController(QObject):
    """Requests from the simulator those gauges that are visible."""

    def __init__(self, simulator: Simulator, panel: GaugesPanel) -> None:
        super().__init__(panel)
        self._simulator, self._panel = simulator, panel
        self._wanted: tuple[str, ...] = ()
        panel.seen_changed.connect(self.refresh)

    def refresh(self) -> None:
        """Tell the simulator which gauges are visible, and show their latest samples."""
        seen = self._panel.in_sight
        wanted = NAMES if seen else ()
        if wanted != self._wanted:
            self._wanted = wanted
            self._simulator.watch_gauges(wanted)
        if seen:
            self._panel.refresh(self._simulator.run)
