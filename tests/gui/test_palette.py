"""The command palette: what it finds, in which order, and that Enter does it; redo and the list of knob changes."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path

import pytest
from PySide6.QtCore import QMimeData, QPointF, Qt, QUrl
from PySide6.QtGui import QDropEvent
from PySide6.QtWidgets import QMenu
from pytestqt.qtbot import QtBot
from waiting import LONG

from gradstudio.gui.knobs import change_menu
from gradstudio.gui.shell.command_palette import Choice, CommandPalette, best_matches
from gradstudio.gui.window import Window
from gradstudio.session.library.store import Library

pytestmark = pytest.mark.shares_window


def opened(qtbot: QtBot, window: Window) -> CommandPalette:
    window.commands.commands["palette"].call()
    [palette] = [each for each in window.findChildren(CommandPalette) if each.isVisible()]
    return palette


def test_the_best_choice_comes_first_and_every_word_counts() -> None:
    def choice(kind: str, label: str, about: str = "") -> Choice:
        return Choice(kind, label, lambda: None, about=about)

    about, inside, kind, start = (
        choice("knob", "clipping.kind", "rewind"), choice("command", "Do rewind"), choice("rewind", "Other"),
        choice("command", "Rewind to step…"),
    )  # fmt: skip
    every = [about, inside, kind, start]
    assert best_matches(every, "REWIND") == [start, inside, kind, about]
    assert best_matches(every, "step rewind") == [start] and best_matches(every, "rewind nowhere") == []
    assert best_matches(every, "") == every


def test_the_palette_finds_each_kind_and_enter_carries_it_out(qtbot: QtBot, window: Window) -> None:
    window.controls.run_or_pause()
    qtbot.waitUntil(lambda: window.simulator.run.over and not window.simulator.busy, timeout=LONG)
    first = window.simulator.run.id
    palette = opened(qtbot, window)
    assert "palette" not in {choice.label for choice in palette.listed_choices}
    qtbot.keyClicks(palette.line, "clipping.max")
    assert palette.listed_choices[0].label == "clipping.max_norm"
    qtbot.keyClick(palette.line, Qt.Key.Key_Return)
    assert not palette.isVisible()
    row = window.knobs.rows["clipping.max_norm"]
    assert row.isVisibleTo(window.knobs) and not window.knobs.rows["optimizer.lr"].isVisibleTo(window.knobs)

    palette = opened(qtbot, window)
    qtbot.keyClicks(palette.line, "zzz")
    assert not palette.listed_choices and palette.nothing.isVisible()
    qtbot.keyClick(palette.line, Qt.Key.Key_Return)
    assert palette.isVisible()  # there was nothing to choose
    palette.line.setText("make step")  # a command, whose label has both words
    assert (
        palette.listed_choices[0].label == "Make one step" and not palette.listed_choices[0].possible
    )  # the run is over
    palette.line.setText("drag help")
    assert {choice.kind for choice in palette.listed_choices} == {"help"} and len(palette.listed_choices) > 1
    chosen = palette.list.indexOfTopLevelItem(palette.list.currentItem())
    qtbot.keyClick(palette.line, Qt.Key.Key_Down)
    assert palette.list.indexOfTopLevelItem(palette.list.currentItem()) == chosen + 1
    palette.line.setText("preset loss")
    preset = next(choice for choice in palette.listed_choices if choice.kind == "preset")
    palette.reject()
    preset.call()
    assert window.simulator.preset.title == preset.label

    library = Library(Path(os.environ["GRADSTUDIO_LIBRARY"]))
    qtbot.waitUntil(lambda: any(entry.id == first for entry in library.entries()), timeout=LONG)
    palette = opened(qtbot, window)
    palette.line.setText("run small")
    qtbot.waitUntil(lambda: any(choice.kind == "run" for choice in palette.listed_choices), timeout=LONG)
    run = next(choice for choice in palette.listed_choices if choice.kind == "run")
    assert run.keys.startswith("today ")  # runs of one title are told apart by when they began
    palette.reject()
    run.call()
    qtbot.waitUntil(lambda: window.simulator.run.id == first, timeout=LONG)


def test_what_was_chosen_last_comes_first(qtbot: QtBot, window: Window) -> None:
    palette = opened(qtbot, window)
    for _ in range(2):  # the second time it is remembered already
        qtbot.keyClicks(palette.line, "show directions")
        qtbot.keyClick(palette.line, Qt.Key.Key_Return)
        palette = opened(qtbot, window)
        assert palette.listed_choices[0].label == "Show directions"
        assert [choice.label for choice in palette.listed_choices].count("Show directions") == 1
    palette.line.setText("rewind")
    assert palette.listed_choices[0].label == "Rewind to step…"
    palette.reject()


def test_the_palette_leaves_when_the_window_is_used_again(qtbot: QtBot, window: Window) -> None:
    palette = opened(qtbot, window)
    qtbot.waitUntil(palette.isActiveWindow)
    window.activateWindow()
    qtbot.waitUntil(lambda: not window.findChildren(CommandPalette))


def test_knob_changes_are_redone_listed_and_undone_together(window: Window) -> None:
    simulator, controls, menu = window.simulator, window.controls, QMenu()

    def listed() -> list[str]:
        menu.clear()
        change_menu.fill(menu, window.context)
        return [action.text() for action in menu.actions() if not action.isSeparator()]

    start = simulator.requested
    assert listed() == ["No knob was changed yet"] and not menu.actions()[0].isEnabled()
    controls.set_knob("optimizer.lr", 0.25)
    controls.set_knob("optimizer.lr", 0.5)
    controls.set_knob("problem.batch_size", 32)
    end = simulator.requested
    assert listed() == ["Undo problem.batch_size 16 → 32", "Undo optimizer.lr 0.25 → 0.5",
                        f"Undo optimizer.lr {start.optimizer.lr} → 0.25"]  # fmt: skip
    menu.actions()[1].trigger()
    assert (simulator.requested.optimizer.lr, simulator.requested.problem.batch_size) == (0.25, 16)
    assert listed()[:2] == ["Redo problem.batch_size 16 → 32", "Redo optimizer.lr 0.25 → 0.5"]
    menu.actions()[0].trigger()  # and with it the one before
    assert simulator.requested == end
    controls.undo()
    controls.set_knob("optimizer.lr", 0.125)  # what was undone is gone now
    controls.redo()
    assert simulator.requested.problem.batch_size == 16 and "no undone" in window.message.text.text()
    for _ in range(3):
        controls.undo()
    assert simulator.requested == start


def test_a_table_that_is_dropped_is_drawn_over_the_loss(qtbot: QtBot, window: Window, tmp_path: Path) -> None:
    table = tmp_path / "curve.csv"
    table.write_text("step,loss\n0,2.0\n1,1.5\n2,1.0\n")
    data = QMimeData()
    data.setUrls([QUrl.fromLocalFile(str(table))])
    drop = QDropEvent(QPointF(5, 5), Qt.DropAction.CopyAction, data, Qt.MouseButton.LeftButton,
                      Qt.KeyboardModifier.NoModifier)  # fmt: skip
    window.dropEvent(drop)
    qtbot.waitUntil(lambda: bool(window.plots.overlays.places), timeout=LONG)


def test_a_log_that_is_dropped_is_shown_as_a_run_in_its_own_steps(qtbot: QtBot, window: Window, tmp_path: Path) -> None:
    lines = [{"step": step, "loss": 1.0 if step < 900 else math.nan} for step in range(10, 1210, 10)]
    (tmp_path / "trainer_state.json").write_text(json.dumps({"log_history": lines}))
    data = QMimeData()
    data.setUrls([QUrl.fromLocalFile(str(tmp_path / "trainer_state.json"))])
    drop = QDropEvent(QPointF(5, 5), Qt.DropAction.CopyAction, data, Qt.MouseButton.LeftButton,
                      Qt.KeyboardModifier.NoModifier)  # fmt: skip
    window.dropEvent(drop)
    qtbot.waitUntil(lambda: window.simulator.run.title == "trainer_state.json", timeout=LONG)
    window.refresh(whole=True)
    assert window.simulator.run.status == "nonfinite"
    places = window.plots.steps.places
    assert (places.number(0), places.number(119)) == (10, 1200)
    bar = window.figures.figures
    assert (bar["step"].value, bar["skipped"].value) == ("1,200", "–")
