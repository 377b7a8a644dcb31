"""The x axis that all plots share: steps, or the time that training took."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from PySide6.QtCore import Qt
from pytestqt.qtbot import QtBot
from waiting import LONG

from gradstudio.core.history import History
from gradstudio.gui.drawing.overlay import Overlaid
from gradstudio.gui.drawing.places import GUESS, Clock
from gradstudio.gui.drawing.shared_cursor import CLOSEST, StepRange
from gradstudio.gui.drawing.time_axis import precise, tick, times
from gradstudio.gui.drawing.time_bins import TimeBins
from gradstudio.gui.runs.run_overlay import overlaid
from gradstudio.gui.window import Window

pytestmark = pytest.mark.shares_window


class Seconds(History):
    """A history of which only the times are asked."""

    def __init__(self, seconds: list[float]) -> None:
        super().__init__()
        self._seconds = np.array(seconds)

    def column(self, name: str, start: int = 0, stop: int | None = None) -> np.ndarray:
        assert name == "step_seconds"
        return self._seconds[start:stop]


def test_a_clock_tells_when_steps_began_and_which_step_ran() -> None:
    spent = [0.5, 1.0, float("nan"), 0.0, 2.5] * 500
    clock, history = Clock(), Seconds(spent)
    clock.take(history, 3)
    clock.take(history, len(spent))
    began = np.concatenate([[0.0], np.nancumsum(spent)])
    np.testing.assert_allclose(clock.at(np.arange(len(spent) + 1.0)), began)
    assert clock.at(0.5) == 0.25 and clock.at(1.5) == 1.0
    assert clock.at(2.0) == clock.at(3.0) == clock.at(4.0) == 1.5  # an unknown time is none
    pace = clock.total / len(spent)
    assert clock.at(-2.0) == pytest.approx(-2 * pace)
    assert clock.at(len(spent) + 10.0) == pytest.approx(clock.total + 10 * pace)
    steps = np.array([-3.0, 0.25, 1.75, 4.5, 2499.5, 2600.0])
    np.testing.assert_allclose(clock.step_at(clock.at(steps)), steps)
    assert all(np.diff(clock.step_at(np.linspace(-1, clock.total + 1, 999))) >= 0)
    empty = Clock()
    assert empty.at(7.0) == pytest.approx(7 * GUESS) and empty.step_at(7 * GUESS) == pytest.approx(7)


def test_a_clock_stays_finite_whatever_a_file_tells_of_steps() -> None:
    steps, history = StepRange(), Seconds([1e308] * 5)
    steps.places.timed = True
    steps.places.take(history, 5)
    steps.follow(5.0)
    assert 0 == steps.left < steps.right < math.inf and 5 <= steps.last < 10


@pytest.mark.parametrize(
    ("low", "high", "told"),
    [
        (0, 0.01, ["0 s", "0.002 s", "0.004 s", "0.006 s", "0.008 s", "0.01 s"]),
        (0, 10, ["0 s", "2 s", "4 s", "6 s", "8 s", "10 s"]),
        (3600, 3600.5, ["3,600 s", "3,600.1 s", "3,600.2 s", "3,600.3 s", "3,600.4 s", "3,600.5 s"]),
        (0, 150, ["0 min", "0.5 min", "1 min", "1.5 min", "2 min", "2.5 min"]),
        (0, 5400, ["0 min", "30 min", "60 min", "90 min"]),
        (0, 40 * 3600, ["0 h", "10 h", "20 h", "30 h", "40 h"]),
        (0, 5 * 86400, ["0 d", "1 d", "2 d", "3 d", "4 d", "5 d"]),
    ],
)
def test_times_are_told_in_the_unit_of_the_view(low: float, high: float, told: list[str]) -> None:
    assert [tick(value, high - low) for value in times(low, high, 5)] == told


def test_a_time_has_the_digits_that_a_pixel_tells() -> None:
    assert [precise(2, span) for span in (0.5, 25, 150, 7200)] == ["2.0000 s", "2.00 s", "0.033 min", "0.001 h"]


def test_bins_of_time_keep_the_largest_value_and_fill_slow_steps() -> None:
    spent = np.array([0.1, 0.1, 3.0, 0.1, 0.1])
    values = np.array([[1.0], [5.0], [2.0], [np.nan], [3.0]], np.float32)
    began = 7.0 + np.concatenate([[0.0], np.cumsum(spent)])
    bins = TimeBins(1, capacity=8, start=7.0)
    bins.append(values[:2], began[:3])
    bins.append(values[2:], began[2:])
    assert (bins.width, bins.used, bins.count) == (0.5, 7, 5)
    np.testing.assert_array_equal(bins.picture()[:, 0], [5, 2, 2, 2, 2, 2, np.nan])


def train(qtbot: QtBot, window: Window) -> Window:
    if not window.controls.possible.playing:
        window.controls.run_or_pause()
    qtbot.waitUntil(lambda: window.simulator.run.over, timeout=LONG)
    return window


def test_all_plots_stand_over_the_time(qtbot: QtBot, make_window: Callable[..., Window]) -> None:
    window = train(qtbot, make_window())
    first = window.simulator.run
    window.controls.restart()
    train(qtbot, window)
    run, plots = window.simulator.run, window.plots
    plots.overlays.add(overlaid(first))
    plots.overlays.add(Overlaid("file", "a curve without times", "", {"smooth": (np.arange(5.0), np.ones(5))}))
    window.refresh(whole=True)
    assert plots.timeline.axis_choice.currentData() == "steps" and plots.steps.right == 40

    window.plots.layer_card.show_page("layers")
    window.commands.commands["time_axis"].call()
    window.refresh(whole=True)
    seconds = run.history.column("step_seconds")
    total, other = float(seconds.sum()), float(first.history.column("step_seconds").sum())
    assert plots.steps.right == pytest.approx(max(total, other, CLOSEST * GUESS))  # s that it has at least
    assert plots.timeline.axis_choice.currentData() == "time"
    curve = plots.loss.raw.curve
    drawn = curve._items[0].path().boundingRect()
    assert (drawn.left(), drawn.right()) == pytest.approx((0.0, total - seconds[-1]))
    assert len(curve.getData()[0]) == 40
    left, right = plots.loss.box.viewRange()[0]
    assert all(plot.box.viewRange()[0] == [left, right] for plot in plots.plots)
    assert sorted(plots.overlays.by_place) == [0] and not plots.chips.chips[1].toggle.isChecked()
    bins = plots.layers._bins
    assert isinstance(bins, TimeBins) and bins.count == 40 and bins.used == np.ceil(total / bins.width)
    plots.step_cursor.move(30)
    assert plots.loss.cursor_line.value() == pytest.approx(seconds[:30].sum())
    told = plots.loss.legend_label.text()
    assert "step 30, " in told and " s</span>" in told
    place = plots.loss.box.mapViewToScene(plots.loss.box.mapToView(plots.loss.box.rect().center()))
    plots.step_cursor.move(plots.loss.box.step_at(place))
    assert plots.step_cursor.step == round(plots.steps.places.step_at(plots.loss.box.mapSceneToView(place).x()))
    plots.steps.zoom(total / 4, total / 2)
    window.refresh(whole=True)
    assert (plots.steps.left, plots.steps.right) == pytest.approx((total / 4, total / 2))
    qtbot.keyClick(plots.loss.widget, Qt.Key.Key_Minus)
    assert plots.steps.right - plots.steps.left > total / 4

    ends = (plots.steps.first, plots.steps.last)
    window.commands.commands["time_axis"].call()
    window.refresh(whole=True)
    assert (plots.steps.left, plots.steps.right) == pytest.approx(ends)
    assert sorted(plots.overlays.by_place) == [0, 1] and " s</b>" not in plots.loss.legend_label.text()
    window.commands.commands["time_axis"].call()
    assert make_window().plots.is_over_time
