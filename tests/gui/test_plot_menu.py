"""The menu of a plot: its figure and its data, and a curve of another program; and presets as text."""

from __future__ import annotations

import csv
import io
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QAction, QContextMenuEvent, QImage
from PySide6.QtSvg import QSvgRenderer
from PySide6.QtWidgets import QApplication, QFileDialog, QInputDialog, QMenu
from pytestqt.qtbot import QtBot
from waiting import LONG

from gradstudio.core import preset_as_text
from gradstudio.gui.export import plot_figure, plot_menu
from gradstudio.gui.knobs.preset_text import PastedPreset
from gradstudio.gui.plots.step_plot import StepPlot
from gradstudio.gui.theme import theme
from gradstudio.gui.window import Window

pytestmark = pytest.mark.shares_window

PLOTS = ("loss", "gradient_norm", "layers", "scale_and_rate", "timeline")


def action(window: Window, plot: StepPlot, text: str) -> QAction:
    menu = QMenu(window)
    plot_menu.fill(window.context, window.plots.overlays, plot, menu)
    return next(entry for entry in menu.actions() if entry.text().startswith(text))


def choose(qtbot: QtBot, window: Window, path: Path) -> None:
    """Answer the file dialog that is open."""
    qtbot.waitUntil(lambda: any(dialog.isVisible() for dialog in window.findChildren(QFileDialog)), timeout=LONG)
    dialog = next(dialog for dialog in window.findChildren(QFileDialog) if dialog.isVisible())
    dialog.fileSelected.emit(str(path))
    dialog.close()


@pytest.mark.parametrize("reason", [QContextMenuEvent.Reason.Mouse, QContextMenuEvent.Reason.Keyboard])
def test_the_menu_opens_by_mouse_and_by_key(qtbot: QtBot, window: Window, reason: QContextMenuEvent.Reason) -> None:
    place = QPoint(40, 20)
    for name in PLOTS:
        widget = getattr(window.plots, name).widget
        QApplication.sendEvent(widget, QContextMenuEvent(reason, place, widget.mapToGlobal(place)))
        qtbot.waitUntil(lambda: isinstance(QApplication.activePopupWidget(), QMenu), timeout=LONG)
        menu = QApplication.activePopupWidget()
        assert "Copy figure" in [entry.text() for entry in menu.actions()]
        assert any(entry.text().startswith("Import curve") for entry in menu.actions()) == (
            name in ("loss", "gradient_norm")
        )
        menu.close()
        assert QApplication.activePopupWidget() is None


def test_a_plot_is_shown_alone_until_the_run_changes(qtbot: QtBot, trained: Window) -> None:
    def choose_in_menu(plot: StepPlot, text: str) -> None:
        place = QPoint(40, 20)
        QApplication.sendEvent(
            plot.widget,
            QContextMenuEvent(QContextMenuEvent.Reason.Keyboard, place, plot.widget.mapToGlobal(place)),
        )
        qtbot.waitUntil(lambda: isinstance(QApplication.activePopupWidget(), QMenu), timeout=LONG)
        menu = QApplication.activePopupWidget()
        next(entry for entry in menu.actions() if entry.text() == text).trigger()
        menu.close()

    plots = trained.plots
    plots.layer_card.show_page("layers")
    height = plots.layers.height()
    before = plots.plots
    choose_in_menu(plots.layers, "Show alone")
    assert plots.plots == (plots.layers, plots.timeline)
    trained.refresh()
    qtbot.waitUntil(lambda: plots.layers.height() > 2 * height, timeout=LONG)
    choose_in_menu(plots.layers, "Show all plots")
    assert plots.plots == before
    choose_in_menu(plots.loss, "Show alone")
    trained.controls.restart()
    trained.refresh()
    assert plots.plots == before and not plots.one_alone


def test_a_figure_is_copied_at_twice_the_size(trained: Window) -> None:
    plot = trained.plots.loss
    action(trained, plot, "Copy figure").trigger()
    copied = QApplication.clipboard().image()
    assert copied.size() == plot.size() * 2
    colors = {
        copied.pixelColor(x, y).name()
        for x in range(200, copied.width() - 200, 3)
        for y in range(60, copied.height() - 20, 3)
    }
    assert theme.colors.accent.lower() in colors and theme.colors.plot in colors  # a curve on a ground


def test_figures_are_drawn_and_the_plot_stays_as_it_was(trained: Window) -> None:
    for name in PLOTS:
        plot = getattr(trained.plots, name)
        plot.step_cursor.move(None)
        before = plot.grab().toImage()
        png, svg = QImage.fromData(plot_figure.png(plot_figure.image(plot))), plot_figure.svg(plot)
        assert png.size() == plot.size() * 2, name
        assert QSvgRenderer(svg).isValid() and ElementTree.fromstring(svg).get("version") == "1.1", name
        assert plot.grab().toImage() == before, name
        letters = re.sub(r"<[^>]+>", " ", svg.decode())
        if name != "timeline":
            assert "<path" in svg.decode() or "<polyline" in svg.decode(), name
        assert plot.title.split(" ")[0] in letters


