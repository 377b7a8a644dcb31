"""The window with real clicks and keys: what a person does with it from launch to report."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PySide6.QtCore import QMimeData, QPoint, QPointF, QSize, Qt, QUrl
from PySide6.QtGui import QColor, QDropEvent, QMouseEvent
from PySide6.QtWidgets import (
    QAbstractButton,
    QAbstractSlider,
    QComboBox,
    QLabel,
    QLineEdit,
    QMenu,
    QPushButton,
    QScrollBar,
    QToolButton,
    QVBoxLayout,
    QWidget,
    QWidgetItem,
)
from pytestqt.qtbot import QtBot
from waiting import ENDLESS, LONG, settle

from gradstudio.core import files, presets
from gradstudio.core.events import Change
from gradstudio.core.experiment import KNOBS
from gradstudio.engine import notices
from gradstudio.gui.diagnosis.diagnosis_panel import DiagnosisPanel
from gradstudio.gui.diagnosis.findings_panel import FindingsPanel
from gradstudio.gui.knobs.knob_panel import KnobPanel
from gradstudio.gui.plots.layers import LayersPlot
from gradstudio.gui.services.message_bar import MessageBar
from gradstudio.gui.shell import first_paint
from gradstudio.gui.shell.first_paint import after_first_paint
from gradstudio.gui.shell.side_panel import SidePanel
from gradstudio.gui.shell.top_bar import TopBar
from gradstudio.gui.shell.window_columns import LEAST
from gradstudio.gui.theme import theme
from gradstudio.gui.window import Window, first_size

pytestmark = pytest.mark.shares_window

LEFT = Qt.MouseButton.LeftButton
BROKEN = {"optimizer__lr": 1e6, "model__activation": "leaky_relu", "model__depth": 3}


def press(qtbot: QtBot, button: QPushButton) -> None:
    """Click a button once the window's next heartbeat has shown and enabled it."""
    qtbot.waitUntil(lambda: button.isVisible() and button.isEnabled(), timeout=LONG)
    qtbot.mouseClick(button, LEFT)


def finished(window: Window) -> Callable[[], bool]:
    return lambda: window.simulator.run.over and window.top.play.text() != "Pause"


def segment(window: Window, choice: str) -> QPushButton:
    return next(button for button in window.knobs.findChildren(QPushButton) if button.property("choice") == choice)


def test_opens_ready_without_a_run(window: Window) -> None:
    assert window.top.pill.accessibleName() == "Ready: press Run"
    assert window.windowTitle().startswith("Small")
    assert not window.top.restart.isEnabled() and window.top.play.isEnabled()
    assert not window.simulator.busy


def test_run_to_the_end_and_restart(qtbot: QtBot, window: Window) -> None:
    press(qtbot, window.top.play)
    qtbot.waitUntil(finished(window), timeout=LONG)
    window.refresh()
    assert window.top.pill.accessibleName().startswith("Finished: test accuracy")
    assert window.top.play.isEnabled() and window.top.play.text() == "40 more steps"
    assert window.top.play.property("role") == "primary" and "Makes 40 more steps" in window.top.play.toolTip()
    assert not window.top.step.isEnabled() and "is over" in window.top.step.accessibleDescription()
    assert window.plots.loss.raw.envelope.count == 40
    assert "1 of 2" in window.lesson.heading.text()
    first = window.simulator.run
    press(qtbot, window.top.restart)
    qtbot.waitUntil(lambda: window.simulator.run is not first and window.simulator.run.over, timeout=LONG)
    assert np.array_equal(first.history.column("loss"), window.simulator.run.history.column("loss"))


def test_diverges_in_words_and_heals_by_a_click(qtbot: QtBot, make_window: Callable[..., Window]) -> None:
    window = make_window(**BROKEN, clipping__max_norm=1e-6)
    press(qtbot, window.top.play)
    qtbot.waitUntil(lambda: window.simulator.run.over, timeout=LONG)
    window.refresh(whole=True)
    step = window.simulator.run.first_nonfinite_step
    assert (
        step is not None
        and window.top.pill.accessibleName().startswith("Diverged: ")
        and window.top.pill.accessibleName().endswith(f"at step {step}")
    )
    assert window.plots.loss.marks.nonfinite_line.isVisible() and f"step {step}" in " ".join(
        window.plots.loss.strip.texts
    )
    assert window.findings.cards[0].isVisible()
    press(qtbot, segment(window, "norm"))
    assert window.simulator.waiting() == {"clipping.kind"}
    qtbot.waitUntil(lambda: "applies on restart" in window.knobs.rows["clipping.kind"].note.text(), timeout=LONG)
    press(qtbot, window.top.restart)
    qtbot.waitUntil(
        lambda: window.simulator.run.over and window.simulator.run.first_nonfinite_step is None, timeout=LONG
    )
    assert window.simulator.run.status == "finished"


