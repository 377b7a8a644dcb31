"""A live picture of a run in a notebook: loss, gradient norm, layers by steps, findings. It needs anywidget."""

from __future__ import annotations

import _thread
import math
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from gradstudio.core import files
from gradstudio.session.files.report.figure_data import reduce, reduce_cells
from gradstudio.session.record.own_steps import own_step
from gradstudio.session.record.ranked_findings import ranked_findings
from gradstudio.session.record.run import Run
from gradstudio.session.words.outcome_words import OUTCOMES

EVERY = 0.5  # seconds between two pictures
POINTS, COLUMNS, LAYERS = 400, 120, 60  # of a curve, and of the heatmap


def live_widget(run: Callable[[], Run | None], is_over: Callable[[], bool]) -> Any:
    """Return a widget that shows the run as it grows, until `is_over` returns true. A separate thread draws, as a cell
    that trains blocks all other code in the kernel."""
    try:
        import anywidget  # pyright: ignore[reportMissingImports]
        import traitlets  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise RuntimeError("the live widget needs anywidget: pip install anywidget") from None

    class Live(anywidget.AnyWidget):  # pyright: ignore[reportUntypedBaseClass]
        _esm = files.RESOURCES / "notebook" / "live.js"
        shown = traitlets.Dict().tag(sync=True)

    widget = Live(shown=picture(run()))
    _thread.start_new_thread(_follow, (run, is_over, widget))
    return widget


def _follow(run: Callable[[], Run | None], is_over: Callable[[], bool], widget: Any) -> None:
    ended = False
    while not ended:
        time.sleep(EVERY)
        ended = is_over()  # checked before the last look
        widget.shown = picture(run())


def picture(run: Run | None) -> dict[str, Any]:
    """Return the content of the widget, as JSON values: null is NaN, Inf or unknown."""
    if run is None or not len(run.history):
        return {"head": "no step yet", "curves": [], "cells": [], "layers": [], "findings": []}
    history, count = run.history, len(run.history)
    curves = []
    for name in ("loss", "grad_norm"):
        values = history.column(name, 0, count)
        kept = reduce(values, POINTS)
        steps = [own_step(history, int(row)) for row in kept]
        curves.append({"name": name, "steps": steps, "values": [_plain(value) for value in values[kept].tolist()]})
    layers = [layer.name for layer in history.layers][:LAYERS]
    cells: list[list[float | None]] = []
    if layers:
        norms = reduce_cells(partial(history.layer_metric, "grad_norm"), count, len(history.layers), COLUMNS)
        with np.errstate(divide="ignore", invalid="ignore"):
            shown = np.log10(np.asarray(norms, float))
        rows = shown if shown.shape[0] == len(history.layers) else shown.T
        cells = [[_plain(value) for value in row] for row in rows[:LAYERS].tolist()]
    findings = [
        {"severity": each.severity, "title": each.title, "when": each.when, "evidence": each.evidence}
        for each in ranked_findings(run)
    ]
    head = f"{run.title}: {OUTCOMES[run.status].word}, step {own_step(history, count - 1):,}"
    return {"head": head, "curves": curves, "cells": cells, "layers": layers, "findings": findings}


def _plain(value: float) -> float | None:
    return value if math.isfinite(value) else None
