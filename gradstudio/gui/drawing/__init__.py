"""Canvas, curves, axes, marks, overlays and the heatmap: the building blocks of plots. Nothing here knows a plot or
which quantity it draws; gui/plots does. How a frame is kept cheap: cheap_frame.py.
May use core, gui/theme.py, gui/widgets/viewed_step.py (the position of the cursor) and session/record (the type of a
run, which an overlay refers to)."""

from __future__ import annotations

import pyqtgraph as pg

from gradstudio.gui.theme import theme


def _dress() -> None:
    pg.setConfigOptions(background=theme.colors.plot, foreground=theme.colors.dim, antialias=False)


theme.changed.connect(_dress)  # before any plot exists that needs it
_dress()
