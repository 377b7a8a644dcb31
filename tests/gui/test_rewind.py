"""Going back in the window: by hand on the timeline, by a click on a plot, by keys; twins; and what is told of a
break."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from PySide6.QtCore import QPoint, QPointF, QSettings, Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QInputDialog, QLineEdit, QMenu, QPushButton, QWidget
from pytestqt.qtbot import QtBot
from waiting import LONG, hold

from gradstudio.core import ranks_allowed
from gradstudio.core.text import number
from gradstudio.gui.branches import rewind_dialogs
from gradstudio.gui.drawing.overlay import PARENT, TWIN
from gradstudio.gui.knobs.twins_dialog import TwinsDialog
from gradstudio.gui.plots.step_plot import StepPlot
from gradstudio.gui.window import Window
from gradstudio.session.running.worker_commands import UNLIMITED
from gradstudio.session.words.knob_hints import advised_max_norm, share_over

pytestmark = pytest.mark.shares_window

LEFT = Qt.MouseButton.LeftButton
BROKEN = {"optimizer__lr": 1e6, "model__activation": "leaky_relu", "model__depth": 3}


@pytest.fixture
def ran(qtbot: QtBot, window: Window) -> Window:
    """A window whose run of 40 steps is over."""
    window.simulator.set_speed(float("inf"))
    window.controls.run_or_pause()
    qtbot.waitUntil(lambda: window.simulator.run.over, timeout=LONG)
    window.refresh()
    return window


def pixel(plot: StepPlot, step: float) -> QPoint:
    """Where a step is, in the middle of the plot's view."""
    place = plot.box.mapViewToScene(QPointF(step, sum(plot.box.viewRange()[1]) / 2))
    return plot.widget.mapFromScene(place)


def stands(window: Window, step: int) -> Callable[[], bool]:
    run = window.simulator.run
    return lambda: (
        window.simulator.run.status == "paused"
        and len(window.simulator.run.history) == step
        and window.simulator.run is run
    )


def drag(view: QWidget, start: QPoint, stop: QPoint) -> None:
    port = view.viewport()
    QTest.mousePress(port, LEFT, pos=start)
    for share in np.linspace(0, 1, 8):
        QTest.mouseMove(port, start + (stop - start) * float(share))
        QTest.qWait(5)
    QTest.mouseRelease(port, LEFT, pos=stop)


def test_dragging_the_timeline_looks_and_rewind_here_takes_the_run_back(qtbot: QtBot, ran: Window) -> None:
    timeline, parent = ran.plots.timeline, ran.simulator.run
    drag(timeline.widget, pixel(timeline, 40), pixel(timeline, 25))
    assert ran.simulator.run is parent and ran.looked.step == 25
    qtbot.mouseClick(timeline.bar.rewind, LEFT)
    run = ran.simulator.run
    assert run is not parent and run.parent == parent.id and run.parent_step == 25
    qtbot.waitUntil(stands(ran, 25), timeout=LONG)
    ran.refresh(whole=True)
    assert ran.top.pill.accessibleName() == "Rewound to step 25" and ran.top.play.isEnabled()
    assert ran.plots.loss.raw.envelope.count == 25
    assert ran.plots.overlays.places[PARENT].columns["loss"][0].tolist() == list(range(25, 40))
    assert ran.plots.timeline.reach == 40
    ran.controls.set_knob("optimizer.lr", 0.01)
    ran.controls.run_or_pause()
    qtbot.waitUntil(lambda: ran.simulator.run.over, timeout=LONG)
    assert ran.simulator.run.status == "finished" and [(change.step, change.value) for change in run.timeline] == [
        (25, 0.01)
    ]
    assert np.array_equal(run.history.column("loss", 0, 25), parent.history.column("loss", 0, 25))
    assert run.history.column("loss")[26] != parent.history.column("loss")[26]


