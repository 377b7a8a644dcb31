"""The page of a layer: opened by a click on its row, turned by keys, and true to what the run measured."""

from __future__ import annotations

import csv
import io
import math
from itertools import pairwise

import numpy as np
import pytest
from PySide6.QtCore import QPoint, QPointF, Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QMenu
from pytestqt.qtbot import QtBot
from waiting import LONG

from gradstudio.core.layer_sample import BINS, histogram
from gradstudio.gui.drawing.axes import LayerAxis
from gradstudio.gui.drawing.row_groups import groups
from gradstudio.gui.export import plot_menu
from gradstudio.gui.widgets.parts_label import PartsLabel
from gradstudio.gui.window import Window

pytestmark = pytest.mark.shares_window


def click(window: Window, step: float, row: float) -> None:
    """Click a place of the heatmap with the mouse."""
    plot = window.plots.layers
    window.plots.layer_card.show_page("layers")
    window.refresh(whole=True)
    place = plot.widget.mapFromScene(plot.box.mapViewToScene(QPointF(step, row)))
    QTest.mouseClick(plot.widget.viewport(), Qt.MouseButton.LeftButton, pos=QPoint(place))


def test_a_click_opens_the_layer_and_keys_turn_it(qtbot: QtBot, trained: Window) -> None:
    plots, page, history = trained.plots, trained.plots.layer_page, trained.simulator.run.history
    names = [layer.name for layer in history.layers]
    plots.layer_card.show_page("layers")
    before = plots.plots
    click(trained, 20, 1.5)
    assert page.isVisible() and page.layer == names[1] and plots.plots == (*page.plots, plots.timeline)
    assert not plots.rewind.isVisible()
    trained.refresh(whole=True)
    steps, drawn = page.largest.series[0].curve.getData()
    assert steps.tolist() == list(range(len(history)))
    assert np.allclose(10**drawn, history.layer_metric("largest_grad")[:, 1].astype(float))
    assert page.updates.band is not None and (page.updates.band.low, page.updates.band.high) == (-4, -1)
    focused = QApplication.focusWidget()
    assert focused is page.norms.widget
    QTest.keyClick(focused, Qt.Key.Key_Down)
    assert page.layer == names[2]
    for _ in range(3):
        QTest.keyClick(focused, Qt.Key.Key_Up)
    assert page.layer == names[-1]  # before the first comes the last
    trained.refresh(whole=True)
    drawn = page.largest.series[0].curve.getData()[1]
    assert np.allclose(10**drawn, history.layer_metric("largest_grad")[:, -1].astype(float))
    menu = QMenu(trained)
    plot_menu.fill(trained.context, plots.overlays, page.norms, menu)
    next(entry for entry in menu.actions() if entry.text().startswith("Copy data")).trigger()
    head, *rows = csv.reader(io.StringIO(QApplication.clipboard().text()))
    assert head == ["step", "grad_norm", "weight_norm"]
    assert [float(row[2]) for row in rows] == history.layer_metric("weight_norm")[:, -1].tolist()
    trained.message.hide()  # which hears the key first
    QTest.keyClick(focused, Qt.Key.Key_Escape)
    assert not page.isVisible() and plots.plots == before and QApplication.focusWidget() is plots.layers.widget
    trained.commands.commands["layer"].call()
    assert page.isVisible() and page.layer == names[-1]
    lines = [row for row in range(page.choice.count()) if page.choice.itemData(row) is None]
    page.choice.setCurrentIndex(lines[0])  # as keys can, where the list does not skip a line between modules
    page.choice.activated.emit(lines[0])
    assert page.layer == names[-1] and page.choice.currentText() == names[-1]
    trained.controls.restart()  # the same layers, so the page stays and begins anew
    qtbot.waitUntil(lambda: len(trained.simulator.run.history) > 5, timeout=LONG)
    trained.refresh(whole=True)
    assert page.isVisible() and page.layer == names[-1] and page.norms.run is trained.simulator.run


def test_nothing_is_laid_out_where_no_size_changes(qtbot: QtBot, trained: Window) -> None:
    """Each layout of a plot takes one to two ms: opening the page did so four times for each plot."""
    plots = trained.plots
    plots.toggle_layer()  # at first it is styled and told what it shows, which changes sizes
    trained.refresh(whole=True)
    qtbot.waitUntil(lambda: plots.layer_page.histograms.note.text().startswith("shown"), timeout=LONG)
    for _ in range(3):
        for _ in range(3):
            QApplication.processEvents()
        plots.toggle_layer()
    laid_out: list[str] = []
    for plot in plots.every:
        plot.widget.resized.connect(lambda plot=plot: laid_out.append(plot.title))
    sizes = [plot.widget.size() for plot in plots.every]
    for opened in (True, False):
        plots.toggle_layer()
        QApplication.processEvents()
        assert plots.layer_page.isVisible() == opened and plots.loss.isVisible() != opened
    assert not laid_out and sizes == [plot.widget.size() for plot in plots.every]


