"""What plots draw of a run: nothing is lost to drawing, a NaN last of all."""

from __future__ import annotations

import io
import math
import sys
from itertools import pairwise

import numpy as np
import pytest
from drawn_runs import LAYERS, add, run_of
from hypothesis import given
from hypothesis import strategies as st
from PySide6.QtCore import QPointF, Qt
from PySide6.QtGui import QColor, QPainter, QPixmap
from PySide6.QtWidgets import QApplication, QGraphicsScene, QGraphicsView
from waiting import settle

from gradstudio.core.adjusted_knobs import with_adjustments
from gradstudio.core.experiment import Experiment
from gradstudio.core.history import LAYER_METRICS
from gradstudio.core.presets import Preset
from gradstudio.core.row import Layer, Logged
from gradstudio.core.unknown import UNKNOWN, known_mask
from gradstudio.gui.drawing import axes, heatmap_colors, pyqtgraph_internals
from gradstudio.gui.drawing.envelope import INF, NAN, ZERO, Envelope
from gradstudio.gui.drawing.heatmap_colors import NONFINITE, NOTHING, TOP, indices, lookup_table
from gradstudio.gui.drawing.heatmap_image import CAPACITY, LayerBins
from gradstudio.gui.drawing.marks import Marks
from gradstudio.gui.drawing.series import PART
from gradstudio.gui.drawing.shared_cursor import StepRange
from gradstudio.gui.drawing.smoothing import Smoother
from gradstudio.gui.export import plot_figure
from gradstudio.gui.plots.layers import NAMES
from gradstudio.gui.plots.plot_stack import PlotStack
from gradstudio.gui.plots.run_source import RunSource
from gradstudio.gui.theme import theme
from gradstudio.gui.widgets.change_watch import ChangeWatch
from gradstudio.session.record.run import Run
from gradstudio.session.record.run_writer import RunWriter
from gradstudio.session.simulator import Simulator

VALUES = st.floats(width=64) | st.sampled_from([0.0, np.nan, np.inf, -np.inf])


@given(st.lists(st.lists(st.tuples(VALUES, VALUES), max_size=40), max_size=12))
def test_an_envelope_holds_what_came_however_it_came(parts: list[list[tuple[float, float]]]) -> None:
    envelope = Envelope(2, capacity=16)
    for part in parts:
        envelope.append(np.array(part, float).reshape(-1, 2).T)
    both = np.array([pair for part in parts for pair in part], float).reshape(-1, 2).T
    for curve, values in enumerate(both):
        assert envelope.count == len(values)
        for start in range(0, len(values), envelope.width):
            inside = values[start : start + envelope.width]
            is_nan = np.isnan(inside) & known_mask(inside)
            for flag, is_one in ((NAN, is_nan), (INF, np.isinf(inside)), (ZERO, inside == 0)):
                assert (start in envelope.first_steps(flag, curve)) == is_one.any()
            assert (start in envelope.above_zero(curve)) == (inside[np.isfinite(inside)] > 0).any()
        finite = values[np.isfinite(values)]
        found = envelope.range(0, max(len(values), 1), positive=False, curve=curve)
        assert found == ((finite.min(), finite.max()) if len(finite) else None)
        assert (envelope.least[curve], envelope.greatest[curve]) == (found or (np.inf, -np.inf))
        assert envelope.whole(curve, positive=False) == (len(finite) == len(values))
        assert envelope.whole(curve, positive=True) == bool(len(finite) == len(values) and (values > 0).all())


def test_what_nobody_measured_is_a_gap_without_a_mark() -> None:
    envelope = Envelope(1, capacity=16)
    envelope.append(np.array([[1.0, UNKNOWN, 2.0, math.nan]]))
    assert envelope.first_steps(NAN, 0).tolist() == [3] and envelope.above_zero(0).tolist() == [0, 2]


@given(st.lists(st.lists(VALUES, min_size=1, max_size=40), min_size=1, max_size=12), st.integers(1, 8))
def test_parts_of_a_curve_join(parts: list[list[float]], bins: int) -> None:
    envelope = Envelope(capacity=16)
    for part in parts:
        envelope.append(np.array([part], float))
    for log in (False, True):
        steps, values = envelope.curve(log=log)
        drawn = [envelope.curve(0, first, first + bins, log=log) for first in range(0, envelope.used, bins)]
        for one, other in pairwise(drawn):
            assert one[0][-1] == other[0][0] and np.array_equal(one[1][-1], other[1][0], equal_nan=True)
        for whole, place in ((steps, 0), (values, 1)):
            joined = np.concatenate([part[place][index > 0 :] for index, part in enumerate(drawn)])
            assert np.array_equal(joined, whole, equal_nan=True)
        if log:
            with np.errstate(divide="ignore", invalid="ignore"):
                expected = np.log10(envelope.curve()[1])
            assert np.array_equal(values, np.where(np.isfinite(expected), expected, np.nan), equal_nan=True)


def test_figures_of_a_script_and_of_plugins_have_a_plot_where_there_are_any(
    shown: tuple[PlotStack, Simulator],
) -> None:
    stack, _ = shown
    plot = stack.own_figures
    assert not plot.isVisible() and plot in stack.every
    rows = [{"logged": (Logged(step, "val_loss", 2.0 - step / 10),)} if step % 4 == 0 else {} for step in range(12)]
    rows[4]["logged"] += (Logged(4, "kurtosis <b>", math.nan),)
    rows[8]["logged"] += (Logged(8, "reward", 5000.0), Logged(9, "reward", -1e308), Logged(10, "reward", 1e308))
    run = run_of(rows)
    plot.show_run(run)
    plot.refresh(run, 1.0)
    assert plot.isVisible() and plot.dots[0].getData()[0].tolist() == [0, 4, 8]
    assert [np.round(each.getData()[1], 2).tolist() for each in plot.dots[:3]] == [
        [2.88, 2.5, 2.12],
        [],
        [0.5, 0.12, 0.88],
    ]
    assert plot.ranges == {"val_loss": (1.2, 2.0), "reward": (-1e308, 1e308)} and "val_loss 1.2 to 2<" in plot.legend()
    assert plot._broken.steps.tolist() == [4] and "kurtosis &lt;b&gt;" in plot.legend()
    assert plot.reading(run, 4) == "val_loss 1.6 · kurtosis <b> NaN" and plot.reading(run, 5) == "not measured"
    buffer = io.BytesIO()
    data = plot_figure.data(plot, run)
    assert callable(data)
    data(buffer)
    assert buffer.getvalue().decode().splitlines()[:2] == ["step,name,value", "0,val_loss,2.0"]
    plot.show_run(run_of([{}]))
    assert not plot.isVisible()


