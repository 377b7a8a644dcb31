"""Everything that has the focus says what it is and what it is for, Tab reaches it in the order in which a person reads,
and each plot tells its figures."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PySide6.QtCore import QCoreApplication, QEvent, QPoint, Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QAbstractButton, QApplication, QComboBox, QLabel, QMenu, QMenuBar, QScrollBar, QWidget
from pytestqt.qtbot import QtBot
from waiting import LONG

from gradstudio.core.columns import LAYER_METRICS
from gradstudio.core.history import History
from gradstudio.core.row import Row
from gradstudio.core.unknown import UNKNOWN
from gradstudio.gui.shell.pages import PAGES
from gradstudio.gui.shell.tour import TourDialog
from gradstudio.gui.window import Window
from gradstudio.session.words.curve_words import ColumnSummaries, curve_words

# Of Qt's own, which names them, or whose dialogs ask for a file.
THEIRS = (QScrollBar, QMenuBar, QMenu)
FILES = ("open_", "save_", "export_", "import_", "take_exam", "worksheet", "copy_preset", "quit")


def path(widget: QWidget | None) -> str:
    names: list[str] = []
    while widget is not None:
        names.append(type(widget).__name__ + (f"#{widget.objectName()}" if widget.objectName() else ""))
        widget = widget.parentWidget()
    return " > ".join(reversed(names))


def faults(root: QWidget) -> set[str]:
    """Return the paths of what can have the focus and has no name, or, where Tab reaches it, no description."""
    found: set[str] = set()
    labelled = [label.buddy() for label in root.findChildren(QLabel)]
    for widget in (root, *root.findChildren(QWidget)):
        policy = widget.focusPolicy()
        if policy == Qt.FocusPolicy.NoFocus or not widget.isVisibleTo(root) or isinstance(widget, THEIRS):
            continue
        if widget.objectName().startswith("qt_"):
            continue
        name = widget.accessibleName() or (widget.text() if isinstance(widget, (QAbstractButton, QLabel)) else "")
        if not name:
            found.add(f"no name: {path(widget)}")
        if policy & Qt.FocusPolicy.TabFocus and not (widget.accessibleDescription() or widget.toolTip()):
            found.add(f"no description: {path(widget)} {name!r}")
        if isinstance(widget, QComboBox) and widget not in labelled:  # which AT-SPI calls by its choice
            about = widget.accessibleDescription() or widget.toolTip()
            if name.lower() not in about.lower():
                found.add(f"the description does not name it: {path(widget)} {name!r}, {about!r}")
    return found


def test_whatever_has_the_focus_says_what_it_is(qtbot: QtBot, window: Window, trained: Window) -> None:
    found: set[str] = set()
    for command in ("directions", "layer"):
        window.commands.commands[command].call()
        found |= faults(window)
    for page in PAGES:
        window.columns.show_page(page)
        window.refresh(whole=True)
        found |= faults(window)
    window.show_gallery()
    qtbot.waitUntil(lambda: len(window.gallery_page.cards) > 50, timeout=LONG)
    found |= faults(window)
    window.commands.commands["exercise"].call()
    found |= faults(window)
    window.show_plots()
    opened = set()
    for name, command in window.commands.commands.items():
        if (command.label.endswith("…") or name in ("list_keys", "about")) and not name.startswith(FILES):
            if not command.enabled():
                continue
            command.call()
            for dialog in QApplication.topLevelWidgets():
                if dialog is not window and dialog.isVisible():
                    opened.add(name)
                    found |= faults(dialog)
                    dialog.close()
    assert {"rewind", "twins", "paste_preset", "about", "list_keys"} <= opened
    assert not found, "\n".join(sorted(found))


def test_a_message_says_what_its_buttons_do(window: Window) -> None:
    bar = window.message
    bar.show_error("It broke.", "in detail", action=("Undo", lambda: None))
    assert {bar.copy.toolTip(), bar.action.accessibleDescription()} > {"It broke."} and not faults(window)
    bar.show_news("Written.", Path("report.html"))
    assert bar.open.toolTip() == "Open report.html" and not faults(window)


def goes_round(window: Window) -> None:
    """Press Tab until it is where it was, and look at the way."""
    first = window.top.play  # it goes on
    first.setFocus()
    reached: list[QWidget] = []
    while (at := QApplication.focusWidget()) not in reached:
        assert at is not None
        reached.append(at)
        QTest.keyClick(at, Qt.Key.Key_Tab)
    assert at is first, f"Tab is caught at {path(at)}"
    places = (window.top, window.knobs, window.columns.middle, window.side)  # from the top left to the bottom right
    rooms = [
        next((place for place, room in enumerate(places) if room.isAncestorOf(widget)), None) for widget in reached
    ]
    known = [room for room in rooms if room is not None]
    assert known == sorted(known) and set(known) == {0, 1, 2, 3}
    for room in (window.top, window.plots):
        inside = [widget.mapTo(window, QPoint()) for widget in reached if room.isAncestorOf(widget)]
        key = (lambda at: at.x()) if room is window.top else (lambda at: at.y())
        assert [key(at) for at in inside] == sorted(key(at) for at in inside)
    takes = {
        widget
        for widget in window.findChildren(QWidget)
        if widget.focusPolicy() & Qt.FocusPolicy.TabFocus
        and widget.isVisible()
        and widget.isEnabled()
        and not isinstance(widget, THEIRS)
        and not widget.objectName().startswith("qt_")
    }
    assert not (missed := takes - set(reached)), "\n".join(map(path, missed))


def test_a_curve_is_told_in_its_own_figures() -> None:
    steps, values = np.arange(5), np.array([2.5, 0.25, np.nan, 4.0, np.inf])
    assert curve_words("loss", steps, values) == (
        "loss Inf at step 4, smallest 0.25 at step 1, largest 4 at step 3, 2 values are NaN or Inf, first at step 2."
    )
    assert curve_words("loss scale", steps, np.full(5, 8.0)) == "loss scale 8 at step 4, always the same."
    assert curve_words("loss", steps[:2], np.array([np.nan, np.nan])) == (
        "loss NaN at step 1, 2 values are NaN or Inf, first at step 0."
    )
    assert curve_words("loss", steps[:0], values[:0]) == ""
    history = History()
    for step in range(3):
        measured = 0.5 if step == 1 else UNKNOWN  # a step that was not measured is not one that broke
        others: list[float] = [1.0] * 11
        grid = np.zeros((len(LAYER_METRICS), 0))
        history.append(Row(step, 1.0 - step, *others, layers=grid, test_accuracy=measured))  # pyright: ignore
    assert ColumnSummaries().words(history, ("test_accuracy",), 3) == "accuracy on the test set 50 % at step 1."
    assert ColumnSummaries().words(history, ("loss",), 3).endswith("smallest -1 at step 2, largest 1 at step 0.")


def test_tab_goes_round_and_each_plot_tells_its_figures(
    qtbot: QtBot, window: Window, request: pytest.FixtureRequest
) -> None:
    plot = window.plots.gradient_norm
    plot.update_accessible_text()
    assert "Nothing was measured" in plot.widget.accessibleDescription()
    request.getfixturevalue("trained")
    told, norms = plot.widget.accessibleDescription(), window.simulator.run.history.column("grad_norm")
    assert told.startswith("gradient norm ") and f"largest {norms.max():.3g} at step {norms.argmax()}" in told
    plot.widget.setAccessibleDescription("")
    window.activateWindow()
    plot.widget.setFocus(Qt.FocusReason.TabFocusReason)
    assert plot.widget.accessibleDescription() == told
    assert plot.property("focused")
    window.columns.show_page("map")
    window.refresh(whole=True)
    goes_round(window)


def test_the_tour_shows_four_parts_and_can_be_left(window: Window) -> None:
    window.columns.toggle_knobs()
    window.commands.commands["tour"].call()
    (tour,) = window.findChildren(TourDialog)
    shown = []
    for at in range(4):
        assert tour.count.text() == f"{at + 1} of 4" and not faults(tour)
        assert tour.outline.isVisible() and window.rect().contains(tour.outline.geometry())
        shown.append(tour.outline.geometry())
        assert window.rect().contains(tour.geometry().translated(-window.mapToGlobal(QPoint())))
        if at < 3:
            tour.after.click()
    parts = (window.knobs, window.top, window.plots, window.side)
    assert [rect.topLeft() for rect in shown] == [part.mapTo(window, QPoint()) for part in parts]
    tour.before.click()
    assert tour.count.text() == "3 of 4"
    tour.skip.click()
    assert not tour.isVisible()
    QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)
    assert not window.findChildren(TourDialog) and not window.findChildren(QWidget, "tour outline")