def test_the_entries_of_a_step_are_those_that_the_run_had(qtbot: QtBot, trained: Window) -> None:
    page, history = trained.plots.layer_page, trained.simulator.run.history
    rows = len(history)
    click(trained, 20, 0.5)
    for step in (rows - 1, 7):  # the first is looked into by itself, as the run stands
        if step == 7:
            place = page.zeros.widget.mapFromScene(page.zeros.box.mapViewToScene(QPointF(step, 0.0)))
            QTest.mouseClick(page.zeros.widget.viewport(), Qt.MouseButton.LeftButton, pos=QPoint(place))
        shown = f"shown: step {step:,}"
        qtbot.waitUntil(lambda shown=shown: page.histograms.note.text() == shown, timeout=LONG)
        sample = trained.layer._sample
        assert sample is not None and sample.step == step and page.histograms.step.value() == step
        for place, layer in enumerate(history.layers):
            found = sample.layers[layer.name]
            told = {name: float(history.layer_metric(name, step, step + 1)[0, place])
                    for name in ("weight_norm", "grad_norm", "update_ratio", "zero_share")}  # fmt: skip
            assert found["weights"].size == layer.size
            assert math.isclose(found["weights"].norm, told["weight_norm"], rel_tol=1e-5)
            assert math.isclose(found["gradient"].norm, told["grad_norm"], rel_tol=1e-5)
            assert math.isclose(found["gradient"].zeros / layer.size, told["zero_share"], rel_tol=1e-6)
            if found["weights"].norm:
                ratio = found["update"].norm / found["weights"].norm
                assert math.isclose(ratio, told["update_ratio"], rel_tol=1e-4)
    assert len(trained.simulator.run.history) == rows  # the run itself was not touched
    assert "norm" in page.histograms.texts["weights"].text()
    trained.grab()


def test_a_histogram_counts_every_finite_entry() -> None:
    found = histogram(np.array([0.0, -2.0, 1.0, 2.0, np.nan, np.inf, 0.0], np.float32))
    assert (found.counts.sum(), found.zeros, found.nonfinite, found.size) == (5, 2, 2, 7)
    assert found.counts[[0, BINS // 2, -1]].tolist() == [1, 2, 1] and (found.least, found.greatest) == (-2, 2)
    assert histogram(np.full(3, 4.0, np.float32)).counts[BINS // 2] == 3
    assert math.isnan(histogram(np.array([np.nan], np.float32)).least)


def test_many_layers_are_named_by_module() -> None:
    names = (
        "embedding.weight",
        *(f"blocks.{block}.{part}.{kind}" for block in range(10) for part in ("attention", "norm", "mlp.0", "mlp.2")
          for kind in ("weight", "bias")),
        "head.weight",
        "head.bias",
    )  # fmt: skip
    assert [group.name for group in groups(names, 12)] == ["embedding", *(f"blocks.{at}" for at in range(10)), "head"]
    assert [group.name for group in groups(names, 5)] == ["embedding", "blocks", "head"]
    deep = groups(names, 100)
    assert deep[1].name == "blocks.0.attention" and deep[0].first == 0 and deep[-1].stop == len(names)
    assert all(one.stop == other.first for one, other in pairwise(deep))
    assert groups(("weight", "bias"), 5) == []


def test_many_layers_of_one_module_are_named_by_what_is_in_it(qapp: QApplication) -> None:
    """60 layers in one module had its name alone beside them."""
    axis = LayerAxis("left")
    names = tuple(f"hidden.{layer}.{kind}" for layer in range(60) for kind in ("weight", "bias"))
    axis.show_names((*names, "head.weight", "head.bias"))
    ((_, places),) = axis.tickValues(0, 122, 110)
    told = axis.tickStrings(places, 1.0, 1.0)
    assert 5 <= len(told) <= 10 and told[0] == "hidden.0" and told[-1] == "head"
    assert min(np.diff(places)) / 122 * 110 >= 11


def test_of_a_line_of_parts_whole_ones_are_left_out(qtbot: QtBot) -> None:
    label = PartsLabel("Weights", "norm 3.05e22", "std 4.63e20")
    qtbot.addWidget(label)
    label.show()
    whole = label.fontMetrics().horizontalAdvance("Weights · norm 3.05e22 · std 4.63e20")
    for width, text in (
        (whole, "Weights · norm 3.05e22 · std 4.63e20"), (whole - 1, "Weights · norm 3.05e22"), (3, "Weights"),
    ):  # fmt: skip
        label.resize(width, 20)
        assert label.text() == text and label.accessibleName().endswith("std 4.63e20")


def test_its_command_leaves_a_large_page_that_hides_it(trained: Window) -> None:
    show = trained.commands.commands["layer"].call
    show()
    trained.columns.show_page("map")
    assert not trained.plots.layer_page.isVisible()
    show()
    assert trained.plots.layer_page.isVisible() and not trained.side.map.isVisible()
    show()
    assert not trained.plots.layer_page.isVisible() and trained.plots.isVisible()