def test_a_click_on_any_plot_offers_to_go_back_there(qtbot: QtBot, ran: Window) -> None:
    for plot in ran.plots.plots:
        if plot in (ran.plots.layers, ran.plots.timeline):
            continue  # a click there opens the page of a layer, or looks at a step
        qtbot.mouseMove(plot.widget.viewport(), pixel(plot, 12))
        qtbot.mouseClick(plot.widget.viewport(), LEFT, pos=pixel(plot, 12))
        assert ran.plots.rewind.isVisible() and ran.plots.rewind.text() == "Rewind to step 12", plot.title
        qtbot.keyClick(ran.plots.rewind, Qt.Key.Key_Escape)
        assert not ran.plots.rewind.isVisible()
    qtbot.mouseClick(ran.plots.loss.widget.viewport(), LEFT, pos=pixel(ran.plots.loss, 12))
    qtbot.mouseClick(ran.plots.rewind, LEFT)
    qtbot.waitUntil(stands(ran, 12), timeout=LONG)
    qtbot.mouseClick(
        ran.plots.loss.widget.viewport(), LEFT, pos=pixel(ran.plots.loss, 30)
    )  # on the curve of the parent: forth again
    qtbot.mouseClick(ran.plots.rewind, LEFT)
    qtbot.waitUntil(stands(ran, 30), timeout=LONG)


def test_nothing_is_offered_any_more_where_the_steps_have_moved(qtbot: QtBot, ran: Window) -> None:
    for move in (lambda: ran.plots.steps.zoom(5, 20), ran.plots.fit):
        qtbot.mouseClick(ran.plots.loss.widget.viewport(), LEFT, pos=pixel(ran.plots.loss, 12))
        assert ran.plots.rewind.isVisible()
        move()
        assert not ran.plots.rewind.isVisible()


def test_a_click_where_no_step_was_made_offers_nothing(qtbot: QtBot, ran: Window) -> None:
    qtbot.mouseClick(ran.plots.loss.widget.viewport(), LEFT, pos=pixel(ran.plots.loss, 48))
    assert not ran.plots.rewind.isVisible()


def test_the_menu_of_a_plot_goes_back_to_the_step_under_the_pointer(qtbot: QtBot, ran: Window) -> None:
    ran.plots.step_cursor.move(7)
    ran.plots.loss.customContextMenuRequested.emit(QPoint(5, 5))
    [menu] = [menu for menu in ran.plots.loss.findChildren(QMenu) if menu.isVisible()]
    first = menu.actions()[0]
    assert first.text() == "Rewind to step 7"
    first.trigger()
    menu.close()
    qtbot.waitUntil(stands(ran, 7), timeout=LONG)


def test_the_keys_ask_for_a_step(qtbot: QtBot, ran: Window) -> None:
    qtbot.keyClick(ran, Qt.Key.Key_G, Qt.KeyboardModifier.ControlModifier)
    [dialog] = ran.findChildren(QInputDialog)
    assert (dialog.intMinimum(), dialog.intMaximum(), dialog.intValue()) == (0, 40, 30)
    dialog.setIntValue(3)
    dialog.accept()
    qtbot.waitUntil(stands(ran, 3), timeout=LONG)


def test_before_the_first_run_there_is_nothing_to_go_back_to(qtbot: QtBot, window: Window) -> None:
    assert not window.top.rewind.isEnabled()
    rewind_dialogs.ask_step(window.context, 0, None)
    assert not window.findChildren(QInputDialog) and "no step to rewind to" in window.message.text.text()


