"""Trying fixes in the window: a button, rows that come in, the best applied; and nothing waits for it."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QColor
from PySide6.QtWidgets import QPushButton
from pytestqt.qtbot import QtBot
from waiting import ENDLESS, LONG

from gradstudio.core.history import COLUMNS, LAYER_METRICS, History
from gradstudio.gui.diagnosis.fixes_panel import FixRow, Sparkline, bounds
from gradstudio.gui.theme import theme
from gradstudio.gui.window import Window
from gradstudio.session.running import fix_trials
from gradstudio.session.running.fix_trials import Trials
from gradstudio.session.running.worker_commands import UNLIMITED

pytestmark = pytest.mark.shares_window

# As the preset log-of-zero: it breaks within 60 steps, and takes a live fix as well as one that acts on restart.
LOG_OF_ZERO = {
    "optimizer__kind": "adam", "optimizer__lr": 0.01, "model__width": 64, "model__depth": 2, "problem__batch_size": 64,
    "loss__kind": "naive_log", "run__steps": 250,
}  # fmt: skip
# A fix of it that holds makes as many steps as it is given.
LASTING = LOG_OF_ZERO | {"run__steps": ENDLESS}


def press(qtbot: QtBot, button: QPushButton) -> None:
    """Click a button once the window's next heartbeat has shown and enabled it."""
    qtbot.waitUntil(lambda: button.isVisible() and button.isEnabled(), timeout=LONG)
    qtbot.mouseClick(button, Qt.MouseButton.LeftButton)


@pytest.fixture
def broken(qtbot: QtBot, make_window: Callable[..., Window]) -> Callable[..., Window]:
    """A window whose run has broken, and that offers to try fixes."""

    def make(**values: object) -> Window:
        window = make_window(**values)
        window.simulator.set_speed(UNLIMITED)
        window.simulator.play()
        qtbot.waitUntil(lambda: window.simulator.run.over and window.findings.state.try_fixes.isVisible(), timeout=LONG)
        assert window.simulator.run.status == "nonfinite"
        return window

    return make


def tried(qtbot: QtBot, window: Window) -> Trials:
    press(qtbot, window.findings.state.try_fixes)
    trials = window.fixes.trials
    assert trials is not None and window.findings.fixes.isVisible()
    qtbot.waitUntil(lambda: trials.over and not window.findings.fixes.stop.isVisible(), timeout=LONG)
    return trials


