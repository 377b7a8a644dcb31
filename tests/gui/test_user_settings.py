"""A settings file with anything in it: the window opens, and says once what it could not use."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from PySide6.QtCore import QByteArray, QSettings
from PySide6.QtWidgets import QMenu

from gradstudio.gui import user_settings
from gradstudio.gui.branches import rewind_dialogs
from gradstudio.gui.theme import Theme, theme
from gradstudio.gui.user_settings import Setting, number
from gradstudio.gui.window import Window
from gradstudio.session.record.snapshots import BUDGET

KEYS = ("theme", "zoom", "open/Clipping", "snapshots/megabytes", "geometry", "splitter", "page", "width/code", "folder")
NUMBERS = ("zoom", "snapshots/megabytes", "width/code")
WRONG = ("nan", "inf", "1e400", "", "abc", "²", "\x00", "@Invalid()x", [1, 2], {"a": 1}, QByteArray(b"\xff" * 60))
HUGE = ("9" * 300, "9" * 5000, "1e300", -5, 2**62)


@pytest.fixture(autouse=True)
def nothing_stored(qapp: object) -> None:
    QSettings().clear()
    user_settings.problem()


def read_all() -> None:
    """Read every key as the program does."""
    restored = Theme()
    restored.restore()
    assert 0.8 <= restored.zoom <= 2.0 and restored.mode in ("system", "light", "dark")
    assert 0 < rewind_dialogs.budget() <= user_settings.MOST_MEGABYTES << 20
    for name in ("open/Clipping", "open/Model"):
        assert user_settings.section_open(name.removeprefix("open/"), True).get() in (True, False)
    for setting in vars(user_settings).values():
        if isinstance(setting, Setting):
            setting.get()


@pytest.mark.parametrize("key", KEYS)
def test_any_value_of_any_key(key: str) -> None:
    for value in (*WRONG, *HUGE):
        QSettings().setValue(key, value)
        read_all()
        QSettings().remove(key)


def test_a_number_that_is_none_is_told_once_and_removed() -> None:
    for name in NUMBERS:
        QSettings().setValue(name, "nan")
        assert Setting[float | None](name, None, number(1, 2)).get() is None
        told = user_settings.problem()
        assert f"{name} = nan" in told and "\n" not in told
        assert QSettings().value(name) is None and not user_settings.problem()
    QSettings().setValue("zoom", 99)
    assert user_settings.ZOOM.get() == user_settings.MOST_ZOOM and not user_settings.problem()


def test_the_window_opens_with_wrong_types_everywhere(make_window: Callable[..., Window]) -> None:
    opened = make_window()  # which clears the settings
    opened.close()
    for key in KEYS:
        QSettings().setValue(key, "\x1b[2J<b>nan")
    assert rewind_dialogs.budget() == BUDGET
    user_settings.THEME.get()
    window = Window(opened.simulator.preset)
    try:
        window.furnish()
        window.show()
        assert window.message.message.startswith("The settings file had values that cannot be used: ")
        assert "\x1b" not in window.message.message and "..." in window.message.message
        rewind_dialogs.fill_budgets(window.simulator, menu := QMenu())
        assert menu.actions()
    finally:
        window.close()
    assert theme.zoom == 1.0
