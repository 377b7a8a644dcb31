"""How a person wants plots drawn: scale, smoothing, bands; what is chosen holds for the next window."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from PySide6.QtWidgets import QApplication, QMenu
from pytestqt.qtbot import QtBot
from waiting import LONG

from gradstudio.gui.drawing import shared_cursor
from gradstudio.gui.drawing.smoothing import Smoother
from gradstudio.gui.drawing.spread import pieces
from gradstudio.gui.export import plot_menu
from gradstudio.gui.export.data_table import DataTable, rows_of
from gradstudio.gui.plots.step_plot import StepPlot
from gradstudio.gui.runs.run_overlay import overlaid
from gradstudio.gui.window import Window

pytestmark = pytest.mark.shares_window


def train(qtbot: QtBot, window: Window) -> Window:
    if not window.controls.possible.playing:
        window.controls.run_or_pause()
    qtbot.waitUntil(lambda: window.simulator.run.over, timeout=LONG)
    window.refresh(whole=True)
    return window


def choose(window: Window, plot: StepPlot, option: str, label: str) -> None:
    """Choose in the menu of a plot."""
    menu = QMenu(window)
    plot_menu.fill_options(plot, menu)
    submenu = next(each for each in menu.findChildren(QMenu) if each.title() == option)
    assert sum(action.isChecked() for action in submenu.actions()) == 1
    next(action for action in submenu.actions() if action.text() == label).trigger()
    window.refresh(whole=True)


def test_plots_are_drawn_as_chosen(qtbot: QtBot, make_window: Callable[..., Window]) -> None:
    window = train(qtbot, make_window())
    first = window.simulator.run
    window.controls.restart()
    window = train(qtbot, window)
    plots, history = window.plots, window.simulator.run.history
    loss, norm = plots.loss, plots.gradient_norm
    losses, norms = history.column("loss"), history.column("grad_norm")
    plots.overlays.add(overlaid(first))
    np.testing.assert_allclose(10 ** loss.smooth.curve.getData()[1], Smoother().smooth(losses))

    choose(window, loss, "Axis", "Linear")
    np.testing.assert_allclose(loss.raw.curve.getData()[1], losses)
    low, high = loss.box.viewRange()[1]
    assert low < losses.min() and losses.max() < high and "linear" in loss.legend()
    norm.show_limit(2.5)
    choose(window, norm, "Axis", "Linear")
    np.testing.assert_allclose(norm.before.curve.getData()[1], norms)

    choose(window, loss, "Smoothing", "0.9, over 10 steps")
    np.testing.assert_allclose(loss.smooth.curve.getData()[1], Smoother(0.9).smooth(losses))
    np.testing.assert_allclose(plots.overlays.places[0].rows("smooth")[1], Smoother(0.9).smooth(losses))
    choose(window, loss, "Smoothing", "None")
    np.testing.assert_allclose(loss.smooth.curve.getData()[1], losses)

    choose(window, loss, "Single steps", "Band, least to greatest")
    assert loss.spread.isVisible() and not loss.raw.curve.isVisible()
    bounds = loss.spread.path().boundingRect()
    assert bounds.top() == pytest.approx(losses.min()) and bounds.bottom() == pytest.approx(losses.max())
    (stretch,) = pieces(norm.before, 0, len(history))
    assert stretch[1] == stretch[2] == norms.tolist()  # a band over single steps is the curve
    (stretch,) = pieces(norm.before, 0, 120 * 4)
    assert stretch[1] == norms.reshape(-1, 4).min(1).tolist() and stretch[2] == norms.reshape(-1, 4).max(1).tolist()

    moved: list[float] = []
    norm.max_norm_moved.connect(moved.append)
    norm.limit.setPos(1.5)
    norm.limit.sigPositionChangeFinished.emit(norm.limit)
    norm.limit.setPos(-1.0)  # below every norm there is
    norm.limit.sigPositionChangeFinished.emit(norm.limit)
    assert moved[0] == 1.5 and 0 < moved[1] <= 1e-6

    again = make_window()
    chosen = again.plots.loss.chosen
    assert [chosen[name] for name in ("scale", "smoothing", "steps")] == ["linear", "0", "band"]
    assert again.plots.gradient_norm.chosen["scale"] == "linear"
    with pytest.raises(ValueError, match="choose one of log, linear"):
        chosen.choose("scale", "cubic")


def test_zooms_go_back_and_forth(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr(shared_cursor.time, "monotonic", lambda: now[0])
    steps = shared_cursor.StepRange()
    steps.fit(40)
    views = [(steps.first, steps.last)]
    for first, last in ((5.0, 30.0), (10.0, 20.0)):
        now[0] += 10
        steps.zoom(first, last)
        views.append((steps.first, steps.last))
    for go, expected in ((steps.back, 1), (steps.back, 0), (steps.back, 0), (steps.forward, 1), (steps.forward, 2)):
        go(40)
        assert (steps.first, steps.last) == views[expected] and steps.following == (expected == 0)
    steps.back(40)
    steps.zoom(2.0, 12.0)  # another way from here
    assert steps.can_go == (True, False)
    now[0] += 10
    for last in (30.0, 25.0, 20.0):  # the notches of one turn of the wheel
        steps.zoom(2.0, last)
    steps.back(40)
    assert (steps.first, steps.last) == (2.0, 12.0)
    steps.whole(40)
    steps.back(40)
    assert (steps.first, steps.last) == (2.0, 12.0)


def test_a_run_is_read_as_a_table_and_kept_as_the_baseline(qtbot: QtBot, make_window: Callable[..., Window]) -> None:
    window = train(qtbot, make_window())
    run, plots, overlays = window.simulator.run, window.plots, window.plots.overlays
    table = DataTable(window, plots.gradient_norm, run)
    table.open()
    head, *rows = (line.split("\t") for line in table.text().splitlines())
    assert head == ["step", "grad_norm", "clipped_norm", "clip_coef"]
    assert [float(row[1]) for row in rows] == run.history.column("grad_norm").tolist()
    table.view.setCurrentIndex(table.model.index(7, 1))
    table.copy_cells()
    assert QApplication.clipboard().text() == f"grad_norm\n{run.history.value('grad_norm', 7)!r}\n"
    table.close()
    layers = rows_of(plots.layers, run)
    assert layers.names[1:] == tuple(layer.name for layer in run.history.layers)
    assert [float(cell) for cell in layers.read(3, 4)[0][1:]] == run.history.layer_metric("grad_norm", 3, 4)[0].tolist()
    assert rows_of(plots.timeline, run).names[:3] == ("step", "kind", "text")
    pin = window.commands.commands["baseline"]
    pin.call()
    assert not overlays.places  # it is what the plots show
    for _ in range(2):
        window.controls.restart()
        train(qtbot, window)
        assert [drawn.run for drawn in overlays.places.values()] == [run]
    pin.call()
    assert not overlays.places
