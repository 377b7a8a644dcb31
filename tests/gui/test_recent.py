"""The files and the runs that a person had open last, in the menu File."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from PySide6.QtCore import QSettings
from PySide6.QtWidgets import QMenu
from pytestqt.qtbot import QtBot
from waiting import LONG

from gradstudio.core import presets
from gradstudio.gui import user_settings
from gradstudio.gui.services import recent
from gradstudio.gui.window import Window
from gradstudio.session.library.store import Library
from gradstudio.session.library.writer import LibraryWriter


def entries(window: Window, fill: Callable[..., None]) -> list[str]:
    menu = QMenu(window)
    fill(menu, window.context)
    return [action.text() for action in menu.actions() if action.text()]


def choose(window: Window, fill: Callable[..., None], text: str) -> None:
    menu = QMenu(window)
    fill(menu, window.context)
    next(action for action in menu.actions() if action.text() == text).trigger()


def test_ten_files_are_kept_while_they_are_there(window: Window, tmp_path: Path) -> None:
    assert entries(window, recent.fill_files) == ["No file was opened yet"]
    source = presets.load("rnn-explosion")
    for place in range(12):
        path = tmp_path / f"preset & {place}.toml"
        path.write_text(presets.to_toml(source.model_copy(update={"id": f"own-{place}", "title": f"Own {place}"})))
        window.controls.open_preset(path)
    window.controls.open_preset(tmp_path / "nowhere.toml")
    names = entries(window, recent.fill_files)
    assert names[:2] == ["&1  preset && 11.toml", "&2  preset && 10.toml"]
    assert names[9:] == ["&0  preset && 2.toml", "Clear list"]
    (tmp_path / "preset & 11.toml").unlink()
    assert entries(window, recent.fill_files)[0] == "&1  preset && 10.toml"
    choose(window, recent.fill_files, "&3  preset && 8.toml")
    assert window.simulator.preset.title == "Own 8"
    assert entries(window, recent.fill_files)[0] == "&1  preset && 8.toml"
    choose(window, recent.fill_files, "Clear list")
    assert entries(window, recent.fill_files) == ["No file was opened yet"]
    for broken in ("{", '{"a": 1}', '[["a"], [1, 2], ["/etc/hosts", ""]]'):
        QSettings().setValue("recent/files", broken)
        assert len(recent.recent_items(user_settings.RECENT_FILES)) == (1 if "hosts" in broken else 0)


def test_runs_that_were_left_can_be_opened_again(qtbot: QtBot, window: Window) -> None:
    window.controls.run_or_pause()
    qtbot.waitUntil(lambda: window.simulator.run.over, timeout=LONG)
    window.refresh(whole=True)
    left = window.simulator.run
    window.controls.open_preset("rnn-explosion")
    window.refresh(whole=True)
    remembered = recent.recent_items(user_settings.RECENT_RUNS)
    ((run, told),) = remembered
    assert run == left.id and told.startswith("Small, ") and told.endswith(", 40 steps")
    recent.remember(user_settings.RECENT_RUNS, "gone", "A run that was deleted")
    qtbot.waitUntil(lambda: not window.simulator.leaves(left.id), timeout=LONG)
    assert entries(window, recent.fill_runs) == ["&1  A run that was deleted", f"&2  {told}", "Clear list"]
    qtbot.waitUntil(lambda: recent.recent_items(user_settings.RECENT_RUNS) == remembered, timeout=LONG)
    choose(window, recent.fill_runs, f"&1  {told}")
    qtbot.waitUntil(lambda: window.simulator.run.id == left.id, timeout=LONG)


def test_a_run_that_was_just_left_is_kept_though_it_is_not_written_yet(
    qtbot: QtBot, window: Window, monkeypatch: pytest.MonkeyPatch
) -> None:
    Library(window.context.library.path).close()
    monkeypatch.setattr(LibraryWriter, "_attempt", lambda writer, following: False)
    window.controls.run_or_pause()
    qtbot.waitUntil(lambda: window.simulator.run.over, timeout=LONG)
    window.refresh(whole=True)
    window.controls.open_preset("rnn-explosion")
    window.refresh(whole=True)
    remembered = recent.recent_items(user_settings.RECENT_RUNS)
    recent.remember(user_settings.RECENT_RUNS, "gone", "A run that was deleted")
    entries(window, recent.fill_runs)
    qtbot.waitUntil(lambda: len(recent.recent_items(user_settings.RECENT_RUNS)) == 1, timeout=LONG)
    assert recent.recent_items(user_settings.RECENT_RUNS) == remembered
