"""What the axes of the plots show: all of a run, close enough to see what it learns."""

from __future__ import annotations

import math

import numpy as np
import pytest
from drawn_runs import LAYERS, add, run_of
from hypothesis import given
from hypothesis import strategies as st
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from gradstudio.core.history import LAYER_METRICS
from gradstudio.gui.drawing import heatmap_colors, nan_marks, usual_range
from gradstudio.gui.drawing.overlay import DASHES, PARENT
from gradstudio.gui.drawing.overlay_curves import dash
from gradstudio.gui.drawing.usual_range import SpikeCut
from gradstudio.gui.plots.plot_stack import PlotStack
from gradstudio.gui.runs.run_overlay import overlaid
from gradstudio.session.record.run import Run
from gradstudio.session.record.run_writer import RunWriter
from gradstudio.session.simulator import Simulator


def running(rows: list[dict]) -> Run:
    run = run_of(rows)
    RunWriter(run).set_status("running")
    return run


def end(run: Run) -> None:
    RunWriter(run).end("finished", "", 0.5)


def test_a_run_that_is_over_fills_the_plots_from_left_to_right(shown: tuple[PlotStack, Simulator]) -> None:
    stack, simulator = shown
    run = simulator.run = running([{}] * 130)
    stack.refresh(simulator)
    assert stack.steps.right > 130  # room for the steps to come
    end(run)
    stack.refresh(simulator)
    assert stack.steps.right == 130
    stack.steps.zoom(20, 60)
    stack.show_whole()
    assert (stack.steps.left, stack.steps.right) == (0, 130)


