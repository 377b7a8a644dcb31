"""The page of the cliff: measured beside a run that stands, and a circle that sets max_norm."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from PySide6.QtCore import QPoint, Qt
from pytestqt.qtbot import QtBot
from waiting import LONG

from gradstudio.core.cliff import ACROSS, DOWN, LEFT, UP, Cliff, Landing, length_of
from gradstudio.engine.probes import cliff_slice
from gradstudio.gui.plots.cliff_page import CliffPage
from gradstudio.gui.theme import theme
from gradstudio.gui.window import Window

LEFT_BUTTON = Qt.MouseButton.LeftButton


def made(**values: object) -> Cliff:
    losses = np.fromfunction(lambda row, column: 1 + (column - LEFT) ** 2 / 9 + (row - DOWN) ** 2 / 30, (UP, ACROSS))
    landings = tuple(Landing(norm, norm, 0.0, norm, 1 + norm) for norm in (0.1, 0.5, 1.0))
    given = {"losses": losses, "known": np.ones((UP, ACROSS), bool), "landings": landings}
    return Cliff(**{
        "step": 7, "unit": 0.2, "cell": 1 / 8, "loss": 1.0, "update": (1.0, 0.0), "end": 2.0, "grad_norm": 1.0,
        "second": "random", **given, **values,
    })  # fmt: skip


@pytest.fixture
def page(qapp: object, qtbot: QtBot) -> CliffPage:
    page = CliffPage()
    qtbot.addWidget(page)
    page.resize(760, 190)
    page.show()
    return page


def pixel(page: CliffPage, x: float, y: float) -> QPoint:
    return page.picture._at(x, y).toPoint()


def test_cells_have_their_colour_and_nan_its_own(page: CliffPage) -> None:
    losses = made().losses
    losses[UP - 1, ACROSS - 2 :] = math.nan, math.inf
    page.show_cliff(made(losses=losses), "", 0.5, clips=True)
    picture = page.picture
    assert picture.isVisible() and page.words.text().startswith(
        "The update of step 7 takes the loss of its batch from 1"
    )
    shot = picture.grab().toImage()
    ratio = shot.devicePixelRatio()

    def color(column: int, row: int) -> tuple[int, int, int]:
        place = picture._at((column - LEFT + 0.2) / 8, (row - DOWN - 0.1) / 8) * ratio
        red, green, blue, _ = shot.pixelColor(place.toPoint()).getRgb()  # pyright: ignore[reportGeneralTypeIssues]
        return red, green, blue

    low, high = color(LEFT, DOWN + 2), color(ACROSS - 2, DOWN)
    assert low[2] > low[1] and high[1] > 150 and high[2] < 120, "viridis: dark where the loss is low, bright above"
    bad = theme.color("bad")
    spot = {color(column, UP - 1) for column in (ACROSS - 2, ACROSS - 1)}
    assert any(abs(red - bad.red()) < 60 and abs(green - bad.green()) < 60 for red, green, _ in spot)
    assert picture.levels == ((0.0, pytest.approx(math.log10(30.0), abs=0.03)), True)


def test_a_coarser_grid_is_drawn_evenly_and_said(page: CliffPage) -> None:
    known = np.zeros((UP, ACROSS), bool)
    known[DOWN % 2 :: 2, LEFT % 2 :: 2] = True
    found = made()
    page.show_cliff(found, "", 0.5, clips=True)
    assert "cells are measured" not in page.words.text()
    whole = page.picture.grab().toImage()
    page.show_cliff(made(losses=np.where(known, found.losses, math.nan), known=known), "measuring …", 0.5, clips=True)
    assert "cells are measured" not in page.words.text()
    page.show_cliff(page.picture.cliff, "", 0.5, clips=True)
    assert "11 × 5 of 21 × 11 cells are measured" in page.words.text()
    coarse = page.picture.grab().toImage()
    place = (page.picture._at(5 / 8, 3 / 8) * whole.devicePixelRatio()).toPoint()  # between measured cells
    one, other = whole.pixelColor(place), coarse.pixelColor(place)
    assert max(abs(one.green() - other.green()), abs(one.blue() - other.blue())) < 6


def test_the_circle_is_dragged_and_turned_by_keys(qtbot: QtBot, page: CliffPage) -> None:
    page.show_cliff(made(), "", 0.5, clips=False)
    picture = page.picture
    assert "not in use" in page.words.text()
    qtbot.mousePress(picture, LEFT_BUTTON, pos=pixel(page, 0, 0.4))
    qtbot.mouseMove(picture, pixel(page, 0, 0.6))
    assert picture.preview == pytest.approx(0.6, abs=0.03) and "it ends at a loss of 1.6" in page.words.text()
    with qtbot.waitSignal(picture.max_norm_moved, timeout=LONG) as moved:
        qtbot.mouseRelease(picture, LEFT_BUTTON, pos=pixel(page, 0, 0.6))
    assert moved.args == [pytest.approx(0.6, abs=0.03)] and picture.preview is None
    qtbot.keyClick(picture, Qt.Key.Key_Down)
    assert picture.preview == pytest.approx(0.45)
    qtbot.keyClick(picture, Qt.Key.Key_Escape)
    assert picture.preview is None
    qtbot.keyClick(picture, Qt.Key.Key_Up)
    with qtbot.waitSignal(picture.max_norm_moved, timeout=LONG) as moved:
        qtbot.keyClick(picture, Qt.Key.Key_Return)
    assert moved.args == [0.55]
    alike = tuple(Landing(norm, 1.0, 0.0, 0.9, 1.5) for norm in (0.1, 1.0))
    page.show_cliff(made(landings=alike, second="update"), "", 0.5, clips=True)
    qtbot.mousePress(picture, LEFT_BUTTON, pos=pixel(page, 0, 0.4))
    assert picture.preview is None and "hardly changes the length" in page.words.text()


def test_a_run_that_stands_is_looked_at_and_the_circle_sets_the_knob(
    qtbot: QtBot, make_window: Callable[..., Window], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cliff_slice, "SECONDS", math.inf)
    window = make_window(optimizer__kind="sgd", optimizer__lr=0.1, clipping__kind="none")
    page = window.plots.layer_card.cliff
    window.plots.layer_card.show_page("cliff")
    window.refresh(whole=True)
    assert page.note.isVisible() and "once the run has made a step" in page.note.text()
    window.controls.run_or_pause()
    run = window.simulator.run
    qtbot.waitUntil(lambda: run.over, timeout=LONG)
    losses = run.history.column("loss").copy()

    def whole() -> bool:
        window.refresh(whole=True)
        return page.picture.cliff is not None and page.picture.cliff.whole

    qtbot.waitUntil(whole, timeout=LONG)
    found = page.picture.cliff
    assert found is not None and found.step == 39 and found.loss == pytest.approx(losses[39], rel=1e-5)
    assert np.array_equal(run.history.column("loss"), losses)
    length = length_of(found, 0.5 * found.grad_norm)
    assert length == pytest.approx(0.5, rel=0.01)
    picture = page.picture
    qtbot.mousePress(picture, LEFT_BUTTON, pos=pixel(page, 0, length))
    qtbot.mouseRelease(picture, LEFT_BUTTON, pos=pixel(page, 0, length))
    clipping = window.simulator.requested.clipping
    assert clipping.kind == "norm" and clipping.max_norm == pytest.approx(0.5 * found.grad_norm, rel=0.1)
