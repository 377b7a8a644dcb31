"""One plot a file. All share one step axis, one cursor and one frame; each names the columns it draws."""

from __future__ import annotations

import pyqtgraph as pg

from gradstudio.gui.theme import theme


def _dress() -> None:
    pg.setConfigOptions(background=theme.colors.plot, foreground=theme.colors.dim, antialias=False)


theme.changed.connect(_dress)  # before any plot is there that asks for it
_dress()