def test_a_run_that_broke_offers_its_last_healthy_step_by_itself(
    qtbot: QtBot, make_window: Callable[..., Window]
) -> None:
    window = make_window(**BROKEN | {"optimizer__lr": 0.05}, run__steps=200)
    hold(window.simulator, 21, partial(qtbot.waitUntil, timeout=LONG))
    window.controls.set_knob("optimizer.lr", 1e6)
    window.controls.run_or_pause()
    qtbot.waitUntil(lambda: window.simulator.run.over, timeout=LONG)
    run = window.simulator.run
    assert run.first_nonfinite_step is not None and run.provenance is not None
    [changed] = [change.step for change in run.timeline]
    window.refresh(whole=True)
    healthy = window.controls.possible.healthy_step
    assert healthy is not None and changed <= healthy + 1 <= run.first_nonfinite_step
    assert window.top.rewind.text() == "Rewind without lr = 1e6" and window.top.rewind.property("role") == "primary"
    assert not window.top.play.isEnabled() and "diverged" in window.top.play.toolTip()
    assert window.findings.state.back.isVisible() and window.findings.provenance.isVisible()
    assert f"of step {run.provenance.step:,}" in window.findings.provenance.text.text()
    assert "optimizer.lr became" in window.findings.provenance.led_up.text()
    qtbot.mouseClick(window.findings.provenance.more, LEFT)
    assert (
        window.findings.provenance.chain.isVisible()
        and run.provenance.chain[0].name.removeprefix("aten.") in window.findings.provenance.chain.text()
    )
    qtbot.mouseClick(window.findings.state.back, LEFT)
    qtbot.waitUntil(stands(window, healthy), timeout=LONG)
    window.refresh(whole=True)
    assert not window.findings.provenance.isVisible() and window.simulator.run.first_nonfinite_step is None
    if changed == healthy:  # the change is in force again, which the form and the message bar say
        assert window.knobs.rows["optimizer.lr"].note.text() == "set at this step; 0.05 before it"
        assert window.message.message == "optimizer.lr = 1e6 was set at this step."
        qtbot.mouseClick(window.message.action, LEFT)
        qtbot.waitUntil(lambda: window.simulator.run.in_force.optimizer.lr == 0.05, timeout=LONG)


def test_the_blue_button_goes_back_without_the_change_that_broke_the_run(
    qtbot: QtBot, make_window: Callable[..., Window]
) -> None:
    window = make_window(**BROKEN | {"optimizer__lr": 0.05}, run__steps=60)
    hold(window.simulator, 21, partial(qtbot.waitUntil, timeout=LONG))
    window.controls.set_knob("optimizer.lr", 1e6)
    window.controls.run_or_pause()
    qtbot.waitUntil(lambda: window.simulator.run.over, timeout=LONG)
    broken = window.simulator.run
    window.refresh(whole=True)
    qtbot.mouseClick(window.top.rewind, LEFT)
    qtbot.waitUntil(stands(window, 21), timeout=LONG)
    window.refresh(whole=True)
    assert window.simulator.requested.optimizer.lr == 0.05 and window.top.play.text() == "Run"
    qtbot.mouseClick(window.top.play, LEFT)
    qtbot.waitUntil(lambda: window.simulator.run.over, timeout=LONG)
    window.refresh(whole=True)
    assert window.simulator.run.status == "finished" and window.simulator.run.parent == broken.id
    assert window.simulator.run.timeline == [], "as if the rate had never been changed"
    assert window.top.play.property("role") == "primary"


def test_a_run_that_is_over_goes_on_with_the_blue_button(qtbot: QtBot, ran: Window) -> None:
    first = ran.simulator.run
    ran.refresh(whole=True)
    assert ran.top.play.text() == "40 more steps" and ran.top.play.property("role") == "primary"
    qtbot.mouseClick(ran.top.play, LEFT)
    qtbot.waitUntil(lambda: ran.simulator.run is not first and ran.simulator.run.over, timeout=LONG)
    assert len(ran.simulator.run.history) == 80 and ran.simulator.run.parent == first.id


def test_a_change_on_a_run_that_stands_is_taken_back_by_ctrl_z(qtbot: QtBot, ran: Window) -> None:
    ran.controls.rewind(20)
    qtbot.waitUntil(stands(ran, 20), timeout=LONG)
    run = ran.simulator.run
    before = run.in_force.optimizer.lr
    ran.controls.set_knob("optimizer.lr", 0.5)
    qtbot.waitUntil(lambda: run.in_force.optimizer.lr == 0.5, timeout=LONG)
    assert [change.knob for change in run.timeline] == ["optimizer.lr"]
    qtbot.keyClick(ran, Qt.Key.Key_Z, Qt.KeyboardModifier.ControlModifier)
    qtbot.waitUntil(lambda: run.in_force.optimizer.lr == before, timeout=LONG)
    assert run.timeline == [] and "Undone: optimizer.lr" in ran.message.text.text()
    qtbot.keyClick(ran, Qt.Key.Key_Z, Qt.KeyboardModifier.ControlModifier)
    assert "no knob change left" in ran.message.text.text()