def test_the_directions_are_shown_on_demand(shown: tuple[PlotStack, Simulator]) -> None:
    stack, _ = shown
    plot = stack.directions
    assert not plot.isVisible() and plot not in stack.plots and plot in stack.every
    stack.toggle_directions()
    assert plot.isVisible() and plot in stack.plots
    behind = stack.gradient_norm.widget.nextInFocusChain()
    while not behind.focusPolicy() & Qt.FocusPolicy.TabFocus:
        behind = behind.nextInFocusChain()
    assert plot.isAncestorOf(behind), "Tab goes from above to below, whenever a plot was made"
    tested = {0: (0.1, 0.99), 40: (math.nan, 0.5), 80: (0.8, UNKNOWN)}
    rows: list[dict] = [
        {"clip_cosine": 1 - step / 200, "update_cosine": UNKNOWN if step == 3 else 0.5} for step in range(100)
    ]
    for step, (accuracy, alike) in tested.items():
        rows[step] |= {"test_accuracy": accuracy, "head_cosine": alike}
    rows[7]["update_cosine"] = math.nan
    run = run_of(rows[:50])
    plot.refresh(run, 1.0)
    add(run, rows[50:])
    plot.refresh(run, 1.0)
    assert [each.tolist() for each in plot.accuracy._dots.getData()] == [[0, 80], [0.1, 0.8]]
    assert [each.tolist() for each in plot.alike._dots.getData()] == [[0, 40], [0.99, 0.5]]
    assert plot.clip.curve.getData()[1].tolist() == [row["clip_cosine"] for row in rows]
    assert plot._broken.steps.tolist() == [7, 40]  # what was measured as NaN; step 3 measured nothing
    low, high = plot.box.viewRange()[1]
    assert low < 0.1 and high > 1
    assert plot.reading(run, 80) == "test accuracy 80 % · of clipping 0.6 · of the update 0.5"
    assert "cosine at the head 0.5" in plot.reading(run, 40) and "update" not in plot.reading(run, 3)
    buffer = io.BytesIO()
    plot_figure.data(plot, run)(buffer)
    lines = buffer.getvalue().decode().splitlines()
    assert lines[0] == "step,test_accuracy,head_cosine,clip_cosine,update_cosine"
    assert lines[1] == "0,0.1,0.99,1.0,0.5" and lines[4] == "3,,,0.985," and lines[41].startswith("40,nan,0.5,")
    RunWriter(run).end("finished", "", 0.9)
    plot.refresh(run, 1.0)
    assert [each.tolist() for each in plot.accuracy._dots.getData()] == [[0, 80, 100], [0.1, 0.8, 0.9]]
    assert plot._broken.steps.tolist() == [7, 40]
    far = run_of([{"clip_cosine": 0.9, "update_cosine": 0.9}] * 50)
    RunWriter(far).end("finished", "", 0.2)
    plot.refresh(far, 1.0)
    assert plot.box.viewRange()[1][0] < 0.2  # no row has it, and it is on view
    broken = run_of([{"clip_cosine": 0.9}] * 50)
    RunWriter(broken).end("nonfinite", "", math.nan)
    plot.refresh(broken, 1.0)
    assert plot._broken.steps.tolist() == [50]
    plot.refresh(run_of([{}]), 1.0)
    assert len(plot.accuracy._dots.getData()[0]) == 0 and not len(plot._broken.steps)
    assert plot.reading(run_of([{}]), 0) == "not measured"
    stack.toggle_directions()
    assert not plot.isVisible()


def test_a_run_is_read_once_for_all_plots_and_anew_when_it_is_another() -> None:
    one, other = run_of([{"loss": 2.0 + step, "lr": 0.5} for step in range(30)]), run_of([{"loss": 1.0}] * 3)
    source, read = RunSource(), []
    rows = source._rows
    source._rows = lambda history, start, stop: (read.append((start, stop)), rows(history, start, stop))[1]
    for stop in (10, 10, 30, 30):
        source.take(one.history, stop)
    assert read == [(0, 10), (10, 30)]
    smooth, loss, lr = (source.envelope.curve(source.names.index(name))[1] for name in ("smooth", "loss", "lr"))
    assert np.array_equal(loss, 2.0 + np.arange(30)) and (lr == 0.5).all()
    np.testing.assert_allclose(smooth, Smoother().smooth(2.0 + np.arange(30)), rtol=1e-12)
    source.take(other.history, 3)
    assert source.envelope.count == 3 and source.envelope.curve(source.names.index("smooth"))[1].tolist() == [
        1.0,
        1.0,
        1.0,
    ]


@given(st.lists(VALUES, min_size=1, max_size=15))
def test_a_short_curve_is_drawn_point_by_point_with_gaps(values: list[float]) -> None:
    envelope = Envelope(capacity=16)
    envelope.append(np.array([values]))
    steps, drawn = envelope.curve()
    expected = np.where(np.isfinite(values), values, np.nan)
    assert steps.tolist() == list(range(len(values)))
    assert np.array_equal(drawn, expected, equal_nan=True)


