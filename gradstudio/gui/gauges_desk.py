"""Between the page of gauges and the simulator: they are measured while somebody looks, and not otherwise."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QObject

from gradstudio.core.probes import NAMES

if TYPE_CHECKING:
    from gradstudio.gui.window import Window


class GaugesDesk(QObject):
    def __init__(self, window: Window) -> None:
        super().__init__(window)
        self._window, self._panel = window, window.side.gauges
        self._wanted: tuple[str, ...] = ()
        self._panel.seen_changed.connect(self.refresh)

    def refresh(self) -> None:
        """Say what is looked at, and show what was found."""
        seen = self._panel.isVisible() and not self._window.isMinimized()
        wanted = NAMES if seen else ()
        if wanted != self._wanted:
            self._wanted = wanted
            self._window.simulator.probe(wanted)
        if seen:
            self._panel.refresh(self._window.simulator.run)