def test_a_live_knob_turned_in_mid_run(qtbot: QtBot, make_window: Callable[..., Window]) -> None:
    window = make_window(run__steps=ENDLESS)
    press(qtbot, window.top.play)
    qtbot.waitUntil(lambda: len(window.simulator.run.history) > 5, timeout=LONG)
    press(qtbot, segment(window, "value"))
    qtbot.waitUntil(lambda: window.simulator.run.in_force.clipping.kind == "value", timeout=LONG)
    qtbot.waitUntil(lambda: len(window.plots.timeline._dots.getData()[0]) == 1, timeout=LONG)
    qtbot.keyClick(window, Qt.Key.Key_Space)
    qtbot.waitUntil(lambda: window.simulator.run.status == "paused" and window.top.play.text() == "Run", timeout=LONG)
    rows = len(window.simulator.run.history)
    press(qtbot, window.top.step)
    qtbot.waitUntil(lambda: len(window.simulator.run.history) == rows + 1, timeout=LONG)


def test_a_restart_knob_says_that_it_waits(qtbot: QtBot, make_window: Callable[..., Window]) -> None:
    window = make_window(run__steps=ENDLESS)
    press(qtbot, window.knobs.more.button)
    press(qtbot, window.top.step)
    qtbot.waitUntil(lambda: len(window.simulator.run.history) == 1, timeout=LONG)
    row = window.knobs.rows["model.width"]
    line = row.editor.head
    line.setFocus()
    line.selectAll()
    qtbot.keyClicks(line, "16")
    qtbot.keyClick(line, Qt.Key.Key_Return)
    qtbot.waitUntil(lambda: row.note.text() == "applies on restart; in force: 8", timeout=LONG)
    assert row.dot.isVisible()
    qtbot.mouseClick(row.dot, LEFT)
    qtbot.waitUntil(lambda: row.note.text() == "" and window.simulator.requested.model.width == 8, timeout=LONG)


def test_what_is_not_allowed_is_said_and_changes_nothing(qtbot: QtBot, make_window: Callable[..., Window]) -> None:
    window = make_window(clipping__kind="norm")
    before = window.simulator.requested
    row = window.knobs.rows["clipping.max_norm"]
    line = row.editor.head
    for typed, said in {"-1": "above 0", "abc": "a number", "nan": "a number", "1e400": "a number"}.items():
        line.selectAll()
        qtbot.keyClicks(line, typed)
        qtbot.keyClick(line, Qt.Key.Key_Return)
        window.refresh()
        assert said in row.note.text() and row.note.property("role") == "error", typed
        assert line.text() == typed and window.simulator.requested is before
        qtbot.keyClick(line, Qt.Key.Key_Escape)
        assert line.text() == "1" and row.note.text() == "", typed


def test_what_is_typed_as_a_quotient_or_a_power_is_shown_whole(qtbot: QtBot, window: Window) -> None:
    line = window.knobs.rows["optimizer.lr"].editor.head
    for typed, value, shown in (("1/3", 1 / 3, "1/3"), ("1e-3", 0.001, "0.001"), ("2^-10", 2**-10, None)):
        line.selectAll()
        qtbot.keyClicks(line, typed)
        qtbot.keyClick(line, Qt.Key.Key_Return)
        assert window.simulator.requested.optimizer.lr == value and line.text() == (shown or "0.0009765625")
    window.knobs.rows["precision.init_scale"].editor.set_value(123456789.0)
    wide = window.knobs.rows["precision.init_scale"].editor.head
    assert wide.text() == "123456789" and wide.fontMetrics().horizontalAdvance(wide.text()) < wide.width() - 8


def test_a_slider_among_values_that_do_not_all_go_together(qtbot: QtBot, make_window: Callable[..., Window]) -> None:
    window = make_window(problem__task="sequential_digits", problem__seq_len=8)
    slider = window.knobs.rows["problem.seq_len"].editor.foot
    values = []
    for _ in range(30):
        qtbot.keyClick(slider, Qt.Key.Key_Right)
        window.refresh()
        values.append(window.simulator.requested.problem.seq_len)
    assert set(values) <= {8, 16, 32, 64} and len(set(values)) > 1 and values == sorted(values)
    assert not window.message.isVisible()


