"""The figures of the current step under the plots."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from PySide6.QtWidgets import QApplication, QLabel, QWidget
from pytestqt.qtbot import QtBot
from waiting import settle

from gradstudio.gui.shell.figures_bar import FiguresBar
from gradstudio.gui.theme import theme
from tests.gui.test_plots import add, run_of

LONG = {"loss": 1.23e-5, "grad_norm": 1.23e10, "clipped_norm": 9.87e-5, "clip_coef": 0.1, "scale": 65536.0}


@pytest.fixture
def bar(qapp: QApplication, qtbot: QtBot) -> Iterator[FiguresBar]:
    """As wide as the narrowest window."""
    window = QWidget()
    qtbot.addWidget(window)
    bar = FiguresBar()
    bar.setParent(window)
    window.resize(1080, 100)
    window.show()
    yield bar
    theme.set_zoom(1.0)
    settle(theme)


@pytest.mark.parametrize("zoom", [1.0, 1.2, 1.5])
def test_no_number_is_cut(bar: FiguresBar, zoom: float) -> None:
    theme.set_zoom(zoom)
    settle(theme)
    bar.show()
    bar.refresh(run_of([LONG] * 1200))
    bar.resize(1080, 40)
    bar.refresh(run_of([LONG] * 1200))
    QApplication.processEvents()
    assert bar.figures["|g|"].value == "1.23e10 → 9.87e-5"
    for label in bar.findChildren(QLabel):
        assert not label.isVisible() or label.width() >= label.minimumSizeHint().width(), label.text()


def test_values_stand_still_while_a_run_goes(bar: FiguresBar) -> None:
    run = run_of([{"loss": 0.5}])
    bar.resize(1080, 40)
    bar.show()
    bar.refresh(run)
    QApplication.processEvents()
    places = []
    for loss in (0.5, float("nan"), 1.23e-5, 0.5):
        add(run, [{"loss": loss}])
        bar.refresh(run)
        QApplication.processEvents()
        places.append(bar.figures["|g|"].x())
    assert bar.figures["loss"].value == "0.5" and places == sorted(places) and places[-1] == places[-2]
    bar.refresh(run_of([{"loss": 0.5}]))
    QApplication.processEvents()
    assert bar.figures["|g|"].x() == places[0]  # another run begins anew


def test_figures_are_of_one_width(bar: FiguresBar) -> None:
    """So a value of a kind that there was room for has room too."""
    for label in bar.findChildren(QLabel):
        assert len({label.fontMetrics().horizontalAdvance(digit) for digit in "0123456789"}) == 1


def test_a_look_counts_the_rows_up_to_it_onwards_and_back(bar: FiguresBar) -> None:
    run = run_of([{"skipped": 1, "nonfinite": 2}, {}, {"loss": float("nan")}, {"skipped": 1}])
    told = []
    for step in (3, 0, 2, 1, None):
        bar.refresh(run, step)
        told.append((bar.figures["skipped"].value, bar.figures["non-finite"].value))
    assert told == [("2", "2"), ("1", "1"), ("1", "2"), ("1", "1"), ("2", "2")]
