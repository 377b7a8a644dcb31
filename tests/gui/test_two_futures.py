"""Two futures: when a run diverges, fixes are tried by themselves, the best one trains on beside it, and can be
taken."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from PySide6.QtCore import QSettings, Qt
from pytestqt.qtbot import QtBot
from waiting import ENDLESS, LONG

from gradstudio.core.lesson import Choice, LessonStep
from gradstudio.gui.drawing.overlay import FUTURE
from gradstudio.gui.window import Window
from gradstudio.session.course.lesson_progress import Progress

pytestmark = pytest.mark.shares_window

# As the preset log-of-zero: it breaks within 60 steps, and takes a live fix as well as one that acts on restart.
LOG_OF_ZERO = {
    "optimizer__kind": "adam", "optimizer__lr": 0.01, "model__width": 64, "model__depth": 2, "problem__batch_size": 64,
    "loss__kind": "naive_log", "run__steps": 200,
}  # fmt: skip


@pytest.fixture(autouse=True)
def fixes_are_tried_by_themselves() -> None:
    """As at a first start."""
    QSettings().clear()


def diverged(qtbot: QtBot, window: Window) -> Window:
    window.controls.run_or_pause()
    qtbot.waitUntil(lambda: window.simulator.run.over and bool(window.simulator.run.environment), timeout=LONG)
    assert window.simulator.run.status == "nonfinite"
    return window


def test_the_best_fix_trains_on_beside_the_run_and_is_taken_with_one_click(
    qtbot: QtBot, make_window: Callable[..., Window]
) -> None:
    window = diverged(qtbot, make_window(**LOG_OF_ZERO))
    tried, overlays = window.simulator.run, window.plots.overlays
    qtbot.waitUntil(lambda: FUTURE in overlays.places and overlays.places[FUTURE].length == 200, timeout=LONG)
    trials, drawn = window.fixes.trials, overlays.places[FUTURE]
    assert trials is not None and trials.best is not None and trials.best.remedy == "loss.eps=1e-7"
    assert window.simulator.run is tried and len(tried.history) < 200  # nothing was done to it
    first = int(drawn.columns["loss"][0][0])
    since = next(
        step for step in range(first, 200) if step >= len(tried.history)
        or drawn.run.history.value("loss", step) != tried.history.value("loss", step)
    )  # fmt: skip
    assert first == trials.step and drawn.title == f"loss.eps = 1e-7, differs since step {since}"
    window.refresh(whole=True)
    assert window.findings.fixes.progress.text().endswith(f"Over the plots: {drawn.title}")
    row = window.findings.fixes.rows[0]
    assert row.trial is trials.best and row.accuracy.text().endswith("%") and window.findings.fixes.isVisible()
    qtbot.mouseClick(row.apply, Qt.MouseButton.LeftButton)
    run = window.simulator.run
    qtbot.waitUntil(lambda: run.over, timeout=LONG)
    window.refresh(whole=True)
    assert run.parent == tried.id and run.status == "finished" and FUTURE not in overlays.places
    assert np.array_equal(run.history.column("loss"), drawn.run.history.column("loss"))  # it was this future


def test_no_future_is_drawn_where_no_fix_learns(qtbot: QtBot, make_window: Callable[..., Window]) -> None:
    window = diverged(qtbot, make_window(**LOG_OF_ZERO))
    qtbot.waitUntil(lambda: window.fixes.future is not None and window.fixes.trials.over, timeout=LONG)
    trials = window.fixes.trials
    assert trials is not None
    for trial in trials.trials:
        trial.useless = True  # as a fix that guesses is judged
    progress = window.findings.fixes.progress
    qtbot.waitUntil(lambda: progress.text().startswith("No tried fix learns, of "), timeout=LONG)
    window.refresh(whole=True)
    assert window.fixes.future is None and FUTURE not in window.plots.overlays.places


@pytest.mark.parametrize("leave", ["rewind", "close"])
def test_they_end_where_a_person_goes_on_and_where_the_window_closes(
    qtbot: QtBot, make_window: Callable[..., Window], leave: str
) -> None:
    window = diverged(qtbot, make_window(**LOG_OF_ZERO | {"run__steps": ENDLESS}))
    qtbot.waitUntil(lambda: window.fixes._best is not None, timeout=LONG)
    future = window.fixes._best
    assert future is not None
    qtbot.waitUntil(lambda: len(future.record.history) > 200, timeout=LONG)
    assert future.is_alive()
    window.controls.rewind(0) if leave == "rewind" else window.close()
    qtbot.waitUntil(lambda: not future.is_alive(), timeout=LONG)
    assert not future.failure and future.record.status == "stopped"


def test_they_are_switched_off_and_on_in_the_menu(qtbot: QtBot, make_window: Callable[..., Window]) -> None:
    window = make_window(**LOG_OF_ZERO)
    command = window.commands.commands["two_futures"]
    assert command.checked is not None and command.checked()
    command.call()
    assert not command.checked() and QSettings().value("fixes/two_futures") in (False, "false")
    diverged(qtbot, window)
    qtbot.waitUntil(window.findings.state.try_fixes.isVisible, timeout=LONG)  # they wait behind the button
    assert window.fixes.trials is None and FUTURE not in window.plots.overlays.places
    command.call()
    qtbot.waitUntil(lambda: window.fixes.trials is not None, timeout=LONG)


def test_they_wait_behind_a_button_while_a_lesson_asks_what_a_fix_does(
    qtbot: QtBot, make_window: Callable[..., Window]
) -> None:
    window = make_window(**LOG_OF_ZERO)
    choices = [Choice(text="It learns.", outcome="finished"), Choice(text="It diverges.", outcome="nonfinite")]
    question = LessonStep(text="And with an eps?", knobs=["loss.eps=1e-7"], predict=choices)
    window.controls.load(window.simulator.preset.model_copy(update={"lesson": [question]}))
    diverged(qtbot, window)
    qtbot.waitUntil(window.findings.state.try_fixes.isVisible, timeout=LONG)
    assert window.fixes.trials is None
    lesson: Progress | None = window.lesson.progress
    assert lesson is not None and lesson.still_asks(window.simulator.run)
    lesson.skip(0, window.simulator.run)
    qtbot.waitUntil(lambda: window.fixes.trials is not None, timeout=LONG)


def test_a_run_that_is_opened_is_not_tried_by_itself(qtbot: QtBot, make_window: Callable[..., Window]) -> None:
    window = diverged(qtbot, make_window(**LOG_OF_ZERO))
    qtbot.waitUntil(lambda: window.fixes.trials is not None, timeout=LONG)
    before, stored = window.fixes.trials, window.simulator.run
    window.controls.show_stored(stored)
    window.fixes._begun_for = (None, 0)
    window.refresh(whole=True)
    assert window.fixes.trials in (before, None) and not window.simulator.trained_here