def test_a_task_brings_its_model_and_says_so(qtbot: QtBot, window: Window) -> None:
    combo = window.knobs.rows["problem.task"].editor.head
    combo.setFocus()
    qtbot.keyClick(combo, Qt.Key.Key_R)
    assert window.simulator.requested.problem.task == "ring" and window.simulator.requested.model.kind == "gan"
    assert window.message.text.text() == "problem.task = ring needs model.kind = gan, so that was set too."
    window.refresh()
    assert window.knobs.rows["model.kind"].editor.value == "gan"


@pytest.mark.usefixtures("an_lstm_knows_only_fp32")
def test_what_the_device_refuses_is_said_and_the_form_goes_back(
    qtbot: QtBot, make_window: Callable[..., Window]
) -> None:
    window = make_window(model__kind="lstm", run__steps=ENDLESS)
    press(qtbot, window.top.step)
    qtbot.waitUntil(lambda: len(window.simulator.run.history) == 1, timeout=LONG)
    combo = window.knobs.rows["precision.dtype"].editor.head
    combo.setFocus()
    qtbot.keyClick(combo, Qt.Key.Key_B)
    qtbot.waitUntil(lambda: window.message.isVisible(), timeout=LONG)
    assert "precision.dtype = bf16 is not allowed with model.kind = lstm on cpu" in window.message.text.text()
    qtbot.waitUntil(lambda: combo.currentText() == "fp32", timeout=LONG)
    assert window.knobs.rows["precision.dtype"].note.text() == ""
    press(qtbot, window.top.play)
    qtbot.waitUntil(lambda: len(window.simulator.run.history) > 3, timeout=LONG)


def test_comparing_with_the_large_batch_is_a_click_or_a_key(qtbot: QtBot, make_window: Callable[..., Window]) -> None:
    window = make_window(accumulation__steps=4)
    note = window.knobs.rows["accumulation.steps"].note
    press(qtbot, window.knobs.compare)
    qtbot.waitUntil(lambda: "step 0: equal to the large batch within" in note.text(), timeout=LONG)
    assert note.property("role") == "note" and "micro-batch" in note.toolTip()
    window.controls.set_knob("mistakes.unscaled_accumulation", True)
    qtbot.keyClick(window, Qt.Key.Key_B, Qt.KeyboardModifier.ControlModifier)
    qtbot.waitUntil(lambda: "step 1: differs from the large batch by 300\u00a0%" in note.text(), timeout=LONG)
    assert note.property("role") == "waiting"
    window.controls.run_or_pause()
    qtbot.waitUntil(lambda: window.simulator.run.over, timeout=LONG)
    window.controls.compare_with_large_batch()
    assert "press Restart first" in window.message.text.text()


def test_compare_stands_only_beside_several_micro_batches(window: Window) -> None:
    window.refresh()
    assert not window.knobs.compare.isVisible()
    window.controls.set_knob("accumulation.steps", 2)
    window.refresh()
    assert window.knobs.compare.isVisible()


def test_compare_looks_like_a_button(window: Window) -> None:
    window.controls.set_knob("accumulation.steps", 2)
    window.refresh()
    colors = {QColor(pixel).name() for pixel in _pixels(window.knobs.compare)}
    assert {theme.color("line").name(), theme.color("accent").name()} <= colors


def _pixels(widget: QWidget) -> set[int]:
    picture = widget.grab().toImage()
    return {picture.pixel(x, y) for x in range(picture.width()) for y in range(picture.height())}


@pytest.mark.parametrize(
    ("room", "size"),
    [((2560, 1440), (2048, 1152)), ((1920, 1080), (1536, 900)), ((1440, 900), (1424, 860)), ((1366, 768), (1350, 728))],
)
def test_the_first_window_fits_on_the_screen(room: tuple[int, int], size: tuple[int, int]) -> None:
    assert first_size(QSize(*room)) == QSize(*size)


def test_the_speed_is_remembered(qtbot: QtBot, make_window: Callable[..., Window]) -> None:
    one = make_window()
    one.top.speed.setValue(700)
    one.close()
    other = make_window()
    assert other.top.speed.value() == 700 and "/s" in other.top.speed_label.text()