def test_the_axis_reaches_no_farther_than_the_planned_steps(shown: tuple[PlotStack, Simulator]) -> None:
    stack, simulator = shown
    run = simulator.run = running([])
    planned = run.experiment.run.steps
    for _ in range(3):
        add(run, [{}] * (planned // 3))
        stack.refresh(simulator)
        assert len(run.history) <= stack.steps.right <= planned
    assert planned % 3 or stack.steps.right == planned


def test_a_view_that_a_person_chose_stays_when_the_run_ends(shown: tuple[PlotStack, Simulator]) -> None:
    stack, simulator = shown
    run = simulator.run = running([{}] * 130)
    stack.refresh(simulator)
    stack.steps.zoom(20, 60)
    end(run)
    stack.refresh(simulator)
    assert (stack.steps.left, stack.steps.right) == (20, 60)


def test_the_y_axes_are_fitted_at_the_end_and_on_home(shown: tuple[PlotStack, Simulator]) -> None:
    stack, simulator = shown
    norms = [0.5 + 0.01 * step for step in range(100)]
    run = simulator.run = running([{"grad_norm": norm, "clipped_norm": norm} for norm in norms])
    stack.refresh(simulator)
    area = stack.gradient_norm.widget
    for fit in (lambda: end(run), stack.show_whole):
        area.set_y(-0.9, 1.4, least=1.0)
        stack.refresh(simulator)
        assert area.y_range[1] > 1  # close enough to stay meanwhile
        fit()
        stack.refresh(simulator)
        low, high = area.y_range
        assert -1 < low < high < 1


@pytest.mark.parametrize("scale", ["log", "linear"])
def test_learning_is_seen_beside_a_spike(shown: tuple[PlotStack, Simulator], scale: str) -> None:
    """As in a recurrent network that learns from 2.3 to 1.9, with a spike on the way and an explosion at its end."""
    stack, simulator = shown
    losses = np.linspace(2.3, 1.9, 107)
    losses[21], losses[-1] = 15.0, 6.2e21
    simulator.run = run_of([{"loss": loss} for loss in losses])
    stack.refresh(simulator)
    stack.loss.choose_option("scale", scale)
    low, high = stack.loss.widget.y_range
    first, last = (value if scale == "linear" else math.log10(value) for value in (2.3, 1.9))
    assert low < last < first < high and (first - last) / (high - low) > 0.25


@given(st.lists(st.floats(-300, 300), min_size=1, max_size=60), st.floats(0.1, 2))
def test_the_range_holds_the_beginning_and_nearly_all_of_a_curve(values: list[float], least: float) -> None:
    highs = np.array(values)
    top = usual_range.top(highs, float(highs.min()), SpikeCut(least, 2.5))
    assert top in values and top >= values[0]
    assert (highs <= top).mean() >= 0.95 * (1 - 1 / len(values))
    assert top == highs.max() or highs.max() > highs.min() + least


def test_a_curve_without_values_has_a_range() -> None:
    assert usual_range.top(np.array([math.nan, math.inf]), 1.0, SpikeCut(0.5, 2.5)) == 1.0


def test_a_peak_that_leaves_the_plot_is_marked_with_its_value(shown: tuple[PlotStack, Simulator]) -> None:
    stack, simulator = shown
    losses = np.linspace(2.3, 1.9, 100)
    losses[[30, 31, 60]] = 40.0, 50.0, 123.0
    run = simulator.run = run_of([{"loss": loss} for loss in losses])
    stack.refresh(simulator)
    assert stack.loss.peaks.marks.steps.tolist() == [31, 60] and stack.loss.strip.texts == ["↑ 50", "↑ 123"]
    assert not len(stack.gradient_norm.peaks.marks.steps) and stack.gradient_norm.strip.texts == []
    stack.steps.zoom(20, 50)  # what a person looks at closely is shown in full
    assert stack.loss.peaks.marks.steps.tolist() == [60] and stack.loss.strip.texts == []
    stack.show_whole()
    add(run, [{"loss": math.nan}])
    stack.refresh(simulator)
    assert stack.loss.peaks.marks.steps.tolist() == [31, 60]
    simulator.run = run_of([{}] * 3)
    stack.refresh(simulator)
    assert not len(stack.loss.peaks.marks.steps) and stack.loss.strip.texts == []


def test_an_overlay_s_name_stands_where_it_ends_and_no_mark_of_it_looks_like_a_value(
    shown: tuple[PlotStack, Simulator],
) -> None:
    stack, simulator = shown
    parent = run_of([{}] * 40 + [{"loss": math.nan, "grad_norm": math.inf, "nonfinite": 1}])
    run = simulator.run = run_of([{}] * 100)
    RunWriter(run).change("optimizer.lr", 0.5)
    stack.overlays.put(PARENT, overlaid(parent))
    stack.refresh(simulator)
    assert "parent: NaN at step 40" in stack.loss.strip.texts
    assert "parent: Inf at step 40" in stack.gradient_norm.strip.texts
    assert stack.loss.overlay is not None
    for marks in stack.loss.overlay._curves[PARENT]._marks:
        assert marks.getData()[1].tolist() == [nan_marks.TOP_EDGE] * len(marks.steps)
    stack.overlays.put(PARENT, None)
    stack.refresh(simulator)
    stack.loss.settle()
    assert not [text for text in stack.loss.strip.texts if "parent" in text]


@given(st.lists(st.floats(0, 100) | st.just(math.nan), min_size=2, max_size=300), st.integers(0, 7))
def test_a_dashed_curve_has_gaps_across_and_no_other_values(values: list[float], place: int) -> None:
    across, down = np.linspace(3.3, 250.7, len(values)), np.array(values)
    there, drawn = dash(across, down, DASHES[place], 400.0)
    assert (np.diff(there) >= 0).all()
    kept = np.isfinite(drawn)
    assert np.allclose(drawn[kept], np.interp(there, across, down)[kept])
    period, widths = sum(DASHES[place]), np.cumsum(DASHES[place])
    inside = np.searchsorted(widths, there % period, "right") % 2 == 0
    assert not (np.isnan(drawn) & inside & np.isfinite(np.interp(there, across, down))).any()
    gaps = ~inside & (there % 1 != 0)
    assert np.isnan(drawn[gaps]).all()


def test_the_loss_scale_is_a_line_of_text_where_there_is_none(shown: tuple[PlotStack, Simulator]) -> None:
    stack, simulator = shown
    plot, run = stack.scale_and_rate, run_of([{"lr": 0.5}, {"lr": 0.25}])
    simulator.run = run
    stack.refresh(simulator)
    QApplication.processEvents()
    assert not plot.widget.isVisible() and plot.height() < 40
    assert plot.legend() == "fp32: no loss scale · learning rate 0.5 → 0.25"
    plot.choose_option("unscaled", "plot")
    stack.refresh(simulator)
    assert plot.widget.isVisible()
    plot.choose_option("unscaled", "line")
    simulator.run = run_of([{"scale": 1024.0}] * 3)
    stack.refresh(simulator)
    assert plot.widget.isVisible()


def test_a_double_click_on_a_title_and_enter_give_a_plot_all_the_room(
    qtbot: QtBot, shown: tuple[PlotStack, Simulator]
) -> None:
    stack, simulator = shown
    simulator.run = run_of([{}] * 5)
    stack.refresh(simulator)
    both = (stack.gradient_norm, stack.timeline)
    before = stack.plots
    qtbot.mouseDClick(stack.gradient_norm.title_label, Qt.MouseButton.LeftButton)
    assert stack.plots == both
    qtbot.mouseDClick(stack.gradient_norm.title_label, Qt.MouseButton.LeftButton)
    assert stack.plots == before
    for key in (Qt.Key.Key_Return, Qt.Key.Key_Escape):
        qtbot.keyClick(stack.gradient_norm.widget, key)
        assert (stack.plots == both) == (key == Qt.Key.Key_Return)
    stack.scale_and_rate.alone_asked.emit()
    stack.refresh(simulator)
    assert stack.scale_and_rate.widget.isVisible()  # whole, also without a loss scale


def test_the_loss_and_the_norm_have_most_of_the_height(shown: tuple[PlotStack, Simulator]) -> None:
    stack, simulator = shown
    stack.resize(800, 780)  # as in a window of 1440 x 900
    simulator.run = run_of([{}] * 5)
    stack.refresh(simulator)
    QApplication.processEvents()
    assert stack.loss.height() + stack.gradient_norm.height() >= 450
    assert stack.layer_card.height() >= 150


def test_exactly_zero_has_a_colour_and_an_entry_of_its_own(shown: tuple[PlotStack, Simulator]) -> None:
    stack, simulator = shown
    values = np.ones((len(LAYER_METRICS), len(LAYERS)))
    values[:, 0], values[:, 1] = 0.0, 1e-3
    simulator.run = run_of([{"layers": values}] * 3)
    stack.layer_card.show_page("layers")
    stack.refresh(simulator)
    assert (stack.layers.image.image[0] == heatmap_colors.ZERO).all() and (stack.layers.image.image[1] < 100).all()
    assert stack.layers.bar._zero
    simulator.run = run_of([{}] * 3)
    stack.refresh(simulator)
    assert not stack.layers.bar._zero


def test_an_empty_plot_says_how_to_begin(shown: tuple[PlotStack, Simulator]) -> None:
    stack, simulator = shown
    stack.refresh(simulator)
    for plot in (stack.loss, stack.gradient_norm, stack.layers):
        assert plot.invitation.isVisible() and plot.invitation.toPlainText() == "Press Run (Space)"
    simulator.run = run_of([{}])
    stack.refresh(simulator)
    assert not any(plot.invitation.isVisible() for plot in stack.every)
    assert stack.loss.plot.getAxis("left").grid and not stack.loss.plot.getAxis("right").grid


def test_a_new_run_is_fitted_though_the_overlay_of_the_run_before_was_there_first(
    shown: tuple[PlotStack, Simulator],
) -> None:
    stack, simulator = shown
    stack.overlays.put(PARENT, overlaid(run_of([{"grad_norm": 10.0**place} for place in (-0.7, 1.7)] * 20)))
    run = simulator.run = running([])
    stack.refresh(simulator)
    stack.overlays.put(PARENT, None)
    norms = [0.2 + 0.01 * step for step in range(120)]  # enough of that range for the axis to stay
    add(run, [{"grad_norm": norm, "clipped_norm": norm} for norm in norms])
    stack.refresh(simulator)
    low, high = stack.gradient_norm.widget.y_range
    assert high - low < 1.5


def test_a_run_with_nothing_to_draw_does_not_keep_the_axes_of_the_run_before(
    shown: tuple[PlotStack, Simulator],
) -> None:
    stack, simulator = shown
    for norm in (1e20, 0.0):
        simulator.run = run_of([{"loss": norm, "grad_norm": norm, "clipped_norm": norm}] * 9)
        stack.refresh(simulator)
    for plot in (stack.loss, stack.gradient_norm):
        low, high = plot.widget.y_range
        assert low > -2 and high < 3, plot.title


def test_of_a_parent_of_which_only_the_explosion_is_drawn_no_more_is_seen_than_of_a_spike(
    shown: tuple[PlotStack, Simulator],
) -> None:
    stack, simulator = shown
    learning = [{"loss": loss} for loss in np.geomspace(2.3, 0.002, 300)]
    parent = run_of([*learning, *({"loss": 10.0 ** (9 * place)} for place in range(4)), {"loss": math.nan}])
    stack.overlays.put(PARENT, overlaid(parent, 300))
    simulator.run = run_of(learning)
    stack.refresh(simulator)
    assert stack.loss.widget.y_range[1] < 6  # decades, of 27


def test_an_overlay_that_grows_beside_a_run_that_is_over_is_seen_whole(shown: tuple[PlotStack, Simulator]) -> None:
    stack, simulator = shown
    run = simulator.run = run_of([{"loss": 2.0}] * 100)
    end(run)
    future = run_of([{"loss": 2.0}] * 99)
    stack.overlays.put(PARENT, overlaid(future))
    stack.refresh(simulator)
    add(future, [{"loss": 0.01}])
    stack.overlays.grow(PARENT, overlaid(future))
    stack.refresh(simulator)
    assert stack.loss.widget.y_range[0] < math.log10(stack.overlays.places[PARENT].rows("smooth")[1].min())
