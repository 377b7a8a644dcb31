"""A run as a curve over the plots of another run."""

from __future__ import annotations

import numpy as np

from gradstudio.core.text import strong
from gradstudio.gui.drawing.overlay import Overlaid
from gradstudio.gui.drawing.places import Clock
from gradstudio.gui.drawing.smoothing import Smoother
from gradstudio.session.record.run import Run
from gradstudio.session.words import run_texts


def overlaid(run: Run, start: int = 0) -> Overlaid:
    """Return the curves of a run from a step on. A long run takes some tens of ms."""
    count = len(run.history)
    rows = {name: run.history.column(name, 0, count) for name in ("loss", "grad_norm")}
    rows["smooth"] = Smoother().smooth(rows["loss"])
    steps = np.arange(start, count, dtype=float)
    columns = {name: (steps, values[start:]) for name, values in rows.items()}
    tip = f"<p>{strong(run_texts.rich(run.title))}<br>{run_texts.rich(run.id)}</p>"
    clock = Clock()
    clock.take(run.history, count)
    return Overlaid(run.id, run.title, tip, columns, run, clock)
