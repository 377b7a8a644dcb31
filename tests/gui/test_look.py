"""Looking at a step without rewinding: by mouse on the timeline, by keys, played again; every panel as of that step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
from PySide6.QtCore import QPoint, QPointF, Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot
from waiting import ENDLESS, LONG, hold

from gradstudio.gui.plots.playback import SLOW, SLOWLY
from gradstudio.gui.window import Window
from gradstudio.session.record.watched_script import WatchedScript

pytestmark = pytest.mark.shares_window

LEFT = Qt.MouseButton.LeftButton
BROKEN = {"model__activation": "leaky_relu", "model__depth": 3, "optimizer__lr": 0.05, "run__steps": 200}


def place(window: Window, step: float) -> QPoint:
    """Where a step is on the timeline."""
    timeline = window.plots.timeline
    return timeline.widget.mapFromScene(timeline.box.mapViewToScene(QPointF(step, 0.5)))


def click(window: Window, step: float) -> None:
    QTest.mouseClick(window.plots.timeline.widget.viewport(), LEFT, pos=place(window, step))
    window.refresh(whole=True)


def key(window: Window, name: Qt.Key) -> int | None:
    QTest.keyClick(QApplication.focusWidget() or window, name)
    window.refresh(whole=True)
    return window.looked.step


@pytest.fixture
def ran(qtbot: QtBot, window: Window) -> Window:
    """A window whose run of 40 steps is over, with a change of the rate at step 21."""
    hold(window.simulator, 21, partial(qtbot.waitUntil, timeout=LONG))
    window.controls.set_knob("optimizer.lr", 0.25)
    window.controls.run_or_pause()
    qtbot.waitUntil(lambda: window.simulator.run.over, timeout=LONG)
    window.refresh(whole=True)
    return window


@pytest.fixture
def diverged(qtbot: QtBot, make_window: Callable[..., Window]) -> Window:
    """A window whose run has diverged after a change at step 21."""
    window = make_window(**BROKEN)
    hold(window.simulator, 21, partial(qtbot.waitUntil, timeout=LONG))
    window.controls.set_knob("optimizer.lr", 1e6)
    window.controls.run_or_pause()
    qtbot.waitUntil(lambda: window.simulator.run.over, timeout=LONG)
    window.refresh(whole=True)
    return window


def test_there_is_nothing_to_look_at_before_the_first_step(window: Window) -> None:
    window.looked.follow(window.simulator.run)
    window.looked.move(-1)
    window.refresh(whole=True)
    assert window.looked.step is None


def test_every_panel_shows_the_step_that_is_clicked_and_nothing_is_rewound(qtbot: QtBot, ran: Window) -> None:
    run, plots, row = ran.simulator.run, ran.plots, ran.knobs.rows["optimizer.lr"]
    assert row.editor.value == 0.25 and row.isEnabled()
    click(ran, 12)
    assert ran.looked.step == 12 and ran.simulator.run is run and len(run.history) == 40
    for plot in plots.plots:
        assert plot.viewed_step_line.step == 12 and plot.cursor_line.value() == 12
        assert "step 12" in plot.legend_label.text(), plot.title
    assert ran.figures.figures["step"].value == "12"
    assert ran.top.pill.accessibleName() == "Looking at step 12 of 40"
    assert "Looking at step 12" in plots.timeline.legend()
    assert row.editor.value == 0.1 and not row.isEnabledTo(ran.knobs)
    assert ran.knobs.instead.isVisible() and "step 12" in ran.knobs.instead.text()
    assert ran.findings.state.when.text() == "step 12" and not ran.findings.state.back.isVisible()
    click(ran, 30)
    assert ran.looked.step == 30 and row.editor.value == 0.25
    assert key(ran, Qt.Key.Key_End) is None
    assert ran.figures.figures["step"].value == "39" and row.isEnabledTo(ran.knobs)
    assert not ran.knobs.instead.isVisible() and plots.loss.viewed_step_line.step is None
    assert ran.simulator.run is run and run.status == "finished" and not plots.timeline.bar.now.isVisible()


def test_keys_look_a_step_back_and_on_and_at_now(qtbot: QtBot, ran: Window) -> None:
    ran.plots.loss.widget.setFocus()
    assert [key(ran, Qt.Key.Key_Left) for _ in range(3)] == [38, 37, 36]
    assert key(ran, Qt.Key.Key_Right) == 37 and key(ran, Qt.Key.Key_Escape) is None
    QTest.keyClick(ran, Qt.Key.Key_Left)  # from wherever the key is not taken
    assert ran.looked.step == 38
    QTest.keyClick(ran, Qt.Key.Key_Right)
    assert ran.looked.step is None


def test_rewind_here_rewinds_to_the_step_that_is_looked_at(qtbot: QtBot, ran: Window) -> None:
    bar = ran.plots.timeline.bar
    assert not bar.rewind.isVisible()
    stood = bar.play.mapToGlobal(QPoint())
    click(ran, 15)
    qtbot.waitUntil(lambda: bar.rewind.isVisible() and bar.play.x() > bar.now.x() > bar.rewind.x())
    assert bar.play.mapToGlobal(QPoint()) == stood  # where a second click pauses
    qtbot.mouseClick(bar.rewind, LEFT)
    run = ran.simulator.run
    qtbot.waitUntil(lambda: run.status == "paused" and len(run.history) == 15, timeout=LONG)
    ran.refresh(whole=True)
    assert run.parent and ran.looked.step is None and not bar.rewind.isVisible()
    click(ran, 3)
    QTest.keyClick(ran, Qt.Key.Key_H, Qt.KeyboardModifier.ControlModifier | Qt.KeyboardModifier.ShiftModifier)
    qtbot.waitUntil(lambda: len(ran.simulator.run.history) == 3, timeout=LONG)


def test_a_changed_knob_ends_the_look(ran: Window) -> None:
    click(ran, 10)
    ran.controls.set_knob("optimizer.lr", 0.5)
    ran.refresh(whole=True)
    assert ran.looked.step is None and ran.knobs.rows["optimizer.lr"].editor.value == 0.5


def test_a_run_that_trains_on_does_not_move_the_look(qtbot: QtBot, make_window: Callable[..., Window]) -> None:
    window = make_window(run__steps=ENDLESS)
    hold(window.simulator, 40, partial(qtbot.waitUntil, timeout=LONG))
    window.refresh(whole=True)
    click(window, 10)
    window.controls.run_or_pause()
    run = window.simulator.run
    qtbot.waitUntil(lambda: len(run.history) > 200, timeout=LONG)
    window.refresh(whole=True)
    assert window.looked.step == 10 and window.figures.figures["step"].value == "10"
    assert window.top.pill.accessibleName() == f"Looking at step 10 of {ENDLESS:,}; training goes on"
    assert window.top.play.text() == "Pause"  # the buttons are about what happens now


def test_what_was_found_later_is_not_told_before(qtbot: QtBot, diverged: Window) -> None:
    broke = diverged.simulator.run.first_nonfinite_step
    assert broke is not None and diverged.findings.cards and diverged.findings.provenance.isVisible()
    click(diverged, 20)
    qtbot.waitUntil(lambda: diverged.past.complete, timeout=LONG)
    diverged.refresh(whole=True)
    told = [card.title.text() for card in diverged.findings.cards]
    assert not any("NaN" in text for text in told) and not diverged.findings.provenance.isVisible()
    assert "Diverged" not in diverged.findings.state.title.text()
    assert diverged.figures.figures["non-finite"].value == "0"
    key(diverged, Qt.Key.Key_End)
    assert "Diverged" in diverged.findings.state.title.text() and diverged.findings.provenance.isVisible()


def test_a_run_is_played_again_to_its_end_and_slowly_before_a_nan(qtbot: QtBot, diverged: Window) -> None:
    replay, run, broke = (
        diverged.plots.timeline.replay,
        diverged.simulator.run,
        diverged.simulator.run.first_nonfinite_step,
    )
    assert broke is not None and broke > SLOW + 2
    for _ in range(2):
        QTest.keyClick(diverged, Qt.Key.Key_F6, Qt.KeyboardModifier.ShiftModifier)
    assert replay.speed == 20 and diverged.plots.timeline.bar.speed.currentText() == "20x"
    start = broke - SLOW
    assert replay._after(0.0, 1.0) == start + SLOWLY  # no leap over the slow steps
    assert replay._after(start + 1.0, 1.0) == start + 1.0 + SLOWLY
    seen: list[int | None] = []
    diverged.looked.changed.connect(lambda: seen.append(diverged.looked.step))
    qtbot.mouseClick(diverged.plots.timeline.bar.play, LEFT)
    assert replay.playing and diverged.looked.step == 0
    qtbot.waitUntil(lambda: diverged.looked.step == start, timeout=LONG)
    diverged.looked.look_at(broke - 1)
    qtbot.waitUntil(lambda: not replay.playing, timeout=LONG)
    assert seen[0] == 0 and seen[-1] is None and diverged.looked.step is None
    assert diverged.simulator.run is run


def test_a_watched_run_can_be_looked_at_and_not_rewound(qtbot: QtBot, ran: Window) -> None:
    watched = replace(
        ran.simulator.run, id="watched", watched=WatchedScript("train.py", (), "ab" * 32, 1, (("optimizer", "SGD"),))
    )
    ran.controls.show_stored(watched)
    ran.refresh(whole=True)
    click(ran, 7)
    bar = ran.plots.timeline.bar
    assert ran.looked.step == 7 and ran.figures.figures["step"].value == "7"
    assert bar.now.isVisible() and not bar.rewind.isVisible()
    qtbot.mouseClick(bar.now, LEFT)
    assert ran.looked.step is None


def test_the_page_of_a_layer_looks_into_the_step(qtbot: QtBot, ran: Window) -> None:
    ran.plots.show_layer(0)
    ran.refresh(whole=True)
    click(ran, 9)
    ran.layer.refresh()
    ran.layer.refresh()
    histograms = ran.plots.layer_page.histograms
    assert histograms.step.value() == 9
    qtbot.waitUntil(lambda: ran.layer._sample is not None and ran.layer._sample.step == 9, timeout=LONG)