def test_a_click_on_a_groove_moves_the_slider_to_the_mouse(qtbot: QtBot, window: Window) -> None:
    slider = window.knobs.rows["optimizer.lr"].editor.foot
    assert isinstance(slider, QAbstractSlider)
    for share in (0.2, 0.8):
        where = QPoint(round(share * slider.width()), slider.height() // 2)
        qtbot.mouseClick(slider, LEFT, pos=where)
        assert abs(slider.value() / slider.maximum() - share) < 0.05 and not slider.isSliderDown()
    lr = window.simulator.requested.optimizer.lr
    assert 0.3 < lr < 1.2, "0.8 of the way from 1e-5 to 10"


def test_a_message_stays_over_the_foot_of_the_plots(qtbot: QtBot, window: Window) -> None:
    window.message.show_error(
        "Something is not allowed, and this is a sentence about it that takes more than one line. " * 2
    )

    def lies_there() -> bool:
        bar, under = window.message.geometry(), window.plots.layer_card.geometry()
        return (bar.left(), bar.right(), bar.bottom()) == (under.left(), under.right(), under.bottom()) and _whole(
            window
        )

    def _whole(window: Window) -> bool:
        text = window.message.text
        return text.height() >= text.heightForWidth(text.width())

    assert lies_there()
    for change in (
        window.columns.toggle_knobs,
        lambda: window.columns.show_page("runs"),
        lambda: window.resize(1100, 640),
        lambda: window.columns.setSizes([240, 420, 440]),
        lambda: window.columns.toggle_page("runs"),
        window.columns.toggle_knobs,
        lambda: theme.set_zoom(1.3),
        lambda: theme.set_zoom(1.0),
    ):
        change()
        qtbot.waitUntil(lies_there, timeout=LONG)
    assert not window.message.geometry().intersects(window.plots.loss.geometry())
    window.columns.show_page("code")
    frame = window.columns.middle.frame
    qtbot.waitUntil(lambda: window.message.geometry().bottom() == frame.rect().bottom(), timeout=LONG)
    assert window.message.isVisible() and window.message.parentWidget() is frame
    qtbot.keyClick(window, Qt.Key.Key_Escape)  # first the message, then the page
    assert not window.message.isVisible() and window.columns.middle.page is window.side.code


def test_what_the_engine_has_to_tell_is_shown(qtbot: QtBot, window: Window) -> None:
    notices.tell("Recorded passes are off in this test; training is slower, with the same numbers.")
    window.controls.run_or_pause()
    qtbot.waitUntil(lambda: "Recorded passes are off" in window.message.text.text(), timeout=LONG)


def test_a_mistake_says_what_hides_it(qtbot: QtBot, window: Window) -> None:
    row = window.knobs.rows["mistakes.clip_after_step"]
    window.knobs.search.setText("clip_after")
    window.refresh()
    assert row.note.text() == "" and "Changes nothing without clipping." in row.label.toolTip()
    qtbot.mouseClick(row.editor.head, LEFT)
    window.refresh()
    assert row.note.text() == "changes nothing without clipping"
    window.controls.set_knob("clipping.kind", "norm")
    window.refresh()
    assert row.note.text() == "" and "Changes nothing" not in row.label.toolTip()


def test_a_loop_out_of_order_is_put_right_by_a_click(qtbot: QtBot, make_window: Callable[..., Window]) -> None:
    window = make_window(run__steps=ENDLESS, mistakes__never_zero_grad=True)
    window.columns.show_page("diagnosis")
    press(qtbot, window.top.step)
    qtbot.waitUntil(lambda: any(card.isVisible() for card in window.findings.cards), timeout=LONG)
    card = window.findings.cards[0]
    assert (
        card.title.text() == "Calls in the wrong order"
        and "Right: zero_grad, forward, backward, step, schedule." in card.text.text()
    )
    [button] = [
        button for button in card.findChildren(QPushButton) if button.text() == "mistakes.never_zero_grad = false"
    ]
    press(qtbot, button)
    qtbot.waitUntil(lambda: not window.simulator.run.in_force.mistakes.never_zero_grad, timeout=LONG)


def test_a_loss_that_may_be_negative_is_drawn_on_a_linear_axis(
    qtbot: QtBot, make_window: Callable[..., Window]
) -> None:
    window = make_window(loss__kind="naive_variance", loss__eps=0.01, run__steps=60)
    press(qtbot, window.top.play)
    qtbot.waitUntil(lambda: window.simulator.run.over, timeout=LONG)
    window.refresh()
    losses, plot = window.simulator.run.history.column("loss"), window.plots.loss
    assert losses.min() < 0 and "log" not in plot.legend()
    qtbot.waitUntil(lambda: plot.box.viewRange()[1][0] <= losses.min(), timeout=LONG)
    assert losses.max() <= plot.box.viewRange()[1][1]
    assert np.isfinite(window.plots.loss.raw.curve.getData()[1]).all()


def test_dragging_the_limit_in_the_plot_sets_max_norm(make_window: Callable[..., Window]) -> None:
    window = make_window(clipping__kind="norm")
    plot = window.plots.gradient_norm
    assert plot.limit.isVisible() and plot.limit.value() == 0
    plot.limit.setValue(np.log10(0.25))
    plot.limit.sigPositionChangeFinished.emit(plot.limit)
    assert window.simulator.requested.clipping.max_norm == 0.25


def test_a_remedy_is_a_click(qtbot: QtBot, make_window: Callable[..., Window]) -> None:
    window = make_window(**BROKEN)
    press(qtbot, window.top.play)
    qtbot.waitUntil(lambda: window.simulator.run.over, timeout=LONG)
    window.refresh(whole=True)
    button = next(
        button
        for card in window.findings.cards
        for button in card.findChildren(QPushButton)
        if "optimizer.lr = " in button.text()
    )
    press(qtbot, button)
    assert 0 < window.simulator.requested.optimizer.lr < 1


def test_an_exception_in_training_is_a_status_and_restart_works(
    qtbot: QtBot, make_window: Callable[..., Window]
) -> None:
    window = make_window(precision__dtype="fp16", mistakes__unscale_twice=True)
    press(qtbot, window.top.play)
    qtbot.waitUntil(lambda: window.message.isVisible(), timeout=LONG)
    assert "unscale_() has already been called" in window.message.text.text() and window.message.copy.isVisible()
    assert window.simulator.run.status == "failed"
    window.controls.set_knob("mistakes.unscale_twice", False)
    press(qtbot, window.top.restart)
    qtbot.waitUntil(lambda: window.simulator.run.status == "finished", timeout=LONG)
    assert not window.message.isVisible()


def test_closing_in_mid_run_ends_the_run(qtbot: QtBot, make_window: Callable[..., Window]) -> None:
    window = make_window(run__steps=ENDLESS)
    press(qtbot, window.top.play)
    qtbot.waitUntil(lambda: len(window.simulator.run.history) > 3, timeout=LONG)
    window.close()
    assert not window.simulator.busy and window.simulator.run.status == "stopped" and not window.isVisible()


def test_a_preset_is_opened_from_the_menu(qtbot: QtBot, window: Window) -> None:
    menu = window.top.preset.menu()
    menu.aboutToShow.emit()
    groups = {action.text(): action.menu() for action in menu.actions() if isinstance(action.menu(), QMenu)}
    action = next(entry for entry in groups["Vanishing"].actions() if entry.text() == "Deep sigmoid vanishing")
    action.trigger()
    assert window.simulator.preset.id == "deep-sigmoid-vanishing" and window.simulator.requested.model.depth == 20
    window.refresh()
    assert window.knobs.rows["model.depth"].editor.value == 20


def drop(window: Window, *paths: Path) -> None:
    data = QMimeData()
    data.setUrls([QUrl.fromLocalFile(str(path)) for path in paths])
    event = QDropEvent(QPointF(9, 9), Qt.DropAction.CopyAction, data, LEFT, Qt.KeyboardModifier.NoModifier)
    window.dropEvent(event)


def test_a_file_is_dropped(window: Window, tmp_path: Path) -> None:
    good = tmp_path / "mine.toml"
    good.write_text('schema = 1\ntitle = "Mine"\n[model]\nwidth = 32\n')
    drop(window, good)
    assert window.simulator.preset.title == "Mine" and window.simulator.requested.model.width == 32


def test_a_bad_file_is_said_and_changes_nothing(window: Window, tmp_path: Path) -> None:
    before = (window.simulator.preset, window.simulator.requested, window.simulator.run)
    bad = tmp_path / "bad.toml"
    bad.write_text("schema = 1\n\n[clipping]\nmax_norm = -1\n")
    drop(window, bad)
    text = window.message.text.text()
    assert (
        window.message.isVisible()
        and "bad.toml, line 4" in text
        and "clipping.max_norm = -1" in text
        and "above 0" in text
    )
    drop(window, tmp_path / "picture.png")
    assert ".toml" in window.message.text.text()
    assert before == (window.simulator.preset, window.simulator.requested, window.simulator.run)


def test_knobs_are_saved_as_a_preset_and_found_again(window: Window) -> None:
    window.controls.set_knob("optimizer.lr", 0.0125)
    window.controls.save_preset_as("My find")
    assert (files.user_presets() / "my-find.toml").exists()
    assert presets.load("my-find").experiment == window.simulator.requested
    assert window.simulator.preset.title == "My find"
    window.controls.save_preset_as("RNN explosion")
    assert "bundled" in window.message.text.text() and window.simulator.preset.title == "My find"


def test_every_export_is_written_and_said_or_said_not_to_be(qtbot: QtBot, window: Window, tmp_path: Path) -> None:
    press(qtbot, window.top.play)
    qtbot.waitUntil(lambda: window.simulator.run.over, timeout=LONG)

    line = window.figures.written

    def said() -> str:
        """What is said next to be written: at the foot, where it covers nothing."""
        qtbot.waitUntil(line.isVisible, timeout=LONG)
        text = line.words.toolTip()
        qtbot.waitUntil(lambda: line.width() >= line.sizeHint().width(), timeout=LONG)
        qtbot.mouseClick(line.close_button, Qt.MouseButton.LeftButton)
        assert not line.isVisible() and not window.message.isVisible()
        return text

    for name in ("report.html", "report.pdf", "experiment.toml", "metrics.csv", "train.py"):
        window.files.export(window.simulator.run, name, str(tmp_path / name))
        assert said() == f"Written: {tmp_path / name}"
        assert (tmp_path / name).stat().st_size > 100
    window.files.export_events(window.simulator.run, str(tmp_path))
    text = said()
    (events,) = tmp_path.glob("events.out.tfevents.*")
    assert text == f"Written: {events}"
    (tmp_path / "file").write_text("in the way")
    window.files.export(window.simulator.run, "metrics.csv", str(tmp_path / "file" / "metrics.csv"))
    qtbot.waitUntil(window.message.isVisible, timeout=LONG)
    assert "was not written" in window.message.message and not line.isVisible()


def test_search_finds_knobs_that_are_hidden_otherwise(qtbot: QtBot, window: Window) -> None:
    assert not window.knobs.rows["precision.growth_interval"].isVisible()
    qtbot.keyClick(window, Qt.Key.Key_F, Qt.KeyboardModifier.ControlModifier)
    window.knobs.search.setText("growth int")
    window.refresh()
    row = window.knobs.rows["precision.growth_interval"]
    assert row.isVisible() and not row.isEnabled() and "applies to" in row.note.text()
    assert not window.knobs.rows["optimizer.lr"].isVisible()
    window.knobs.search.clear()
    window.refresh()
    assert window.knobs.rows["optimizer.lr"].isVisible()


def test_every_knob_has_a_row_and_every_control_a_name(window: Window) -> None:
    assert {row.knob.name for row in window.knobs.rows.values()} == set(KNOBS)
    controls = [
        widget
        for kind in (QAbstractButton, QAbstractSlider, QComboBox, QLineEdit)
        for widget in window.findChildren(kind)
    ]
    ours = (KnobPanel, TopBar, FindingsPanel, SidePanel, MessageBar, LayersPlot)
    inner = (QScrollBar, QToolButton)  # parts that Qt makes and names by itself
    named = [
        widget
        for widget in controls
        if not isinstance(widget, inner)
        and any(own.isAncestorOf(widget) for kind in ours for own in window.findChildren(kind))
    ]
    assert len(named) > len(KNOBS)
    for widget in named:
        text = widget.text() if isinstance(widget, QAbstractButton) else ""
        assert widget.accessibleName() or text, widget


def test_every_slider_moves_within_what_its_knob_allows(window: Window) -> None:
    rows = [row for row in window.knobs.rows.values() if row.knob.slider]
    assert len(rows) > 20
    for row in rows:
        values: list[object] = []
        row.editor.slid.connect(lambda value, by_keys, values=values: values.append(value))
        for position in (0, 1, 250, 500, 750, 999, 1000):
            row.editor.foot.setValue(position)
        assert len(values) > 3, row.knob.name
        for value in values:
            nearest = window.simulator.nearest(row.knob.name, value, onwards=False)
            window.simulator.requested.with_value(row.knob.name, nearest)  # raises where it is not allowed


def test_the_theme_reaches_every_plot(window: Window) -> None:
    for mode in ("light", "dark"):
        theme.set_mode(mode)
        settle(theme)
        background = theme.colors.plot
        for plot in window.plots.plots:
            assert plot.widget.backgroundBrush().color().name() == background.lower()
    theme.set_mode("system")
    settle(theme)


def test_larger_text_and_back(window: Window) -> None:
    before = window.font().pointSizeF()
    theme.set_zoom(1.5)
    settle(theme)
    assert window.font().pointSizeF() == pytest.approx(1.5 * before, rel=0.02)
    theme.set_zoom(1.0)
    settle(theme)
    assert window.font().pointSizeF() == pytest.approx(before)


def test_space_after_a_click_on_restart_pauses(qtbot: QtBot, make_window: Callable[..., Window]) -> None:
    window = make_window(run__steps=ENDLESS)
    press(qtbot, window.top.play)
    qtbot.waitUntil(lambda: len(window.simulator.run.history) > 0, timeout=LONG)
    press(qtbot, window.top.restart)
    run = window.simulator.run
    qtbot.waitUntil(lambda: len(run.history) > 0, timeout=LONG)
    qtbot.keyClick(window.focusWidget() or window, Qt.Key.Key_Space)
    qtbot.waitUntil(lambda: run.status == "paused", timeout=LONG)
    assert window.simulator.run is run


def test_an_export_in_flight_is_finished_when_the_window_closes(qtbot: QtBot, window: Window, tmp_path: Path) -> None:
    press(qtbot, window.top.play)
    qtbot.waitUntil(lambda: window.simulator.run.over, timeout=LONG)
    window.files.export(window.simulator.run, "report.html", str(tmp_path / "report.html"))
    window.close()
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
    assert (tmp_path / "report.html").read_text().rstrip().endswith("</html>")


def test_the_keyboard_zooms_reads_steps_and_layers(qtbot: QtBot, window: Window) -> None:
    press(qtbot, window.top.play)
    qtbot.waitUntil(lambda: window.simulator.run.over, timeout=LONG)
    window.refresh()
    window.plots.layer_card.show_page("layers")
    window.refresh()
    plot, steps = window.plots.layers, window.plots.steps
    qtbot.keyClick(plot.widget, Qt.Key.Key_Left)
    assert window.plots.step_cursor.step == 38
    qtbot.keyClick(plot.widget, Qt.Key.Key_Down)
    assert "hidden.0.weight" in plot.legend_label.text()
    before = steps.last - steps.first
    qtbot.keyClick(plot.widget, Qt.Key.Key_Plus)
    assert steps.last - steps.first == before / 2 and not steps.following
    qtbot.keyClick(window, Qt.Key.Key_Home)
    assert steps.following and steps.first == 0


def test_a_planned_change_is_told_as_such(qtbot: QtBot, make_window: Callable[..., Window]) -> None:
    window = make_window()
    window.simulator.load(window.simulator.preset.model_copy(update={"timeline": (Change(2, "optimizer.lr", 0.5),)}))
    press(qtbot, window.top.play)
    qtbot.waitUntil(lambda: window.simulator.run.over, timeout=LONG)
    qtbot.waitUntil(lambda: "set to 0.5 by the timeline" in window.knobs.rows["optimizer.lr"].note.text(), timeout=LONG)


def test_the_newest_part_of_the_diagnosis_is_in_view_and_nothing_above_is_cut(qtbot: QtBot) -> None:
    panel = DiagnosisPanel()
    qtbot.addWidget(panel)
    panel.resize(320, 260)
    panel.show()
    column, texts = panel.findings.layout(), [QLabel(f"{place}\n\n\n\n") for place in range(9)]
    assert isinstance(column, QVBoxLayout)
    for text in texts:
        column.insertWidget(column.count() - 1, text)
    bar, room = panel.area.verticalScrollBar(), panel.area.viewport().height()

    def inside(text: QLabel) -> bool:
        return bar.value() <= text.y() and text.y() + text.height() <= bar.value() + room

    for place in (5, 8, 3, 0):
        panel.bring_into_view(texts[place])
        qtbot.waitUntil(lambda place=place: bar.maximum() > 0 and inside(texts[place]), timeout=LONG)
        at_the_end = bar.value() == bar.maximum()
        assert at_the_end or not any(text.y() < bar.value() < text.y() + text.height() for text in texts), place
    items = [each for each in gc.get_referents(column) if isinstance(each, QWidgetItem)]
    assert not items  # PySide would keep them when they are gone, and crash when a widget at their address goes


def test_a_page_that_is_shown_right_after_a_preset_was_opened_stays(window: Window) -> None:
    window.controls.open_preset("rate-too-high")
    assert window.side.page == "lesson"
    window.columns.show_page("runs")
    window.refresh(whole=True)
    assert window.side.page == "runs"


def test_a_run_that_breaks_turns_from_a_lesson_that_nobody_does(
    qtbot: QtBot, make_window: Callable[..., Window]
) -> None:
    window = make_window(**BROKEN)
    window.controls.open_preset("rate-too-high")
    window.refresh(whole=True)
    tabs = window.side.tabs.buttons
    assert window.side.page == "lesson" and tabs["lesson"].sign and "not done" in tabs["lesson"].accessibleName()
    places = [tab.geometry() for tab in tabs.values()]
    window.controls.set_knob("optimizer.lr", 1e6)
    press(qtbot, window.top.play)
    qtbot.waitUntil(lambda: window.simulator.run.over, timeout=LONG)
    qtbot.waitUntil(lambda: window.findings.state.try_fixes.isVisible(), timeout=LONG)
    assert window.side.page == "diagnosis" and not tabs["diagnosis"].sign
    assert [tab.geometry() for tab in tabs.values()] == places


def test_a_number_is_written_short_and_never_another(window: Window) -> None:
    editor = window.knobs.rows["problem.input_scale"].editor
    for text in ("65536", "0.2", "1e-8", "1e30", "0.1234567890123"):
        editor.set_value(float(text))
        assert editor.head.text() == text


def test_the_sides_keep_their_widths_when_the_window_grows(qtbot: QtBot, window: Window) -> None:
    left, middle, right = window.columns.sizes()
    window.resize(window.width() + 300, window.height())
    qtbot.waitUntil(lambda: sum(window.columns.sizes()) > left + middle + right, timeout=LONG)
    assert (window.columns.sizes()[0], window.columns.sizes()[2]) == (left, right)


def test_what_is_typed_before_a_window_can_answer_goes_nowhere(qtbot: QtBot) -> None:
    class Simple(QLineEdit):
        pressed = 0

        def mousePressEvent(self, event: QMouseEvent) -> None:
            self.pressed += 1

    field, done = Simple(), []
    qtbot.addWidget(field)
    after_first_paint(field, lambda: done.append(1))
    qtbot.keyClicks(field, "abc")
    qtbot.mouseClick(field, Qt.MouseButton.LeftButton)
    assert not done and field.text() == "" and not field.pressed
    field.show()
    qtbot.waitUntil(lambda: bool(done), timeout=LONG)
    qtbot.keyClicks(field, "abc")
    qtbot.mouseClick(field, Qt.MouseButton.LeftButton)
    qtbot.wait(20)
    assert done == [1] and field.text() == "abc" and field.pressed == 1


@pytest.mark.parametrize("closed", [False, True])
def test_a_window_that_nobody_sees_is_made_whole_unless_it_was_closed(
    qtbot: QtBot, closed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(first_paint, "UNSEEN", 50)
    widget, done = QWidget(), []
    qtbot.addWidget(widget)
    monkeypatch.setattr(widget, "isVisible", lambda: not closed)
    after_first_paint(widget, lambda: done.append(1))
    if closed:
        qtbot.wait(150)
    else:
        qtbot.waitUntil(lambda: bool(done), timeout=LONG)
    assert done == ([] if closed else [1])


def test_knobs_that_are_shown_again_are_as_wide_as_they_were(qtbot: QtBot, window: Window) -> None:
    window.resize(1440, 900)
    window.show()
    before = window.columns.sizes()[0]
    window.columns.toggle_knobs()
    window.columns.show_page("code")
    window.columns.show_page("diagnosis")
    window.columns.toggle_knobs()
    qtbot.waitUntil(lambda: window.columns.sizes()[0] > 0, timeout=LONG)
    assert window.columns.sizes()[0] == before > LEAST[0]


def test_text_of_twice_the_size_has_room(qtbot: QtBot, window: Window) -> None:
    window.resize(1440, 900)
    theme.set_zoom(2.0)
    assert theme.zoom == 2.0
    qtbot.waitUntil(lambda: theme.is_settled and not window.knobs.isVisible())
    assert window.side.x() + window.side.width() <= window.width()
    assert window.plots.width() > window.width() / 2
    assert window.top.pill.width() > window.top.pill.fontMetrics().horizontalAdvance("Ready: press Run")
    window.commands.commands["knobs"].call()
    assert window.knobs.isVisible() and not window.side.isVisible()
    window.commands.commands["page_diagnosis"].call()
    assert window.side.isVisible() and not window.knobs.isVisible()
    theme.set_zoom(1.0)
    qtbot.waitUntil(lambda: theme.is_settled and window.knobs.isVisible())