def test_the_data_of_a_plot_as_csv(qtbot: QtBot, trained: Window, tmp_path: Path) -> None:
    history = trained.simulator.run.history
    action(trained, trained.plots.gradient_norm, "Copy data").trigger()
    head, *rows = csv.reader(io.StringIO(QApplication.clipboard().text()))
    assert head == ["step", "grad_norm", "clipped_norm", "clip_coef"] and len(rows) == len(history)
    assert [float(row[1]) for row in rows] == history.column("grad_norm").tolist()
    action(trained, trained.plots.layers, "Save data").trigger()
    choose(qtbot, trained, tmp_path / "layers.csv")
    qtbot.waitUntil(lambda: (tmp_path / "layers.csv").exists(), timeout=LONG)
    head, *rows = csv.reader(io.StringIO((tmp_path / "layers.csv").read_text()))
    assert head == ["step", *(layer.name for layer in history.layers)]
    assert np.array_equal(np.array(rows, float)[:, 1:], history.layer_metric("grad_norm").astype(float))
    qtbot.waitUntil(lambda: "Written" in trained.figures.written.full_text, timeout=LONG)
    action(trained, trained.plots.timeline, "Copy data").trigger()
    assert QApplication.clipboard().text().startswith("step,kind,text")


def test_figures_are_saved(qtbot: QtBot, trained: Window, tmp_path: Path) -> None:
    for suffix in ("png", "svg"):
        action(trained, trained.plots.loss, f"Save figure as {suffix.upper()}").trigger()
        path = tmp_path / f"loss.{suffix}"
        choose(qtbot, trained, path)
        qtbot.waitUntil(path.exists, timeout=LONG)
        assert path.stat().st_size > 1000


def test_nothing_measured_is_no_data(window: Window) -> None:
    assert not action(window, window.plots.loss, "Copy data").isEnabled()


def test_a_curve_of_another_program_is_drawn_over_the_plot_it_was_asked_for(
    qtbot: QtBot, trained: Window, tmp_path: Path
) -> None:
    path = tmp_path / "<b>log.csv"
    path.write_text(
        "step,train/loss,norm\n" + "".join(f"{step},{2.0 - step / 100},{step}\n" for step in range(0, 100, 5))
    )
    action(trained, trained.plots.loss, "Import curve").trigger()
    choose(qtbot, trained, path)
    qtbot.waitUntil(lambda: any(dialog.isVisible() for dialog in trained.findChildren(QInputDialog)), timeout=LONG)
    dialog = next(dialog for dialog in trained.findChildren(QInputDialog) if dialog.isVisible())
    assert len(dialog.comboBoxItems()) == 3  # the last one is the whole log
    dialog.textValueSelected.emit(dialog.comboBoxItems()[0])
    dialog.close()
    over = trained.plots.overlays.places[0]
    assert over.at("loss", 50) == 1.5 and over.at("loss", 52) == 1.5 and over.at("loss", 96) is None
    assert over.at("grad_norm", 50) is None and trained.plots.steps.last > 95
    assert trained.plots.loss.overlay._curves[0]._path.path().elementCount() >= 20
    trained.grab()


def test_a_file_without_a_curve_is_said(qtbot: QtBot, trained: Window, tmp_path: Path) -> None:
    path = tmp_path / "none.csv"
    path.write_text("no numbers here")
    action(trained, trained.plots.loss, "Import curve").trigger()
    choose(qtbot, trained, path)
    qtbot.waitUntil(lambda: trained.message.isVisible() and "none.csv" in trained.message.text.text(), timeout=LONG)
    assert not trained.plots.overlays.places


def presets_action(window: Window, text: str) -> QAction:
    menu = window.top.preset.menu()
    menu.aboutToShow.emit()
    return next(entry for entry in menu.actions() if entry.text() == text)


def test_a_preset_goes_as_text_and_comes_back(qtbot: QtBot, window: Window) -> None:
    window.controls.set_knob("optimizer.lr", 0.125)
    presets_action(window, "Copy preset as text").trigger()
    text = QApplication.clipboard().text()
    assert preset_as_text.from_text(text).experiment == window.simulator.requested
    window.controls.reset_knobs()
    presets_action(window, "Open preset from text…").trigger()
    dialog = window.findChildren(PastedPreset)[0]
    assert dialog.text.toPlainText() == text
    dialog.text.setPlainText(text[:-4])
    dialog.accept()
    assert dialog.isVisible() and dialog.problem.text() and dialog.problem.textFormat() == Qt.TextFormat.PlainText
    dialog.text.setPlainText(text)
    dialog.accept()
    assert window.simulator.requested.optimizer.lr == 0.125 and window.simulator.preset.title == "Small"
