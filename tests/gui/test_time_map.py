"""The rows of Layers × steps that are the time steps of a recurrent network."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from PySide6.QtCore import QPointF
from pytestqt.qtbot import QtBot
from waiting import LONG

from gradstudio.core.time_steps import TimeMap
from gradstudio.gui.drawing.heatmap_colors import NOTHING
from gradstudio.gui.export import plot_figure
from gradstudio.gui.plots import time_map
from gradstudio.gui.plots.time_map import NOT_RECURRENT, WAITS, TimeMapRows
from gradstudio.gui.window import Window


def test_rows_hold_the_latest_look() -> None:
    norms = np.float32([[1, 2, 4], [0.5, 1, 3]])
    rows = TimeMapRows(TimeMap(np.array([0, 10]), norms))
    shown = rows.values(8, 13)
    assert shown[:2].tolist() == [norms[0].tolist()] * 2 and shown[2].tolist() == norms[1].tolist()
    assert np.isnan(shown[3:]).all()
    assert rows.names == ("t 1", "t 2", "t 3") and TimeMapRows().values(0, 4).shape == (4, 0)
    assert rows.reading(10, 0) == "t 1 0.5" and rows.reading(9, None) == "first 1 · last 4, at step 0"
    assert rows.reading(11, 0) == WAITS
    assert rows.data() == "step,t_1,t_2,t_3\n0,1.0,2.0,4.0\n10,0.5,1.0,3.0\n"


def test_a_run_that_stands_has_a_map(qtbot: QtBot, make_window: Callable[..., Window]) -> None:
    window = make_window(model__kind="rnn", run__steps=30)
    plot, layers = window.plots.layers, []
    plot.layer_asked.connect(layers.append)
    window.controls.run_or_pause()
    qtbot.waitUntil(lambda: window.simulator.run.over, timeout=LONG)
    window.plots.layer_card.show_page("layers")
    window.refresh(whole=True)
    assert plot.time_map.map is None, "nothing is measured before somebody looks"
    row = plot.choice.findData(time_map.KEY)
    assert plot.choice.model().index(row, 0).flags().value & 32, "it can be chosen"
    plot.choice.setCurrentIndex(row)

    def mapped() -> bool:
        window.refresh(whole=True)
        return plot.time_map.map is not None

    qtbot.waitUntil(mapped, timeout=LONG)
    window.refresh(whole=True)
    found = plot.time_map.map
    assert found is not None and found.norms.shape == (30, 8)
    assert plot.image.image.shape == (8, 30) and (plot.image.image != NOTHING).all()
    assert plot_figure.data(plot, window.simulator.run) == plot.time_map.data()
    plot._on_click(plot.box.mapViewToScene(QPointF(3, 0.5)))
    assert not layers, "a time step is no layer"
    plot.choice.setCurrentIndex(0)
    window.refresh(whole=True)
    assert plot.image.image.shape == (len(window.simulator.run.history.layers), 30)
    plot.choice.setCurrentIndex(row)
    window.simulator.set_together({"model.kind": "mlp"})
    window.controls.restart()
    qtbot.waitUntil(lambda: window.simulator.run.over and len(window.simulator.run.history) == 30, timeout=LONG)
    qtbot.waitUntil(lambda: not window.refresh(whole=True) and plot.legend() == NOT_RECURRENT, timeout=LONG)
    assert plot.image.image.size == 0 and not plot.choice.model().index(row, 0).flags().value & 32