@given(
    st.lists(
        st.lists(st.floats(0, width=32) | st.sampled_from([0.0, np.nan, np.inf]), min_size=2, max_size=2),
        min_size=1,
        max_size=70,
    )
)
def test_layer_bins_keep_the_largest_and_every_nonfinite(rows: list[list[float]]) -> None:
    values = np.array(rows, np.float32)
    bins = LayerBins(2, capacity=8)
    for row in values:
        bins.append(row[None])
    picture = bins.picture()
    assert len(picture) == -(-len(rows) // bins.width)
    for index in range(len(picture)):
        inside = values[index * bins.width : (index + 1) * bins.width]
        sound = np.isfinite(inside).all(axis=0)
        assert np.array_equal(np.isfinite(picture[index]), sound)
        assert np.array_equal(picture[index][sound], inside.max(axis=0)[sound])


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="5 layers where there are 3"):
        LayerBins(3).append(np.zeros((4, 5), np.float32))
    with pytest.raises(ValueError, match="2 curves where there are 1"):
        Envelope(1).append(np.zeros((2, 4)))


@given(
    st.lists(st.floats(0) | st.sampled_from([0.0, 1e-4, 1e-3, 10.0, 99.0, np.nan, np.inf]), min_size=1), st.booleans()
)
def test_a_colour_is_where_its_value_is_on_the_scale(values: list[float], linear: bool) -> None:
    levels = (0.0, 1.0) if linear else (-4.0, 1.0)
    found = indices(np.array(values), levels, linear=linear)
    for value, index in zip(values, found, strict=True):
        if not math.isfinite(value):
            assert index == NONFINITE
            continue
        if value == 0 and not linear:
            assert index == heatmap_colors.ZERO  # not as the least of the scale
            continue
        place = value if linear else math.log10(value)
        share = min(max((place - levels[0]) / (levels[1] - levels[0]), 0.0), 1.0)
        assert 0 <= index <= TOP and abs(index - share * TOP) <= 1 + 1e-9


def test_a_long_run_is_at_most_a_few_thousand_points() -> None:
    envelope = Envelope()
    for start in range(0, 1_000_000, 100_000):
        envelope.append(np.arange(start, start + 100_000, dtype=float)[None])
    steps, values = envelope.curve()
    assert len(steps) <= 4096 and values.min() == 0 and values.max() == 999_999


def test_smoothing_lets_a_nan_pass_and_forgets_it() -> None:
    with_nan = np.array([2.0, 1.0, np.nan, 1.5, np.inf, 1.2])
    finite = np.isfinite(with_nan)
    smooth, in_parts = Smoother().smooth(with_nan), Smoother()
    assert np.isnan(smooth[2]) and smooth[4] == np.inf
    assert smooth[0] == 2.0  # debiased
    mean = weight = 0.0
    for value, told in zip(with_nan[finite], smooth[finite], strict=True):
        mean, weight = 0.6 * mean + 0.4 * value, 0.6 * weight + 0.4
        assert told == pytest.approx(mean / weight, rel=1e-14)
    long = np.where(np.arange(1000) % 90, np.sin(np.arange(1000.0)), np.nan)
    parts = np.concatenate([in_parts.smooth(long[at : at + 7]) for at in range(0, 1000, 7)])
    np.testing.assert_allclose(parts, Smoother().smooth(long), rtol=1e-10, atol=1e-14)
    huge = np.array([1.7e308, 1.7e308, -1.7e308, 1.0, 1.0])
    assert np.isfinite(Smoother().smooth(huge)).all()


def test_nan_inf_and_zero_are_marks_on_the_norm_plot(shown: tuple[PlotStack, Simulator]) -> None:
    stack, simulator = shown
    simulator.run = run_of([{"grad_norm": value} for value in (1.0, np.nan, 2.0, np.inf, 0.0, 3.0)])
    stack.refresh(simulator)
    marks = stack.gradient_norm.before.marks.of
    assert (
        marks[NAN].getData()[0].tolist() == [1]
        and marks[INF].getData()[0].tolist() == [3]
        and marks[ZERO].getData()[0].tolist() == [4]
    )
    steps, drawn = stack.gradient_norm.before.curve.getData()
    gaps = np.unique(np.round(steps[np.isnan(drawn)]))
    assert gaps.tolist() == [1, 3, 4]
    assert np.isfinite(drawn).sum() == 6  # three lone points, each a dash of two ends, so that they can be seen
    assert "× NaN" in stack.gradient_norm.legend() and "▲ Inf" in stack.gradient_norm.legend()


