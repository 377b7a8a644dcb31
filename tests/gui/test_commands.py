"""The table of commands: each has keys of its own, is found in a menu, and is told in the list of keys."""

from __future__ import annotations

from html import escape

import pytest
from PySide6.QtCore import QSettings, Qt
from PySide6.QtGui import QKeySequence
from PySide6.QtWidgets import QLabel, QMenu
from pytestqt.qtbot import QtBot

from gradstudio.gui.shell.keys_dialog import KeysDialog
from gradstudio.gui.window import Window

pytestmark = pytest.mark.shares_window


def opened(window: Window, title: str) -> QMenu:
    menu = next(menu for menu in window.menuBar().findChildren(QMenu) if menu.title() == title)
    menu.aboutToShow.emit()
    return menu


def test_keys_are_not_given_twice(window: Window) -> None:
    keys = [QKeySequence(command.keys).toString() for command in window.commands.commands.values() if command.keys]
    assert len(set(keys)) == len(keys) and "Ctrl+T" in keys


def texts_of(menu: QMenu) -> set[str]:
    """Return the texts of the entries of a menu, and of those within it."""
    within = [part for action in menu.actions() if isinstance(part := action.menu(), QMenu)]
    return {action.text() for action in menu.actions()}.union(*map(texts_of, within))


def test_labels_are_short_and_every_command_stands_in_a_menu(window: Window) -> None:
    shown = {text for title in window.commands.menus for text in texts_of(opened(window, title))}
    for command in window.commands.commands.values():
        assert len(command.label.split()) <= 4, command.label
        assert any(text.startswith(command.label) for text in shown), command.label


def test_a_menu_greys_what_is_not_possible_and_its_keys_still_work(window: Window) -> None:
    menu = opened(window, "&Run")
    rewind, stop = (
        next(action for action in menu.actions() if action.text() == text) for text in ("Rewind to step…", "Stop run")
    )
    assert not rewind.isEnabled() and not stop.isEnabled()  # nothing was run yet
    menu.aboutToHide.emit()
    rewind.trigger()
    assert "no step to rewind to" in window.message.text.text()


def test_keys_work_before_any_menu_was_opened(qtbot: QtBot, window: Window) -> None:
    """The menu Presets is filled as it is opened, and has Ctrl+L."""
    for shown in (True, False):
        qtbot.keyClick(window, Qt.Key.Key_L, Qt.KeyboardModifier.ControlModifier)
        assert window.gallery_page.isVisible() is shown


def test_menus_are_filled_whoever_has_held_them(window: Window) -> None:
    """PySide forgets a menu that Qt made once the action it was asked of is gone from Python."""
    for _ in range(2):
        for action in window.menuBar().actions():
            menu = action.menu()
            assert isinstance(menu, QMenu)
            for part in (menu, *(each.menu() for each in menu.actions())):
                if isinstance(part, QMenu):
                    part.aboutToShow.emit()
                    assert part.actions() and not any(each.text() == "…" for each in part.actions())
        del action, menu, part


def test_buttons_say_their_keys_and_the_list_of_keys_has_them(qtbot: QtBot, window: Window) -> None:
    assert window.top.play.toolTip().endswith("(Space, F5)") and window.top.step.toolTip().endswith("(F10)")
    assert window.side.tabs.buttons["branches"].toolTip().endswith("(Ctrl+5)")
    window.commands.commands["list_keys"].call()
    [dialog] = window.findChildren(KeysDialog)
    told = "".join(label.text() for label in dialog.findChildren(QLabel))
    for command in window.commands.commands.values():
        assert not command.keys or escape(command.key_names) in told
    dialog.close()


def test_the_list_of_keys_fits_into_the_window_and_is_searched(qtbot: QtBot, window: Window) -> None:
    window.resize(1280, 690)
    window.commands.commands["list_keys"].call()
    [dialog] = window.findChildren(KeysDialog)
    assert dialog.width() < window.width() and dialog.height() < window.height()
    tops = [topic.mapTo(dialog, topic.rect().topLeft()) for topic in dialog.topics]
    assert len({top.x() for top in tops}) == 3
    qtbot.keyClicks(dialog.search, "cross drag")
    assert [topic.title for topic in dialog.topics if topic.isVisible()] == ["On a map"]
    qtbot.keyClicks(dialog.search, " zzz")
    assert dialog.nothing.isVisible() and not any(topic.isVisible() for topic in dialog.topics)
    dialog.search.clear()
    assert all(topic.isVisible() for topic in dialog.topics) and dialog.isVisible()
    dialog.close()


def test_the_menu_ticks_what_is_shown_and_a_page_key_leaves_the_gallery(qtbot: QtBot, window: Window) -> None:
    def ticked() -> set[str]:
        return {action.text() for action in opened(window, "&View").actions() if action.isChecked()}

    window.columns.show_page("diagnosis")
    assert {"Show knobs", "Show diagnosis"} <= ticked() and not {"Show runs", "Show directions"} & ticked()
    qtbot.keyClick(window, Qt.Key.Key_4, Qt.KeyboardModifier.ControlModifier)
    qtbot.keyClick(window, Qt.Key.Key_D, Qt.KeyboardModifier.ControlModifier)
    assert {"Show runs", "Show directions"} <= ticked() and "Show diagnosis" not in ticked()
    window.show_gallery()
    qtbot.keyClick(window, Qt.Key.Key_4, Qt.KeyboardModifier.ControlModifier)
    assert not window.gallery_page.isVisible() and "Show runs" in ticked()
    qtbot.keyClick(window, Qt.Key.Key_4, Qt.KeyboardModifier.ControlModifier)
    assert "Show runs" not in ticked()


def test_the_view_menu_has_one_column_on_a_small_screen(window: Window) -> None:
    menu = opened(window, "&View")
    assert menu.sizeHint().height() < 680
    assert [action.text() for action in menu.actions() if action.menu()] == ["Theme and text size"]


def test_the_page_diagnosis_is_stored_under_its_old_name(window: Window) -> None:
    window.columns.show_page("diagnosis")
    window.columns.save()
    assert QSettings().value("page") == "words"
