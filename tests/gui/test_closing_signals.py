"""SIGTERM and its kind close the window as a person would, also from within a dialog."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator

import pytest
from PySide6.QtCore import QTimer
from PySide6.QtWidgets import QDialog, QMenu
from pytestqt.qtbot import QtBot
from waiting import ENDLESS, LONG, HeldStep

from gradstudio.core import files
from gradstudio.gui import window as windows
from gradstudio.gui.services import closing_signals
from gradstudio.gui.services.closing_signals import ClosingSignals
from gradstudio.gui.window import Window
from gradstudio.session.library.store import Library

SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


@pytest.fixture
def listened(make_window: Callable[..., Window]) -> Iterator[tuple[Window, list[int]]]:
    """A window that hears signals, and the exit codes with which the program would have ended at once."""
    before = {number: signal.signal(number, signal.SIG_DFL) for number in SIGNALS}  # nothing of the shell's
    window, ended = make_window(run__steps=ENDLESS), []
    signals = ClosingSignals(window, ended.append)
    yield window, ended
    signals.remove()
    assert {signal.getsignal(number) for number in SIGNALS} == {signal.SIG_DFL}
    for number, handler in before.items():
        signal.signal(number, handler)


def outcomes() -> list[str]:
    library = Library(files.user_library())
    try:
        return [entry.outcome for entry in library.entries()]
    finally:
        library.close()


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_closes_the_window_and_saves_the_run(
    qtbot: QtBot, listened: tuple[Window, list[int]], number: signal.Signals
) -> None:
    window, ended = listened
    window.controls.run_or_pause()
    qtbot.waitUntil(lambda: len(window.simulator.run.history) > 3, timeout=LONG)
    signal.raise_signal(number)
    qtbot.waitUntil(lambda: not window.isVisible(), timeout=LONG)
    assert window.simulator.run.status == "stopped" and outcomes() == ["stopped"] and not ended


def test_dialogs_and_menus_close_before_it(qtbot: QtBot, listened: tuple[Window, list[int]]) -> None:
    window, _ = listened
    dialog, menu = QDialog(window), QMenu(window)
    menu.addAction("Nothing")
    QTimer.singleShot(0, lambda: menu.popup(window.pos()))
    QTimer.singleShot(0, lambda: signal.raise_signal(signal.SIGTERM))
    assert dialog.exec() == QDialog.DialogCode.Rejected
    qtbot.waitUntil(lambda: not window.isVisible(), timeout=LONG)
    assert not menu.isVisible()


def test_a_second_signal_ends_the_program_at_once(
    qtbot: QtBot, listened: tuple[Window, list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    window, ended = listened
    signal.raise_signal(signal.SIGTERM)
    signal.raise_signal(signal.SIGTERM)
    qtbot.waitUntil(lambda: not window.isVisible(), timeout=LONG)
    assert not ended  # `timeout` sends it to the process and then to its group
    monkeypatch.setattr(closing_signals, "ECHO", -1.0)
    signal.raise_signal(signal.SIGTERM)
    assert ended == [130]


def test_closing_within_a_step_of_minutes_saves_the_run_as_stopped(
    qtbot: QtBot, make_window: Callable[..., Window], monkeypatch: pytest.MonkeyPatch
) -> None:
    window = make_window(run__steps=ENDLESS)
    monkeypatch.setattr(windows, "CLOSING", 0.01)
    with HeldStep(20) as step:
        window.controls.run_or_pause()
        qtbot.waitUntil(step.reached.is_set, timeout=LONG)
        window.close()
        assert window.simulator.run.status == "stopped" and outcomes() == ["stopped"]
    assert [event.kind for event in window.simulator.run.events].count("stopped") == 1