@pytest.fixture
def endless(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fix that holds is tried until it is stopped."""
    monkeypatch.setattr(fix_trials, "HORIZON", ENDLESS)


def row(window: Window, remedy: str) -> FixRow:
    return next(row for row in window.findings.fixes.rows if row.trial.remedy == remedy)


def test_there_is_nothing_to_try_before_something_broke(qtbot: QtBot, window: Window) -> None:
    assert not window.findings.state.try_fixes.isVisible() and not window.findings.fixes.isVisible()
    window.simulator.play()
    qtbot.waitUntil(lambda: window.simulator.run.over, timeout=LONG)
    window.refresh()
    assert not window.findings.state.try_fixes.isVisible()
    window.fixes.begin()
    assert window.fixes.trials is None


def test_what_was_tried_is_told_best_first_with_its_curve(qtbot: QtBot, broken: Callable[..., Window]) -> None:
    window = broken(**LOG_OF_ZERO)
    trials, panel = tried(qtbot, window), window.findings.fixes
    broke = window.simulator.run.first_nonfinite_step
    assert panel.heading.text() == f"TWO FUTURES · from step {broke - 1}, same batches"
    assert [each.trial for each in panel.rows] == trials.best_first
    assert panel.rows[0].y() < panel.rows[1].y() < panel.rows[2].y()  # on the screen too
    live, restart, unchanged = row(window, "loss.eps=1e-7"), row(window, "loss.kind=auto"), row(window, "")
    assert (
        live.accessibleName().startswith("loss.eps = 1e-7: survives, learns · test accuracy ")
        and live.mark.text() == "✓"
    )
    assert restart.what.text().endswith("from step 0")
    assert (unchanged.name.text(), unchanged.what.text(), unchanged.mark.text()) == (
        "no change",
        f"NaN at {broke}",
        "✗",
    )
    assert live.apply.isVisible() and restart.apply.isVisible() and not unchanged.apply.isVisible()
    assert panel.progress.text() == "2 fixes of 2 healed the run"
    restart.trial.useless = True
    panel.refresh()
    assert panel.progress.text() == "1 fix of 2 healed the run, 1 only survives"
    assert not window.findings.state.try_fixes.isVisible()  # what comes of them is known


def test_apply_goes_on_as_a_branch_that_repeats_the_trial(qtbot: QtBot, broken: Callable[..., Window]) -> None:
    window = broken(**LOG_OF_ZERO)
    trials, parent = tried(qtbot, window), window.simulator.run
    press(qtbot, row(window, "loss.eps=1e-7").apply)
    qtbot.waitUntil(lambda: window.simulator.run.over, timeout=LONG)
    run, trial = window.simulator.run, row(window, "loss.eps=1e-7").trial
    assert (run.parent, run.parent_step, run.status) == (parent.id, trials.step, "finished")
    assert [(change.step, change.knob) for change in run.timeline] == [(trials.step, "loss.eps")]
    assert np.array_equal(run.history.column("loss", 0, trials.end), trial.run.history.column("loss", 0, trials.end))
    window.refresh()
    assert window.findings.fixes.isVisible()  # another one can be applied from the branch, too
    taken = row(window, "loss.eps=1e-7").apply
    assert (taken.text(), taken.isEnabled()) == ("Taken", False)
    press(qtbot, row(window, "loss.kind=auto").apply)
    assert window.simulator.run is not run and window.simulator.requested.loss.kind == "auto"


def test_what_acts_on_restart_is_applied_by_one(qtbot: QtBot, broken: Callable[..., Window]) -> None:
    window = broken(**LOG_OF_ZERO)
    trials = tried(qtbot, window)
    press(qtbot, row(window, "loss.kind=auto").apply)
    run, trial = window.simulator.run, next(trial for trial in trials.trials if trial.remedy == "loss.kind=auto")
    qtbot.waitUntil(lambda: len(run.history) >= trials.end, timeout=LONG)
    assert run.parent == "" and run.experiment.loss.kind == "auto" and window.simulator.requested.loss.kind == "auto"
    assert np.array_equal(run.history.column("loss", 0, trials.end), trial.run.history.column("loss", 0, trials.end))
    qtbot.waitUntil(lambda: not window.findings.fixes.isVisible(), timeout=LONG)


@pytest.mark.usefixtures("endless")
def test_stop_keeps_what_is_known_and_they_are_not_tried_twice(qtbot: QtBot, broken: Callable[..., Window]) -> None:
    window = broken(**LASTING)
    press(qtbot, window.findings.state.try_fixes)
    trials = window.fixes.trials
    press(qtbot, window.findings.fixes.stop)
    qtbot.waitUntil(lambda: trials.over and not window.findings.fixes.stop.isVisible(), timeout=LONG)
    assert "not tried" in {each.what.text() for each in window.findings.fixes.rows}


@pytest.mark.usefixtures("endless")
@pytest.mark.parametrize("way", ["restart", "rewind", "close"])
def test_another_run_and_the_end_of_the_window_end_the_trials(
    qtbot: QtBot, broken: Callable[..., Window], way: str
) -> None:
    window = broken(**LASTING)
    press(qtbot, window.findings.state.try_fixes)
    trials = window.fixes.trials
    assert trials.is_alive()
    {"restart": window.controls.restart, "rewind": lambda: window.controls.rewind(0), "close": window.close}[way]()
    qtbot.waitUntil(lambda: not trials.is_alive(), timeout=LONG)
    assert any(trial.outcome == "not tried" for trial in trials.trials)


@pytest.mark.usefixtures("endless")
def test_the_window_answers_while_fixes_are_tried(qtbot: QtBot, broken: Callable[..., Window]) -> None:
    window = broken(**LASTING)
    press(qtbot, window.findings.state.try_fixes)
    trials, shown = window.fixes.trials, set()

    def progressed() -> bool:
        if trials.now is not None:
            shown.add(window.findings.fixes.progress.text())
        return len(shown) > 3

    qtbot.waitUntil(progressed, timeout=LONG)  # as it goes on, while one and the same fix is tried
    assert not trials.over
    window.fixes.stop()
    qtbot.waitUntil(lambda: not trials.is_alive(), timeout=LONG)


def test_a_paused_run_stays_as_it_is(qtbot: QtBot, make_window: Callable[..., Window]) -> None:
    window = make_window(**LASTING, run__stop_on_nonfinite=False)
    window.simulator.set_speed(UNLIMITED)
    window.simulator.play()
    qtbot.waitUntil(lambda: window.simulator.run.first_nonfinite_step is not None, timeout=LONG)
    window.simulator.pause()
    qtbot.waitUntil(
        lambda: window.simulator.run.status == "paused" and window.findings.state.try_fixes.isVisible(), timeout=LONG
    )
    run, count = window.simulator.run, len(window.simulator.run.history)
    trials = tried(qtbot, window)
    assert window.simulator.run is run and len(run.history) == count and run.status == "paused"
    assert trials.best_first[0].outcome == "held" and trials.best_first[-1].broke_at == run.first_nonfinite_step


@pytest.mark.parametrize(("broke", "shown"), [(-1, False), (5, True)])
def test_a_nan_is_a_gap_and_a_cross(qtbot: QtBot, broke: int, shown: bool) -> None:
    spark = Sparkline()
    qtbot.addWidget(spark)
    spark.resize(spark.sizeHint())
    losses = np.array([3.0, 2.0, np.nan, 1.0, 2.0, np.nan, np.nan])
    spark.show_losses(losses, 20, (1.0, 3.0), broke, "good")
    assert [piece.size() for piece in spark._stretches()] == [2, 2]
    picture, bad = spark.grab().toImage(), theme.color("bad")
    near = sum(_alike(picture.pixelColor(x, y), bad) for x in range(picture.width()) for y in range(picture.height()))
    assert (near > 4) == shown


@pytest.mark.parametrize("level", [0.0, -3.0, 1e-300, 1e300])
def test_a_loss_that_stays_the_same_is_drawn_too(qtbot: QtBot, level: float) -> None:
    history = History()
    history.extend(np.full((20, len(COLUMNS)), level), np.empty((len(LAYER_METRICS), 20, 0), np.float32))
    seen = cast(Trials, SimpleNamespace(tried=SimpleNamespace(history=history), step=15, trials=[]))
    spark = Sparkline()
    qtbot.addWidget(spark)
    spark.resize(spark.sizeHint())
    spark.show_losses(history.column("loss"), 20, bounds(seen), -1, "good")
    (curve,) = spark._stretches()
    assert [point.y() for point in curve] == pytest.approx([spark.height() - 3] * curve.size())


def _alike(one: QColor, other: QColor) -> bool:
    return abs(one.red() - other.red()) + abs(one.green() - other.green()) + abs(one.blue() - other.blue()) < 60