def test_the_next_batches_can_be_skipped(qtbot: QtBot, ran: Window) -> None:
    ran.controls.rewind(20)
    qtbot.waitUntil(stands(ran, 20), timeout=LONG)
    rewind_dialogs.ask_skip(ran.context)
    [dialog] = ran.findChildren(QInputDialog)
    dialog.setIntValue(3)
    dialog.accept()
    qtbot.waitUntil(lambda: ran.simulator.run.in_force.problem.skip_batches == 3, timeout=LONG)
    ran.controls.run_or_pause()
    qtbot.waitUntil(lambda: ran.simulator.run.over, timeout=LONG)
    assert ran.simulator.run.what_changed == "problem.skip_batches = 3"


def test_how_much_memory_snapshots_take_is_a_setting_and_shown(qtbot: QtBot, ran: Window) -> None:
    menu = QMenu()
    rewind_dialogs.fill_budgets(ran.simulator, menu)
    [small] = [action for action in menu.actions() if action.text() == "64 MB"]
    small.trigger()
    assert ran.simulator.snapshots.budget == 64 << 20 and rewind_dialogs.budget() == 64 << 20
    ran.refresh()
    assert "of 64 MB" in ran.plots.timeline.legend()
    assert QSettings().value("snapshots/megabytes") in (64, "64")


def test_twins_go_in_lockstep_and_their_difference_is_drawn(qtbot: QtBot, window: Window) -> None:
    window.simulator.set_speed(float("inf"))
    dialog = TwinsDialog(window.context)
    dialog.knob.setCurrentText("optimizer.lr")
    assert dialog.editor is not None and dialog.editor.value == 1.0 and dialog.start.isEnabled()
    line = dialog.editor.head
    assert isinstance(line, QLineEdit)
    line.setText("0.1")
    line.setModified(True)
    line.editingFinished.emit()
    dialog.accept()
    assert "is 0.1 already" in dialog.problem.text() and "keeps 0.1" in dialog.now.text()
    assert not dialog.start.isEnabled() and "already" in dialog.start.accessibleDescription()
    line.setText("fast")
    line.setModified(True)
    line.editingFinished.emit()
    dialog.accept()
    assert "allowed" in dialog.problem.text()
    line.clear()
    qtbot.keyClicks(line, "1")
    assert dialog.start.isEnabled() and not dialog.problem.text()  # what is typed is checked once it is whole
    line.setText("1/20")  # as anywhere a number is typed
    line.setModified(True)
    line.editingFinished.emit()
    dialog.accept()
    twins = window.simulator.twins
    assert twins is not None and not dialog.isVisible()
    qtbot.waitUntil(lambda: twins.one.over and twins.other.over, timeout=LONG)
    assert len(twins.one.history) == len(twins.other.history) == 40
    window.refresh()
    assert twins.look() == 1  # the first step's loss and gradient come before any update
    plot = window.plots.difference
    assert plot.isVisible() and plot in window.plots.plots and plot.rows(twins.one) == 40
    assert np.array_equal(plot.loss.envelope.curve()[0][:1], [0.0]) and "first differ at step 1" in plot.legend()
    qtbot.waitUntil(lambda: window.refresh() or window.plots.overlays.places[TWIN].length == 40, timeout=LONG)
    assert plot.own_data().splitlines()[1] == "0,0.0,0.0"
    window.controls.restart()
    window.refresh()
    assert not plot.isVisible() and TWIN not in window.plots.overlays.places


