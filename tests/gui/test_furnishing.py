"""The window is made whole behind its first paint, a part in each turn of the event loop."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import QAbstractEventDispatcher, Qt
from PySide6.QtWidgets import QLineEdit
from pytestqt.qtbot import QtBot
from waiting import LONG

from gradstudio.core import presets
from gradstudio.gui.heartbeat import Heartbeat
from gradstudio.gui.shell.staged_opening import StagedOpening
from gradstudio.gui.window import Window

PLOTS = ("loss", "gradient_norm", "layers", "scale_and_rate", "timeline")
LATER = ("difference", "directions", "own_figures", "ranks", "layer_page")  # once they are shown
PAGES = ("diagnosis", "branches", "code", "runs", "gauges", "memory", "map")


@pytest.fixture
def field(qtbot: QtBot) -> Iterator[QLineEdit]:
    field = QLineEdit()
    qtbot.addWidget(field)
    field.show()
    yield field
    if not Heartbeat.beating:
        gc.enable()  # as the heartbeat of a window does when it ends


def nothing() -> None:
    """Load nothing, or do nothing."""


def made(window: Window) -> set[str]:
    """The plots and pages that are there."""
    return {
        name
        for whole, names in (("plots", PLOTS), ("side", PAGES))
        for name in names
        if name in vars(vars(window).get(whole, object))
    }


def test_each_part_of_the_window_has_a_turn_of_its_own(
    qtbot: QtBot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRADSTUDIO_LIBRARY", str(tmp_path / "runs.sqlite3"))
    window = Window(presets.load("rnn-explosion"))
    qtbot.addWidget(window)
    window.show()
    turn, found = 0, []

    def awake() -> None:
        nonlocal turn
        turn += 1

    def parts() -> Iterator[None]:
        for part in window.furnishing():
            found.append((turn, made(window)))
            yield part

    dispatcher = QAbstractEventDispatcher.instance()
    assert dispatcher is not None
    dispatcher.awake.connect(awake)
    done = []
    StagedOpening(window, nothing, parts(), lambda: done.append(window.heartbeat.start()))
    qtbot.waitUntil(lambda: bool(done), timeout=LONG)
    dispatcher.awake.disconnect(awake)
    turns = [turn for turn, _ in found]
    steps = [len(after - before) for (_, before), (_, after) in zip([(0, set[str]()), *found], found, strict=False)]
    assert len(set(turns)) == len(turns) > len(PLOTS + PAGES)
    assert max(steps) == 1 and sum(steps) == len(PLOTS + PAGES)
    assert window.furnished and window.columns.updatesEnabled() and not any(map(window.plots.has, LATER))
    window.close()


def test_what_is_typed_and_clicked_meanwhile_comes_behind_it(qtbot: QtBot, field: QLineEdit) -> None:
    told: list[str] = []

    def parts() -> Iterator[None]:
        qtbot.keyClicks(field, "abc")
        qtbot.mouseDClick(field, Qt.MouseButton.LeftButton)
        told.append(field.text())
        yield
        qtbot.keyClick(field, Qt.Key.Key_D)
        told.append(field.text())
        yield

    StagedOpening(field, nothing, parts(), lambda: told.append("whole"))
    qtbot.waitUntil(lambda: field.text() != "", timeout=LONG)
    assert told == ["", "", "whole"]
    qtbot.waitUntil(lambda: field.text() == "d", timeout=LONG)  # the double click has chosen the word


def test_what_comes_ahead_is_done_in_this_thread_and_before_the_other_begins(qtbot: QtBot, field: QLineEdit) -> None:
    told: list[tuple[str, bool]] = []

    def tell(what: str) -> None:
        told.append((what, threading.current_thread() is threading.main_thread()))

    def ahead() -> Iterator[None]:
        for part in "abc":
            tell(part)
            yield

    StagedOpening(field, lambda: tell("load"), iter(()), lambda: tell("done"), ahead())
    qtbot.waitUntil(lambda: ("done", True) in told, timeout=LONG)
    assert told == [("a", True), ("b", True), ("c", True), ("load", False), ("done", True)]


def test_nothing_is_loaded_for_a_window_that_is_closed_before(qtbot: QtBot, field: QLineEdit) -> None:
    def ahead() -> Iterator[None]:
        field.hide()
        while True:
            yield

    furnishing = StagedOpening(field, pytest.fail, iter(()), pytest.fail, ahead())
    with qtbot.waitSignal(furnishing.destroyed, timeout=LONG):
        pass


def test_a_window_that_is_closed_meanwhile_is_left_as_it_is(qtbot: QtBot, field: QLineEdit) -> None:
    told: list[int] = []

    def parts() -> Iterator[None]:
        for part in range(5):
            told.append(part)
            field.setVisible(part < 1)
            yield

    furnishing = StagedOpening(field, nothing, parts(), lambda: told.append(-1))
    with qtbot.waitSignal(furnishing.destroyed, timeout=LONG):
        pass
    assert told == [0, 1]
    field.show()
    qtbot.keyClicks(field, "abc")
    assert field.text() == "abc"


def test_a_fault_of_the_import_is_a_fault_of_the_window(qtbot: QtBot, field: QLineEdit) -> None:
    def load() -> None:
        raise ImportError("no plots")

    def parts() -> Iterator[None]:
        told.append("a part")
        yield

    told: list[str] = []
    with qtbot.captureExceptions() as caught:
        StagedOpening(field, load, parts(), lambda: told.append("whole"))
        qtbot.waitUntil(lambda: bool(caught), timeout=LONG)
    assert [str(fault) for _, fault, _ in caught] == ["no plots"] and not told
    qtbot.keyClicks(field, "abc")  # it holds nothing back any more
    assert field.text() == "abc"
