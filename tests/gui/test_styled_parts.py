"""A change of theme or text size styles what is in sight, however much was opened before, and nothing twice as often."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from PySide6.QtCore import QEvent, QObject
from PySide6.QtWidgets import QApplication, QDialog, QLabel, QWidget
from pytestqt.exceptions import capture_exceptions
from pytestqt.qtbot import QtBot
from waiting import LONG, settle

from gradstudio.core import worker_places
from gradstudio.gui.styled_parts import StyledParts
from gradstudio.gui.theme import theme
from gradstudio.gui.window import Window


class Styled(QObject):
    """Counts the widgets that are styled anew."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        self.count += event.type() == QEvent.Type.StyleChange
        return False


class Painted(QObject):
    """Counts how often a widget is painted."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        self.count += event.type() == QEvent.Type.Paint
        return False


def styled_by(change: Callable[[], None]) -> int:
    """Return how many widgets a change styles."""
    app, seen = QApplication.instance(), Styled()
    assert app is not None
    app.processEvents()  # what was shown just now is styled
    settle(theme)
    app.installEventFilter(seen)
    change()
    settle(theme)
    app.removeEventFilter(seen)
    return seen.count


def test_a_change_costs_the_same_after_much_was_opened(qtbot: QtBot, window: Window) -> None:
    def dark_and_back() -> None:
        theme.set_mode("dark")
        settle(theme)
        theme.set_mode("light")

    window.heartbeat.stop(alone=False)
    theme.set_mode("light")
    before = styled_by(dark_and_back)
    for page in ("branches", "code", "runs", "gauges", "diagnosis"):
        window.columns.show_page(page)
        QApplication.processEvents()
    for command in ("about", "list_keys", "twins", "save_preset", "paste_preset", "open_preset"):
        window.commands.commands[command].call()
        QApplication.processEvents()
        for dialog in [each for each in QApplication.topLevelWidgets() if isinstance(each, QDialog)]:
            dialog.close()
        QApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)
    for fold in (window.knobs.more, *(group.head for group in window.knobs.groups)):
        fold.button.click()
        window.knobs.refresh(window.simulator)
        fold.button.click()
    window.knobs.refresh(window.simulator)
    window.refresh(whole=True)
    after = styled_by(dark_and_back)
    theme.set_mode("system")
    settle(theme)
    assert 0 < after <= 1.05 * before  # a button may be in sight that was not


def test_a_part_out_of_sight_is_styled_when_it_is_shown(window: Window) -> None:
    def color_of(label: QLabel) -> str:
        return label.palette().color(label.foregroundRole()).name()

    theme.set_mode("light")
    settle(theme)
    note = window.side.gauges.note
    for mode in ("dark", "light"):
        theme.set_mode(mode)
        settle(theme)
        window.columns.show_page("gauges")
        assert not window.updatesEnabled()  # the old look is not painted
        settle(theme)
        assert color_of(note) == theme.color("dim").name() and window.updatesEnabled()
        window.columns.show_page("diagnosis")
    theme.set_mode("system")
    settle(theme)


def test_a_change_during_a_change_is_carried_out(window: Window) -> None:
    for zoom in (1.1, 1.2, 1.5):
        theme.set_zoom(zoom)
    settle(theme)
    assert window.font().pointSizeF() == theme.font().pointSizeF()
    assert window.updatesEnabled()
    theme.set_zoom(1.0)
    settle(theme)


def test_a_change_goes_on_after_a_part_that_raises(window: Window) -> None:
    def fail() -> None:
        raise RuntimeError("no look")

    theme.set_mode("light")
    settle(theme)
    label = QLabel(window)
    label.show()
    theme.apply_style(label, fail)
    with capture_exceptions() as raised:
        theme.set_mode("dark")
        settle(theme)
    label.deleteLater()
    QApplication.sendPostedEvents(label, QEvent.Type.DeferredDelete)
    theme.set_mode("system")
    settle(theme)
    assert [str(error) for _, error, _ in raised] == ["no look"] and window.updatesEnabled()


def test_every_dialog_wears_the_look(qtbot: QtBot, window: Window) -> None:
    window.simulator.step()
    qtbot.waitUntil(lambda: len(window.simulator.run.history) == 1, timeout=LONG)
    window.refresh(whole=True)  # the timeline reaches the step now
    worker_places.add("lab", "not-there")  # else there is no list of its runs
    impossible = []
    for command in window.commands.commands.values():
        if not command.label.endswith("…") and command.id not in ("about", "list_keys"):
            continue
        if not command.enabled():
            impossible.append(command.id)
            continue
        command.call()
        dialogs = [each for each in QApplication.topLevelWidgets() if isinstance(each, QDialog) and each.isVisible()]
        for dialog in dialogs:
            assert dialog.styleSheet(), command.id
            dialog.close()
        assert dialogs, command.id
    worker_places.remove("lab")
    assert impossible == ["ask_rate"]  # of a run that another program trains


def test_a_window_that_was_to_be_painted_as_it_was_held_is_painted_again(qtbot: QtBot) -> None:
    """Else it is frozen: it happened where a finding came up after a change of theme."""
    whole, parts, painted = QWidget(), StyledParts(), Painted()
    qtbot.addWidget(whole)
    part = QLabel("part", whole)
    other = QLabel("other", whole)
    part.hide()
    parts.add(part, lambda: None)
    whole.show()
    qtbot.waitExposed(whole)
    parts.change("QLabel { color: red; }")
    qtbot.waitUntil(lambda: not parts.at_work, timeout=LONG)
    QApplication.processEvents()
    whole.update()
    part.show()
    assert parts.at_work
    qtbot.waitUntil(lambda: not parts.at_work, timeout=LONG)
    QApplication.processEvents()
    other.installEventFilter(painted)
    other.update()
    qtbot.waitUntil(lambda: painted.count > 0, timeout=LONG)


def test_parts_that_are_made_together_are_styled_at_the_end(qtbot: QtBot) -> None:
    """Even where one of them is gone by then, or making the next one fails."""
    whole, parts, part, gone, alone = QWidget(), StyledParts(), QLabel("part"), QLabel("gone"), QLabel("alone")
    for widget in (whole, alone):
        qtbot.addWidget(widget)
    parts.change("QLabel { color: red; }")
    qtbot.waitUntil(lambda: not parts.at_work, timeout=LONG)
    with pytest.raises(RuntimeError), parts.together():
        parts.add(part, lambda: None)
        parts.add(gone, lambda: None)
        gone.deleteLater()
        QApplication.sendPostedEvents(gone, QEvent.Type.DeferredDelete)
        part.setParent(whole)
        assert not part.styleSheet()
        raise RuntimeError("no next part")
    parts.add(alone, lambda: None)
    for each in (part, alone):
        assert each.palette().color(each.foregroundRole()).name() == "#ff0000"