def test_a_mark_that_comes_into_view_is_drawn_where_none_was(shown: tuple[PlotStack, Simulator]) -> None:
    stack, simulator = shown
    simulator.run = run_of([{}] * 100)
    stack.refresh(simulator)
    canvas = stack.loss.canvas
    marks = Marks(canvas, "cross", 9, z=30)
    marks.apply_style(None, QColor("red"))
    for steps in ([1e9], [1e9, 50.0]):
        marks.show_at(np.array(steps))
    drawn = marks.pixmap().toImage()
    assert drawn.pixelColor(round(canvas.across(50.0)), drawn.height() // 2) == QColor("red")


def test_the_norm_after_clipping_is_drawn_from_the_first_clipped_step_s_coming_on(
    shown: tuple[PlotStack, Simulator],
) -> None:
    stack, simulator = shown
    run = simulator.run = run_of([{"grad_norm": 2.0, "clipped_norm": 2.0}] * 5)
    stack.refresh(simulator)
    assert not len(stack.gradient_norm.after.curve.getData()[0])  # it would lie under the other, unseen
    add(run, [{"grad_norm": 2.0, "clipped_norm": 1.0, "clip_coef": 0.5}])
    stack.refresh(simulator)
    assert (10 ** stack.gradient_norm.after.curve.getData()[1]).round(9).tolist() == [2.0] * 5 + [1.0]


def test_a_rate_that_changes_is_shown_at_once(shown: tuple[PlotStack, Simulator]) -> None:
    stack, simulator = shown
    run = simulator.run = run_of([{"lr": 0.5}] * 5)
    RunWriter(run).set_status("running")
    stack.refresh(simulator)
    add(run, [{"lr": 0.5}] * 2)
    stack.refresh(simulator)
    add(run, [{"lr": 0.25}] * 2)
    stack.refresh(simulator)
    assert stack.scale_and_rate.rate.curve.getData()[1].tolist() == [0.5] * 7 + [0.25] * 2


def test_the_legend_says_what_stands_at_the_foot_of_a_log_axis(shown: tuple[PlotStack, Simulator]) -> None:
    stack, simulator = shown
    run = simulator.run = run_of([{}] * 5)
    stack.refresh(simulator)
    assert "▼" not in stack.loss.legend() and "▼" not in stack.gradient_norm.legend()
    add(run, [{"loss": 0.0, "grad_norm": 0.0}])
    stack.refresh(simulator)
    stack.refresh(simulator)
    assert "▼ 0: not on a log axis" in stack.loss.legend() and "▼ 0: not on a log axis" in stack.gradient_norm.legend()


def test_painting_runs_no_python_of_pyqtgraph(shown: tuple[PlotStack, Simulator]) -> None:
    stack, simulator = shown
    run = simulator.run = run_of(
        [{"loss": value, "skipped": value == 2.0} for value in (1.0, np.nan, 2.0, np.inf, 0.0, 3.0)]
    )
    RunWriter(run).change("optimizer.lr", 0.5)
    add(run, [{}] * 5)
    stack.gradient_norm.show_limit(1.0)
    stack.step_cursor.move(3)
    for _ in range(3):  # Qt asks each kind of item once whether Python has a say
        stack.refresh(simulator)
        QApplication.processEvents()
    called: list[str] = []
    views = [plot.widget.viewport() for plot in stack.plots]
    sys.setprofile(lambda frame, event, _: called.append(frame.f_code.co_filename) if event == "call" else None)
    try:
        for view in views:
            view.repaint()
    finally:
        sys.setprofile(None)
    assert not [name for name in called if "pyqtgraph" in name or "gradstudio" in name]


def test_a_part_of_a_curve_that_is_full_is_not_drawn_again(shown: tuple[PlotStack, Simulator]) -> None:
    stack, simulator = shown
    run = simulator.run = run_of([{"grad_norm": 1.0 + step} for step in range(3 * PART)])
    stack.refresh(simulator)
    curve = stack.gradient_norm.before.curve
    drawn: list[int] = []
    put, curve.put = curve.put, lambda part, *points, **known: (drawn.append(part), put(part, *points, **known))
    add(run, [{"grad_norm": 1000.0}])
    stack.refresh(simulator)
    steps, values = curve.getData()
    assert drawn == [3] and len(steps) == 3 * PART + 1 and values[-1] == pytest.approx(3)


def test_an_unchanged_thing_is_not_looked_at_again() -> None:
    watch, thing, other = ChangeWatch(), [1], [1]
    assert watch.has_changed(thing, "running") and not watch.has_changed(thing, "running")
    assert watch.has_changed(other, "running")  # equal, and another
    watch.forget()
    assert watch.has_changed(other, "running")


@pytest.mark.parametrize("width", [500, 900])
def test_labels_of_changes_are_never_cut_nor_over_each_other(shown: tuple[PlotStack, Simulator], width: int) -> None:
    stack, simulator = shown
    stack.resize(width, 700)
    run = simulator.run = run_of([{}] * 5)
    for steps in (1, 20, 20, 18):
        RunWriter(run).change("mistakes.clip_each_micro_batch", not run.in_force.mistakes.clip_each_micro_batch)
        add(run, [{}] * steps)
        for _ in range(2):  # the second time after the layout has settled
            stack.refresh(simulator)
            QApplication.processEvents()
        strip = stack.loss.strip
        labels = sorted((item for item in strip._items if item.isVisible()), key=lambda item: item.x())
        places = [item.mapRectToScene(item.boundingRect()) for item in labels]
        inside = stack.loss.box.sceneBoundingRect()
        assert all(inside.left() - 1 <= place.left() and place.right() <= inside.right() + 1 for place in places)
        assert all(place.bottom() <= inside.top() + 1 for place in places)  # no curve is there
        assert not any(a.intersects(b) for a, b in pairwise(places))
        assert strip.texts[0].startswith("1") and len(labels) <= len(run.timeline)
    stack.steps.zoom(50, 60)
    assert stack.loss.strip.texts == []  # their lines are not on view


def test_a_new_run_s_axis_is_its_own_from_its_first_rows_on(shown: tuple[PlotStack, Simulator]) -> None:
    stack, simulator = shown
    simulator.run = run_of([{"loss": value} for value in np.geomspace(1e-3, 1e3, 30)])
    RunWriter(simulator.run).set_status("running")
    stack.refresh(simulator)
    run = simulator.run = run_of([])
    RunWriter(run).set_status("running")
    stack.refresh(simulator)
    add(run, [{"loss": value} for value in np.linspace(0.021, 0.02, 30)])
    stack.refresh(simulator)
    low, high = stack.loss.widget.y_range
    assert high - low < 1 and low < math.log10(0.02) < high


@pytest.mark.parametrize("view", [None, (690, 710)])
def test_a_nan_of_the_layers_has_the_theme_s_colour(
    shown: tuple[PlotStack, Simulator], view: tuple[int, int] | None
) -> None:
    stack, simulator = shown
    rows = [{} for _ in range(1500)]
    rows[700] = {"layers": np.full((len(LAYER_METRICS), len(LAYERS)), np.nan)}
    simulator.run = run_of(rows)
    stack.refresh(simulator)
    if view:
        stack.steps.zoom(*view)
    try:
        for mode in ("dark", "light"):
            theme.set_mode(mode)
            settle(theme)
            stack.refresh(simulator)
            screen = stack.layers.widget.grab().toImage()
            row = [screen.pixelColor(x, screen.height() // 2) for x in range(screen.width())]
            assert QColor(theme.colors.bad) in row
    finally:
        theme.set_mode("system")
        settle(theme)


def test_the_limit_s_label_stands_beside_the_plot_and_is_not_cut_off(shown: tuple[PlotStack, Simulator]) -> None:
    plot = shown[0].gradient_norm
    limit, (low, high) = plot.limit, plot.box.viewRange()[1]
    for level in (low, (low + high) / 2, high):
        limit.show_at(level, "max_norm\n5\nwould clip\n50 %")
        place = limit.label.mapRectToScene(limit.label.rect())
        assert place.left() >= plot.box.sceneBoundingRect().right()  # no curve is there
        assert plot.widget.sceneRect().adjusted(-1, -1, 1, 1).contains(place), (place, plot.widget.sceneRect())
    limit.show_at(high + 1, "max_norm\n5")
    assert limit.label.opacity() == 0


@pytest.mark.parametrize(
    ("task", "says"), [("pole", "watch: pole up 50 % of the time"), ("ring", "watch: 50 % of the clusters hit")]
)
def test_a_loss_that_need_not_fall_says_what_to_watch(shown: tuple[PlotStack, Simulator], task: str, says: str) -> None:
    stack, simulator = shown
    run = simulator.run = Run(simulator.run.preset, with_adjustments(Experiment(), "problem.task", task))
    stack.refresh(simulator)
    assert "need not fall" not in stack.loss.legend() and "It need not fall" in stack.loss.title_label.toolTip()
    RunWriter(run).begin(LAYERS, {"device": "cpu"})
    add(run, [{}] * 5)
    stack.refresh(simulator)
    stack.refresh(simulator)
    assert stack.loss.legend().endswith(says)
    add(run, [{"loss": np.nan, "accuracy": np.nan, "nonfinite": 1}])
    assert "need not fall" not in stack.loss.legend()
    simulator.run = run_of([{}] * 5)
    stack.refresh(simulator)
    assert "need not fall" not in stack.loss.legend() + stack.loss.title_label.toolTip()


def test_the_first_nonfinite_step_is_a_line_with_words_on_every_plot(shown: tuple[PlotStack, Simulator]) -> None:
    stack, simulator = shown
    simulator.run = run_of([{}] * 20 + [{"loss": np.nan, "grad_norm": np.nan, "nonfinite": 12}])
    stack.refresh(simulator)
    for plot in stack.plots:
        assert plot.marks.nonfinite_line.isVisible() and plot.marks.nonfinite_line.value() == 20
    assert stack.loss.strip.texts == ["NaN · step 20, after 1"] and stack.gradient_norm.strip.texts == ["NaN, after 1"]


def test_a_run_of_nothing_but_nan_is_drawn(shown: tuple[PlotStack, Simulator]) -> None:
    stack, simulator = shown
    nothing = np.full((len(LAYER_METRICS), len(LAYERS)), np.nan)
    simulator.run = run_of(
        [{"loss": np.nan, "grad_norm": np.nan, "clipped_norm": np.nan, "nonfinite": 9, "layers": nothing}] * 5
    )
    stack.refresh(simulator)
    assert stack.loss.raw.marks.of[NAN].getData()[0].tolist() == [0, 1, 2, 3, 4]
    assert (stack.layers.image.image == NONFINITE).all()


def test_a_run_without_rows_shows_nothing_of_the_one_before(shown: tuple[PlotStack, Simulator]) -> None:
    stack, simulator = shown
    simulator.run = run_of([{"loss": value, "grad_norm": value, "scale": 2.0} for value in (1.0, np.nan, 0.0, 3.0)])
    stack.refresh(simulator)
    assert stack.scale_and_rate.left_values and "NaN" in stack.loss.legend()
    before = simulator.run.history
    simulator.run = Run(simulator.run.preset, Experiment())
    stack.refresh(simulator)
    plots = (stack.loss, stack.gradient_norm, stack.scale_and_rate)
    for series in (series for plot in plots for series in plot.series):
        assert not len(series.curve.getData()[0])
        assert not any(marks.isVisible() for marks in (series.marks.of.values() if series.marks else ()))
        assert all(item.path().isEmpty() for item in series.curve._items)
    assert not any("NaN" in plot.legend() for plot in plots) and not stack.scale_and_rate.left_values
    assert stack.loss.raw.source._history is not before  # it can go


def test_a_run_without_layers_is_drawn(shown: tuple[PlotStack, Simulator]) -> None:
    stack, simulator = shown
    run = simulator.run = Run(simulator.run.preset, Experiment())
    RunWriter(run).begin((), {"device": "cpu"})
    add(run, [{"layers": np.ones((len(LAYER_METRICS), 0))}] * 3)
    stack.refresh(simulator)
    assert stack.layers.image.image.size == 0 and len(stack.loss.raw.curve.getData()[0]) == 3


def test_in_a_file_the_picture_of_the_layers_is_one(shown: tuple[PlotStack, Simulator]) -> None:
    stack, simulator = shown
    random = np.random.default_rng(0)
    run = simulator.run = run_of([{}])
    stack.refresh(simulator)
    of_one_column = plot_figure.svg(stack.layers).count(b"<image")
    add(run, [{"layers": np.exp(random.normal(size=(len(LAYER_METRICS), len(LAYERS))))} for _ in range(200)])
    stack.refresh(simulator)
    assert plot_figure.svg(stack.layers).count(b"<image") == of_one_column
    heat = stack.layers.image
    stack.layers.draw_as_vectors(2)
    picture = heat._whole.pixmap().toImage()
    drawn = [[picture.pixel(x, y) for x in range(picture.width())] for y in range(picture.height())]
    assert np.array_equal(drawn, lookup_table()[heat.image]) and not heat._live.isVisible()
    stack.layers.draw_as_vectors(0)
    assert heat._whole.pixmap().isNull() and heat._live.isVisible()


def test_the_picture_of_the_layers_is_what_its_indices_say_however_it_came(shown: tuple[PlotStack, Simulator]) -> None:
    """Every pixel of the screen that is not on the edge of a column or row has its colour; behind the last column there
    is none."""
    stack, simulator = shown
    random = np.random.default_rng(0)
    run = simulator.run = run_of([{}])
    heat, view = stack.layers.image, stack.layers.widget
    for rows in (1, 62, 1, 3, 70, 900, 50, 900):  # until bins are merged
        add(run, [{"layers": np.exp(random.normal(size=(len(LAYER_METRICS), len(LAYERS))))} for _ in range(rows)])
        stack.refresh(simulator)
        assert heat.image.shape == (len(LAYERS), -(-len(run.history) // stack.layers._bins.width))
        screen = view.grab().toImage()
        to_heat = (heat.sceneTransform() * view.viewportTransform()).inverted()[0]
        colors, inside, outside = lookup_table(), 0, 0
        for x in range(screen.width()):
            column = to_heat.map(QPointF(x + 0.5, 0)).x()
            if not 0 < column < CAPACITY or not 0.1 < column % 1 < 0.9:
                continue
            for row in range(len(LAYERS)):
                y = int(to_heat.inverted()[0].map(QPointF(0, row + 0.5)).y())
                if column < heat.image.shape[1]:
                    inside += 1
                    assert screen.pixel(x, y) == colors[heat.image[row, int(column)]]
                elif screen.pixelColor(x, y) != QColor(theme.colors.plot):
                    outside += 1
        assert inside > 2 * len(LAYERS) and outside == 0


@pytest.mark.parametrize("metric", NAMES)
def test_every_metric_of_the_layers(shown: tuple[PlotStack, Simulator], metric: str) -> None:
    stack, simulator = shown
    values = np.ones((len(LAYER_METRICS), len(LAYERS)))
    stored = {"grad_ratio": "grad_norm", "grad_std": "grad_norm"}.get(metric, metric)  # the weight norms are 1
    values[list(LAYER_METRICS).index(stored)] = [1e-9, np.nan, 1.0]
    if metric == "grad_std":
        values[list(LAYER_METRICS).index("grad_mean")] = 0
        values[0] *= [math.sqrt(layer.size) for layer in LAYERS]
    simulator.run = run_of([{"layers": values}] * 3)
    stack.layers.choose(metric)
    stack.refresh(simulator)
    picture = stack.layers.image.image
    assert picture.shape == (3, 3)
    assert (picture[1] == NONFINITE).all() and (picture[2] == TOP).all() and (picture[0] < 10).all()


@pytest.mark.parametrize("rows", [3, 3000])  # the bins of the longer run are merged
def test_what_was_not_measured_of_a_layer_has_no_colour(shown: tuple[PlotStack, Simulator], rows: int) -> None:
    stack, simulator = shown
    values = np.ones((len(LAYER_METRICS), len(LAYERS)))
    at = list(LAYER_METRICS).index("cut_share")
    values[at] = UNKNOWN
    cut = values.copy()
    cut[at, 1] = 0.0
    run = simulator.run = run_of([{"layers": values}] * rows)
    stack.layers.choose("cut_share")
    stack.refresh(simulator)
    assert (stack.layers.image.image == NOTHING).all() and stack.layers.legend() == "not measured in this run"
    assert stack.layers.reading(run, 1) == "first not measured · last not measured"
    add(run, [{"layers": cut}] * rows)
    stack.refresh(simulator)
    picture = stack.layers.image.image
    assert (picture[0] == NOTHING).all() and (picture[1, : rows // 8] == NOTHING).all() and picture[1, -1] == 0
    assert stack.layers.legend() == "linear colour"


def test_the_page_of_a_layer_leaves_out_what_was_not_measured(shown: tuple[PlotStack, Simulator]) -> None:
    stack, simulator = shown
    values = np.ones((len(LAYER_METRICS), len(LAYERS)))
    older = values.copy()
    older[list(LAYER_METRICS).index("grad_mean") :] = UNKNOWN
    for layers, words in ((older, ["largest |entry|"]), (values, ["largest |entry|", "std", "|mean|"])):
        run = simulator.run = run_of([{"layers": layers}] * 3)
        stack.refresh(simulator)
        if not stack.has("layer_page") or not stack.layer_page.isVisible():
            stack.toggle_layer()
        stack.refresh(simulator)
        entries, shares = stack.layer_page.largest, stack.layer_page.zeros
        for told in (entries.legend(), entries.reading(run, 1), entries.spoken(run)):
            assert [word for word in entries.words if word in told] == words
        assert ("cut by value" in shares.legend()) == (layers is values)
    stack.toggle_layer()


def test_the_cursor_reads_every_plot_at_one_step(shown: tuple[PlotStack, Simulator]) -> None:
    stack, simulator = shown
    simulator.run = run_of([{"loss": 1.0 + step, "grad_norm": 10.0 + step} for step in range(50)])
    stack.refresh(simulator)
    stack.step_cursor.move(7)
    for plot in stack.plots:
        assert plot.cursor_line.isVisible() and plot.cursor_line.value() == 7
        assert "step 7" in plot.legend_label.text()
    assert "loss 8" in stack.loss.legend_label.text() and "norm 17" in stack.gradient_norm.legend_label.text()
    stack.step_cursor.move(None)
    assert not stack.loss.cursor_line.isVisible() and "smoothed" in stack.loss.legend_label.text()


@pytest.mark.parametrize("zoom", [1.0, 1.3])
def test_a_step_stands_at_the_same_place_in_every_plot(shown: tuple[PlotStack, Simulator], zoom: float) -> None:
    stack, simulator = shown
    simulator.run = run_of([{}] * 60)
    theme.set_zoom(zoom)
    settle(theme)
    stack.refresh(simulator)
    QApplication.processEvents()
    places = []
    for plot in (plot for plot in stack.plots if plot.widget.isVisible()):
        scene = plot.box.mapViewToScene(QPointF(42.0, plot.box.viewRange()[1][0]))
        places.append(plot.widget.mapTo(stack, plot.widget.mapFromScene(scene)).x())
    theme.set_zoom(1.0)
    settle(theme)
    assert max(places) - min(places) <= 1, places


def test_rows_of_the_layers_bear_the_names_of_the_run_shown(shown: tuple[PlotStack, Simulator]) -> None:
    stack, simulator = shown
    simulator.run = run_of([{}] * 3)
    stack.refresh(simulator)
    other = Run(simulator.run.preset, Experiment())
    simulator.run = other
    stack.refresh(simulator)
    assert stack.layers._axis.names == ()
    RunWriter(other).begin(tuple(Layer(f"rnn.{name}", "weight", 4) for name in "abc"), {"device": "cpu"})
    add(other, [{}] * 2)
    stack.refresh(simulator)
    QApplication.processEvents()
    axis = stack.layers._axis
    assert axis.names == ("rnn.a", "rnn.b", "rnn.c")
    ticks = axis.tickValues(0, 3, 300)[0][1]
    assert axis.tickStrings(ticks, 1, 1) == ["rnn.a", "rnn.b", "rnn.c"]


def test_the_ranks_have_rows_of_their_own_where_there_are_several(shown: tuple[PlotStack, Simulator]) -> None:
    stack, simulator = shown
    plot = stack.ranks
    simulator.run = run_of([{}] * 3)
    stack.refresh(simulator)
    assert plot not in stack.plots and plot in stack.every
    experiment = Experiment().with_value("distributed.ranks", 2)
    run = simulator.run = Run(Preset(id="p", title="P", experiment=experiment), experiment)
    RunWriter(run).begin(LAYERS, {"device": "cpu"})
    stack.refresh(simulator)
    assert plot in stack.plots and plot._axis.names == ("rank 0", "rank 1")
    own = [[(1.0, 1e-3, 3e-3, 0.0, 1.0, 9), (2.0, 3e-3, 1e-3, 1e-4 * step, 1.0, 9)] for step in range(30)]
    own[7][1] = (math.nan, 0.0, 1e-3, 1e-4, 1.0, 9)
    add(run, [{"ranks": np.array(figures)} for figures in own])
    stack.refresh(simulator)
    assert plot.image.image.shape == (2, 30) and (plot.image.image == NONFINITE).nonzero() == (1, 7)
    assert 10 ** np.array(plot._levels) == pytest.approx([1, 2])
    assert plot.image.image[0, 0] == 0 and plot.image.image[1, 0] == TOP
    assert plot.legend() == "49.4 % of the time in communication · drift 0.0029 · log colour"
    shorter, label = "49.4 % of the time in communication · log colour", plot.legend_label
    whole = label.size()
    label.resize(label.fontMetrics().horizontalAdvance(shorter) + 12, label.height())
    assert plot.legend() == shorter
    label.resize(label.width() // 2, label.height())
    assert plot.legend() == "log colour"
    label.resize(whole)
    assert plot.reading(run, 7) == "rank 0 1 · rank 1 NaN"
    plot.choice.setCurrentIndex(1)
    assert plot.image.image[:, 0].tolist() == pytest.approx([TOP / 4, 3 * TOP / 4], abs=1)
    assert plot.reading(run, 0) == "rank 0 25 % · rank 1 75 %"
    plot._row = 1
    assert plot.reading(run, 3) == "rank 1: own norm 2 · 3 of 4 ms in communication · drift 3e-4"
    assert plot.own_data().splitlines()[2].startswith("0,1,2.0,0.003") and len(plot.own_data().splitlines()) == 61
    simulator.run = run_of([{}] * 3)
    stack.refresh(simulator)
    assert plot not in stack.plots


def test_skipped_steps_are_marked(shown: tuple[PlotStack, Simulator]) -> None:
    stack, simulator = shown
    rows = [
        {"scale": 65536.0},
        {"scale": 65536.0, "skipped": True, "nonfinite": 1, "grad_norm": np.inf},
        {"scale": 32768.0},
    ]
    simulator.run = run_of(rows)
    stack.refresh(simulator)
    assert stack.scale_and_rate._skip_marks.getData()[0].tolist() == [1]
    assert "1 skipped" in stack.scale_and_rate.legend()


def test_an_explosion_does_not_flatten_what_led_up_to_it(shown: tuple[PlotStack, Simulator]) -> None:
    stack, simulator = shown
    simulator.run = run_of([{"loss": 2.0 - step / 100} for step in range(100)] + [{"loss": 1e30}])
    stack.refresh(simulator)
    low, high = stack.loss.box.viewRange()[1]
    assert high - low < 2  # decades


def test_zooming_stops_following_and_a_double_click_follows_again() -> None:
    steps = StepRange()
    steps.follow(100)
    assert (steps.first, steps.last) == (0, 125)
    steps.follow(110)
    assert steps.last == 125  # moved only when the data leave it
    steps.zoom(10, 30)
    steps.follow(1000)
    assert (steps.first, steps.last) == (10, 30)
    steps.fit(1000)
    steps.follow(2000)
    assert steps.first == 0 and steps.last == 2500


@pytest.mark.parametrize(
    ("position", "text"), [(0.0, "1"), (1.0, "10"), (4.0, "10⁴"), (-12.0, "10⁻¹²"), (np.log10(0.2), "0.2")]
)
def test_log_axis_writes_as_people_do(position: float, text: str) -> None:
    assert axes.LogAxis._text(position) == text


@given(st.floats(-30, 30), st.floats(1e-6, 60), st.integers(30, 900))
def test_ticks_lie_on_the_axis_and_are_few(low: float, length: float, size: int) -> None:
    for axis in (axes.LogAxis, axes.Log2Axis, axes.LinearAxis, axes.StepAxis):
        for _, ticks in axis.tickValues(None, low, low + length, size):
            assert len(ticks) <= 60
            assert all(low - 1e-6 * length - 1e-9 <= tick <= low + length + 1e-6 * length + 1e-9 for tick in ticks)


def test_a_change_that_was_undone_is_not_written_at_the_loss(shown: tuple[PlotStack, Simulator]) -> None:
    stack, simulator = shown
    run = simulator.run = run_of([{}] * 5)
    before = run.in_force.optimizer.lr
    RunWriter(run).change("optimizer.lr", 0.5)
    stack.refresh(simulator)
    strip = stack.loss.strip
    assert strip.texts == [f"1  optimizer.lr {before} → 0.5"]
    RunWriter(run).change("optimizer.lr", before)  # undone before the next step
    stack.refresh(simulator)
    assert strip.texts == []
    RunWriter(run).change("optimizer.lr", 0.25)
    stack.refresh(simulator)
    RunWriter(run).change("optimizer.lr", 0.125)  # instead, so that there are as many changes as before
    stack.refresh(simulator)
    assert strip.texts == [f"1  optimizer.lr {before} → 0.125"]


def test_the_advised_max_norm_is_that_of_the_run_on_view(shown: tuple[PlotStack, Simulator]) -> None:
    stack, simulator = shown
    simulator.requested = simulator.requested.with_value("clipping.kind", "none")
    runs = []
    for norm in (1.0, 40.0):
        calm = [{"grad_norm": norm * (1 + step / 100)} for step in range(80)]
        runs += [run_of(calm + [{"grad_norm": norm * 10.0**power} for power in range(2, 6)]), run_of(calm)]
    for run, advised in zip(runs, ("max_norm\n1.", "", "max_norm\n7", ""), strict=True):
        simulator.run = run
        stack.refresh(simulator)
        label = stack.gradient_norm.limit.label
        assert label.isVisible() == bool(advised)  # only where a finding offers clipping
        assert not advised or label.toPlainText().startswith(advised)


@pytest.mark.parametrize("height", [28, 44, 60, 110])
@pytest.mark.parametrize("low", [-0.4, 0.04, 0.31, 0.52, 0.9])
@pytest.mark.parametrize("length", [0.13, 1.02, 1.11, 1.9])
def test_a_low_plot_has_two_numbers_on_its_axis(qapp: object, height: int, low: float, length: float) -> None:
    """As the plot of directions in a window of 1280 x 720."""
    ((_, values),) = axes.LinearAxis("left").tickValues(low, low + length, height)
    assert 2 <= len(values) <= 12 and all(low <= value <= low + length for value in values)


@pytest.mark.parametrize("high", [0.2, 0.41, 0.45, 0.5, 1.9])
def test_the_numbers_of_a_low_plot_do_not_lie_on_each_other(qapp: QApplication, high: float) -> None:
    """As those of the learning rate: 0, 0.1, 0.2, 0.3 and 0.4 stood within 24 px."""
    for kind, low, top in ((axes.LinearAxis, 0.0, high), (axes.LogAxis, -2.4, 2.5), (axes.LogAxis, -3.9, 0.8)):
        ((_, values),) = kind("left").tickValues(low, top, 30)
        assert len(values) >= 2 and min(np.diff(values)) / (top - low) * 30 >= 11


def test_a_number_may_stand_out_over_the_end_of_its_axis(qapp: QApplication) -> None:
    view, axis, picture = QGraphicsView(), axes.LinearAxis("left"), QPixmap(60, 60)
    view.setScene(QGraphicsScene(view))
    view.scene().addItem(axis)
    axis.resize(60, 28)
    axis.setRange(-0.06, 1.06)
    with QPainter(picture) as painter:
        *_, texts = pyqtgraph_internals.private(axis, "generateDrawSpecs")(painter)
    assert [text for *_, text in texts] == ["0", "1"]


def test_the_words_over_a_plot_follow_its_width(shown: tuple[PlotStack, Simulator]) -> None:
    stack, simulator = shown
    run = simulator.run = run_of([{}] * 5)
    stack.timeline.show_reach(4, 12 << 20, 256 << 20, [0, 3])
    assert stack.timeline._kept.steps.tolist() == [0, 3]
    for width, whole in ((900, True), (500, False), (900, True)):
        stack.resize(width, 700)
        QApplication.processEvents()
        stack.timeline._said = 0.0  # as if some time had passed
        stack.timeline.refresh(run, 1.0)
        legend = stack.timeline.legend_label
        assert ("snapshots 12 of 256 MB" in legend.text()) == whole
        assert legend.sizeHint().width() <= legend.width()
    for used, told in ((5, True), (0, False)):
        stack.timeline.show_reach(4, used, 256 << 20)
        assert ("snapshots" in stack.timeline.legend()) == told, "few bytes are some, and none are none"


@pytest.mark.parametrize("kind", [axes.LogAxis, axes.EitherAxis, axes.Log2Axis])
def test_a_log_axis_with_the_range_of_a_linear_one_has_few_ticks(qapp: QApplication, kind: type[axes.Axis]) -> None:
    """It listed 4e9 decades, and the window stood still: a loss of -1e9, then a preset whose loss is drawn as a log."""
    [(_, ticks)] = kind("left").tickValues(-2e9, 2e9, 100)
    assert 2 <= len(ticks) < 10