def test_twins_begin_with_another_value_and_name_what_comes_with_it(window: Window) -> None:
    dialog = TwinsDialog(window.context)
    assert dialog.editor is not None and dialog.editor.value == "norm" and dialog.start.isEnabled()
    assert "keeps none. The twin has kind = norm, max_norm = 1." in dialog.now.text()
    segments = {button.property("choice"): button for button in dialog.findChildren(QPushButton)}
    segments["none"].click()
    assert not dialog.start.isEnabled() and "none already" in dialog.problem.text()
    segments["value"].click()
    assert dialog.start.isEnabled() and not dialog.problem.text() and "clip_value = 0.5" in dialog.now.text()
    for place in range(dialog.knob.count()):
        dialog.knob.setCurrentIndex(place)
        assert dialog.start.isEnabled() or "allowed" in dialog.problem.text(), dialog.knob.currentText()
    dialog.reject()


def test_a_limit_for_the_norm_is_advised_and_dragging_it_begins_to_clip(
    qtbot: QtBot, make_window: Callable[..., Window]
) -> None:
    window = make_window(run__steps=120)
    window.controls.run_or_pause()
    qtbot.waitUntil(lambda: window.simulator.run.over, timeout=LONG)
    window.refresh()
    plot, run = window.plots.gradient_norm, window.simulator.run
    assert not plot.limit.isVisible()  # no finding offers clipping
    limit = advised_max_norm(run)
    assert limit is not None
    plot.show_limit(limit, advised=True)
    share = number(100 * share_over(run, limit), 2)
    assert plot.limit.label.toPlainText() == f"max_norm\n{number(limit)}\nwould clip\n{share} %"
    plot.limit.setPos(-1.0)
    plot._on_drag()
    assert "max_norm\n0.1\nwould clip" in plot.limit.label.toPlainText()
    plot._release()
    clipping = window.simulator.requested.clipping
    assert (clipping.kind, clipping.max_norm) == ("norm", 0.1)
    window.refresh()
    assert plot.limit.label.toPlainText() == "max_norm\n0.1"


def test_a_run_that_was_stopped_goes_on_with_run_and_is_what_it_would_have_been(
    qtbot: QtBot, make_window: Callable[..., Window]
) -> None:
    window = make_window(run__steps=60)
    run = window.simulator.run
    hold(window.simulator, 16, partial(qtbot.waitUntil, timeout=LONG))
    window.controls.stop()
    qtbot.waitUntil(lambda: run.over, timeout=LONG)
    count = len(run.history)
    window.refresh()
    assert run.status == "stopped" and window.top.play.isEnabled()
    window.simulator.set_speed(UNLIMITED)
    window.controls.set_knob("optimizer.lr", 0.02)
    window.controls.run_or_pause()
    qtbot.waitUntil(lambda: run.status == "finished", timeout=LONG)
    assert window.simulator.run is run and len(run.history) == 60
    assert [(change.step, change.value) for change in run.timeline] == [(count, 0.02)]
    assert [event.kind for event in run.events if event.kind in ("stopped", "resumed", "finished")] == [
        "stopped",
        "resumed",
        "finished",
    ]


def test_rewinding_and_twins_are_greyed_on_several_ranks(ran: Window, monkeypatch: pytest.MonkeyPatch) -> None:
    top, commands = ran.top, ran.commands.commands
    assert top.rewind.isEnabled() and commands["rewind"].enabled() and commands["twins"].enabled()
    told = top.rewind.toolTip()
    monkeypatch.setattr(ranks_allowed, "several", lambda _: True)
    ran.simulator.set("optimizer.lr", 0.123)
    ran.refresh()
    assert not top.rewind.isEnabled() and "several ranks" in top.rewind.toolTip()
    assert not commands["rewind"].enabled() and not commands["twins"].enabled()
    monkeypatch.undo()
    ran.simulator.set("optimizer.lr", 0.1)
    ran.refresh()
    assert top.rewind.isEnabled() and top.rewind.toolTip() == told
