"""Canvas, curves, axes, marks, overlays and the heatmap: what plots are drawn with.
Nothing here knows a plot or which quantity it draws; gui/plots does. How a frame is kept cheap: cheap_frame.py.
May use core, gui/theme.py, gui/widgets/viewed_step.py (where the cursor rests) and session/record (the type of a run,
which an overlay holds).
"""

from __future__ import annotations

import pyqtgraph as pg

from gradstudio.gui.theme import theme


def _dress() -> None:
    pg.setConfigOptions(background=theme.colors.plot, foreground=theme.colors.dim, antialias=False)


theme.changed.connect(_dress)  # before any plot exists that asks for it
_dress()
