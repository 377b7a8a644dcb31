"""Branches in the window: listed under what they branched from, gone to, named, coloured, hidden, deleted, brought
back, opened again."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from counting import calls_of
from PySide6.QtCore import QPersistentModelIndex, Qt
from PySide6.QtGui import QTextDocument
from PySide6.QtWidgets import QAbstractItemView, QApplication, QLineEdit, QMenu, QPushButton
from pytestqt.qtbot import QtBot
from waiting import ENDLESS, LONG

from gradstudio.core.experiment import Experiment
from gradstudio.core.knobs import value_text
from gradstudio.core.presets import Preset
from gradstudio.core.text import LONGEST_TITLE
from gradstudio.gui.branches.branch_list import BranchList, Member
from gradstudio.gui.drawing.overlay import MOST, Overlays
from gradstudio.gui.runs.runs_controller import FAMILY, relatives
from gradstudio.gui.services.library_reader import QUEUE
from gradstudio.gui.window import Window
from gradstudio.session.library.library_faults import LibraryError
from gradstudio.session.library.run_entries import Entry
from gradstudio.session.library.store import Library
from gradstudio.session.record.branches import Family, fork
from gradstudio.session.record.run import Run
from gradstudio.session.record.run_writer import RunWriter

pytestmark = pytest.mark.shares_window

LEFT = Qt.MouseButton.LeftButton
HOSTILE = "<b>bold</b> & <img src=x> %s"


def kept() -> Library:
    return Library(Path(os.environ["GRADSTUDIO_LIBRARY"]))


def entries() -> dict[str, Entry]:
    library = kept()
    found = {entry.id: entry for entry in library.entries()}
    library.close()
    return found


def written(qtbot: QtBot, *runs: Run) -> None:
    """Wait until runs that are over stand in the library."""
    qtbot.waitUntil(
        lambda: all(run.id in entries() and entries()[run.id].outcome == run.status for run in runs), timeout=LONG
    )


def to_the_end(qtbot: QtBot, window: Window) -> Run:
    window.controls.run_or_pause()
    run = window.simulator.run
    qtbot.waitUntil(lambda: run.over, timeout=LONG)
    return run


def move_to(qtbot: QtBot, window: Window, step: int) -> Run:
    window.controls.rewind(step)
    run = window.simulator.run
    qtbot.waitUntil(lambda: run.status == "paused" and run.replayed is None, timeout=LONG)
    return run


def branch(qtbot: QtBot, window: Window, step: int, name: str, value: object) -> Run:
    """A branch of the run that the plots show, gone on with to its end."""
    move_to(qtbot, window, step)
    window.controls.set_knob(name, value)
    return to_the_end(qtbot, window)


def queues() -> list[threading.Thread]:
    """The threads that write into libraries."""
    return [thread for thread in threading.enumerate() if thread.name == QUEUE]


@pytest.fixture
def tree(qtbot: QtBot, window: Window) -> tuple[Window, list[Run]]:
    """A window that shows its branches: of a first run at 10, of that one at 25, and again of the first at 20, which it
    shows."""
    first = to_the_end(qtbot, window)
    lower = branch(qtbot, window, 10, "optimizer.lr", 0.002)
    under = branch(qtbot, window, 25, "clipping.kind", "norm")
    window.simulator.show(first)
    higher = branch(qtbot, window, 20, "optimizer.lr", 0.5)
    window.columns.show_page("branches")
    qtbot.waitUntil(lambda: not row(window, lower).shown, timeout=LONG)  # as the parent of the run shown before
    return window, [first, lower, under, higher]


def listed(window: Window) -> list[Member]:
    window.branches.refresh()
    return window.side.branches.model.rows


def row(window: Window, run: Run) -> Member:
    return next(member for member in listed(window) if member.id == run.id)


def choose(window: Window, run: Run) -> QAbstractItemView:
    window.branches.refresh()
    view = window.side.branches.list
    view.setFocus()
    window.side.branches.choose(run.id)
    return view


def editor_of(view: QAbstractItemView) -> QLineEdit:
    """The one that is open; one that was closed may still be there."""
    return next(editor for editor in view.viewport().findChildren(QLineEdit) if editor.isVisible())


def test_a_run_without_branches_says_how_one_is_made(qtbot: QtBot, window: Window) -> None:
    window.columns.show_page("branches")
    panel = window.side.branches
    assert (
        panel.empty.isVisible() and "Change a knob, and press Run" in panel.empty.text() and not panel.foot.isVisible()
    )
    to_the_end(qtbot, window)
    window.refresh()
    assert panel.empty.isVisible() and not panel.model.rowCount()


def test_a_tree_says_what_changed_at_each_fork(tree: tuple[Window, list[Run]]) -> None:
    window, (first, lower, under, higher) = tree
    members = listed(window)
    assert [member.id for member in members] == [first.id, lower.id, under.id, higher.id]
    assert [member.words.title for member in members] == [
        "Small",
        "optimizer.lr = 0.002",
        "clipping.kind = norm",
        "optimizer.lr = 0.5",
    ]
    assert [member.rails for member in members] == [(), (True,), (True, False), (False,)]
    assert [member.current for member in members] == [False, False, False, True]
    assert members[0].words.line.startswith("40 steps · loss ") and members[1].words.line.startswith(
        "from step 10 · 40 steps · loss "
    )
    assert (
        members[2].words.outcome == ("finished", "good") and "branched from optimizer.lr = 0.002" in members[2].spoken
    )
    assert members[3].spoken.endswith("the run that the plots show") and "shows" not in members[1].spoken
    panel = window.side.branches
    assert panel.count.text() == "3 branches" and panel.chosen.id == higher.id
    window.grab()


def test_one_that_stands_and_one_that_broke_say_where(qtbot: QtBot, make_window: Callable[..., Window]) -> None:
    window = make_window(model__activation="leaky_relu", model__depth=3)
    to_the_end(qtbot, window)
    run = move_to(qtbot, window, 12)
    window.columns.show_page("branches")
    assert (
        row(window, run).words.title == "standing at step 12"
        and row(window, run).words.line == "change a knob and press Run"
    )
    window.controls.set_knob("optimizer.lr", 1e6)
    qtbot.waitUntil(lambda: row(window, run).words.line == "standing at step 12: press Run", timeout=LONG)
    assert row(window, run).words.title == f"optimizer.lr = {value_text(1e6)}"
    to_the_end(qtbot, window)
    words = row(window, run).words
    assert (
        words.line == f"from step 12 · {len(run.history)} steps · diverged at {run.first_nonfinite_step}"
        and words.outcome
        == (
            "diverged",
            "bad",
        )
    )


def test_twins_are_listed_without_a_branch(qtbot: QtBot, window: Window) -> None:
    window.columns.show_page("branches")
    window.simulator.start_twins("optimizer.lr", 0.002)
    qtbot.waitUntil(lambda: window.simulator.run.over, timeout=LONG)
    window.refresh()
    members = listed(window)
    assert (
        [member.current for member in members] == [True, False]
        and members[1].slot >= MOST
        and not window.side.branches.delete.isEnabled()
    )
    assert window.side.branches.count.text() == "2 runs" and members[1].depth == 0
    window.branches.go(members[1].id)
    assert window.simulator.run.id == members[1].id


def test_the_keyboard_goes_to_a_member(qtbot: QtBot, tree: tuple[Window, list[Run]]) -> None:
    window, (first, lower, _, higher) = tree
    view = choose(window, higher)
    assert not window.side.branches.go.isEnabled()
    qtbot.keyClick(view, Qt.Key.Key_Home)
    qtbot.keyClick(view, Qt.Key.Key_Down)
    assert window.side.branches.go.isEnabled()
    qtbot.keyClick(view, Qt.Key.Key_Return)
    assert window.simulator.run is lower and row(window, lower).current and not row(window, higher).current
    assert window.simulator.requested.optimizer.lr == 0.002
    place = view.visualRect(window.side.branches.model.index(0)).center()
    qtbot.mouseClick(view.viewport(), LEFT, pos=place)
    qtbot.mouseDClick(view.viewport(), LEFT, pos=place)
    assert window.simulator.run is first and window.plots.loss.raw.envelope.count == 40


def test_going_away_stops_what_goes_and_offers_it(qtbot: QtBot, make_window: Callable[..., Window]) -> None:
    window = make_window(run__steps=ENDLESS)
    window.controls.run_or_pause()
    qtbot.waitUntil(lambda: len(window.simulator.run.history) > 30, timeout=LONG)
    first = window.simulator.run
    run = move_to(qtbot, window, 20)
    window.controls.run_or_pause()
    qtbot.waitUntil(lambda: run.own > 5, timeout=LONG)
    window.columns.show_page("branches")
    assert row(window, run).words.outcome == ("running", "accent")
    choose(window, first)
    qtbot.mouseClick(window.side.branches.go, LEFT)
    assert (
        window.simulator.run is first
        and "“same knobs, again from step 20” was stopped after" in window.message.text.text()
    )
    qtbot.mouseClick(window.message.action, LEFT)
    assert window.simulator.run is run
    qtbot.waitUntil(lambda: row(window, run).words.outcome[0] == "stopped", timeout=LONG)


def test_a_name_reaches_a_library_that_was_held(
    qtbot: QtBot, tree: tuple[Window, list[Run]], monkeypatch: pytest.MonkeyPatch
) -> None:
    window, (_, lower, _, _) = tree
    written(qtbot, lower)
    rename, refused = Library.rename, []

    def held(library: Library, run: str, title: str) -> None:
        if len(refused) < 2:
            refused.append(title)
            raise LibraryError("another program holds it")
        rename(library, run, title)

    monkeypatch.setattr(Library, "rename", held)
    window.branches.rename(lower.id, "Named")
    qtbot.waitUntil(lambda: entries()[lower.id].title == "Named", timeout=LONG)
    assert refused == ["Named", "Named"] and not window.message.message


def test_renamed_in_place(qtbot: QtBot, tree: tuple[Window, list[Run]]) -> None:
    window, (first, lower, _, _) = tree
    written(qtbot, first, lower)
    view = choose(window, lower)
    window.branches.tick(lower.id, True)
    qtbot.keyClick(view, Qt.Key.Key_F2)
    editor = editor_of(view)
    assert editor.text() == "optimizer.lr = 0.002" and editor.accessibleName() and editor.maxLength() == LONGEST_TITLE
    editor.clear()
    qtbot.keyClicks(editor, HOSTILE)
    qtbot.keyClick(editor, Qt.Key.Key_Return)
    qtbot.waitUntil(lambda: lower.name == HOSTILE, timeout=LONG)
    member = row(window, lower)
    assert (
        member.words.title == HOSTILE
        and member.words.note == "optimizer.lr = 0.002"
        and member.id == window.side.branches.chosen.id
    )
    document = QTextDocument()
    document.setHtml(member.tip)
    assert HOSTILE in document.toPlainText() and window.plots.overlays.places[0].title == HOSTILE
    qtbot.waitUntil(lambda: entries()[lower.id].title == HOSTILE, timeout=LONG)
    library = kept()
    assert library.load(lower.id).name == HOSTILE
    library.close()
    qtbot.mouseClick(window.side.branches.rename, LEFT)
    editor = editor_of(view)
    editor.clear()
    qtbot.keyClick(editor, Qt.Key.Key_Return)
    qtbot.waitUntil(lambda: not lower.name, timeout=LONG)
    assert row(window, lower).words == row(window, lower).words._replace(title="optimizer.lr = 0.002", note="")
    qtbot.waitUntil(lambda: entries()[lower.id].title == lower.title, timeout=LONG)
    window.grab()


def test_a_page_that_is_left_keeps_no_name_half_written(qtbot: QtBot, tree: tuple[Window, list[Run]]) -> None:
    window, (_, lower, _, _) = tree
    view = choose(window, lower)
    window.side.branches.rename.click()
    editor_of(view).setText("half")
    window.columns.show_page("diagnosis")
    qtbot.waitUntil(lambda: not view.findChildren(QLineEdit), timeout=LONG)
    assert lower.name != "half"


def test_enter_twice_at_once_names_a_branch_once(qtbot: QtBot, tree: tuple[Window, list[Run]], qtlog: Any) -> None:
    window, (first, lower, _, _) = tree
    written(qtbot, first, lower)
    view = choose(window, lower)
    qtbot.keyClick(view, Qt.Key.Key_F2)
    editor = editor_of(view)
    editor.setText("twice")
    for _ in range(2):  # as a key that is held down, while the window is busy
        qtbot.keyClick(editor, Qt.Key.Key_Return)
    qtbot.waitUntil(lambda: lower.name == "twice", timeout=LONG)
    QApplication.processEvents()
    assert not [record.message for record in qtlog.records if "does not belong" in record.message]


def test_what_is_being_written_stays_while_the_run_goes_on(qtbot: QtBot, make_window: Callable[..., Window]) -> None:
    window = make_window(run__steps=ENDLESS)
    window.controls.run_or_pause()
    qtbot.waitUntil(lambda: len(window.simulator.run.history) > 30, timeout=LONG)
    run = move_to(qtbot, window, 20)
    window.columns.show_page("branches")
    window.controls.run_or_pause()
    view = choose(window, run)
    qtbot.keyClick(view, Qt.Key.Key_F2)
    editor = editor_of(view)
    editor.clear()
    qtbot.keyClicks(editor, "half")
    line = row(window, run).words.line
    qtbot.waitUntil(lambda: row(window, run).words.line != line, timeout=LONG)
    assert editor.text() == "half" and editor.isVisible() and view.state() == QAbstractItemView.State.EditingState
    qtbot.keyClick(editor, Qt.Key.Key_Escape)
    assert run.name == ""


def test_shown_hidden_and_coloured(qtbot: QtBot, tree: tuple[Window, list[Run]]) -> None:
    window, (first, lower, under, higher) = tree
    window.refresh()
    panel, overlays = window.side.branches, window.plots.overlays
    assert row(window, first).slot >= MOST  # what the run of the plots branched from is there by itself
    view = choose(window, lower)
    qtbot.keyClick(view, Qt.Key.Key_Space)
    assert (
        overlays.slots[lower.id] == 0 and row(window, lower).shown and "A over the plots" in row(window, lower).spoken
    )
    assert overlays.places[0].columns["loss"][0][0] == 10  # where it parts from the run of the plots
    assert panel.show_over.text() == "Hide" and not window.simulator.busy  # Space was for the list
    index = panel.model.index(2)
    box = panel.rows.box(view.visualRect(index), index.data(BranchList.LOOK).depth).center()
    qtbot.mouseClick(view.viewport(), LEFT, pos=box)
    assert overlays.slots[under.id] == 1 and overlays.places[1].columns["loss"][0][0] == 10
    choose(window, lower)
    qtbot.mouseClick(panel.colour, LEFT)
    [menu] = panel.colour.findChildren(QMenu)
    assert menu.isVisible()
    assert (
        len(menu.actions()) == MOST
        and menu.actions()[0].text() == "A   this one"
        and "clipping.kind = norm" in menu.actions()[1].text()
    )
    menu.actions()[4].trigger()
    assert overlays.slots[lower.id] == 4 and overlays.slots[under.id] == 1
    menu.actions()[1].trigger()
    assert overlays.slots[lower.id] == 1 and overlays.slots[under.id] == 4
    qtbot.mouseClick(panel.show_over, LEFT)
    assert lower.id not in overlays.slots and row(window, lower).slot is None
    qtbot.mouseClick(panel.show_over, LEFT)
    assert overlays.slots[lower.id] == 1  # it has its colour again
    place = row(window, first).slot
    view = choose(window, first)
    assert not panel.colour.isEnabled()
    qtbot.keyClick(view, Qt.Key.Key_Space)
    assert place in overlays.hidden and not row(window, first).shown
    qtbot.keyClick(view, Qt.Key.Key_Space)
    assert place not in overlays.hidden and row(window, first).shown
    choose(window, higher)
    qtbot.keyClick(view, Qt.Key.Key_Space)
    assert higher.id not in overlays.slots and "what the plots show" in window.message.text.text()


def test_what_is_drawn_over_parts_elsewhere_when_another_is_shown(qtbot: QtBot, tree: tuple[Window, list[Run]]) -> None:
    window, (first, lower, under, higher) = tree
    for run in (lower, under):
        window.branches.tick(run.id, True)
    window.branches.go(under.id)
    slots, places = window.plots.overlays.slots, window.plots.overlays.places
    assert under.id not in slots
    if slots[lower.id] < MOST:
        assert places[slots[lower.id]].columns["loss"][0][0] == 25
    window.branches.tick(higher.id, True)
    window.refresh()
    higher_place = window.plots.overlays.slots[higher.id]
    assert places[higher_place].columns["loss"][0][0] == 10
    window.branches.go(first.id)
    assert window.plots.overlays.places[window.plots.overlays.slots[higher.id]].columns["loss"][0][0] == 20
    assert first.id not in window.plots.overlays.slots
    before = dict(window.plots.overlays.places)
    for _ in range(3):
        window.branches.refresh()
    assert before == window.plots.overlays.places  # nothing is drawn anew where nothing has changed


@pytest.mark.shares_window(False)
def test_deleted_with_what_came_of_it_and_brought_back(qtbot: QtBot, tree: tuple[Window, list[Run]]) -> None:
    window, (first, lower, under, higher) = tree
    window.branches.tick(under.id, True)
    panel, view = window.side.branches, choose(window, lower)
    qtbot.keyClick(view, Qt.Key.Key_Delete)
    assert [member.id for member in listed(window)] == [
        first.id,
        higher.id,
    ] and under.id not in window.plots.overlays.slots
    assert window.message.text.text() == "Deleted: “optimizer.lr = 0.002”, and 1 branch of it."
    qtbot.waitUntil(lambda: set(entries()) == {first.id, higher.id}, timeout=LONG)
    qtbot.mouseClick(window.message.action, LEFT)
    assert [member.id for member in listed(window)] == [first.id, lower.id, under.id, higher.id]
    qtbot.waitUntil(lambda: len(entries()) == 4, timeout=LONG)
    choose(window, first)
    assert not panel.delete.isEnabled()
    choose(window, higher)  # which the plots show
    qtbot.mouseClick(panel.delete, LEFT)
    assert window.simulator.run is first and len(listed(window)) == 3
    qtbot.waitUntil(lambda: len(entries()) == 3, timeout=LONG)
    view.setFocus()
    qtbot.keyClick(view, Qt.Key.Key_Z, Qt.KeyboardModifier.ControlModifier)
    assert len(listed(window)) == 4
    qtbot.waitUntil(lambda: len(entries()) == 4, timeout=LONG)


def test_one_that_still_goes_is_deleted_once_it_is_written(qtbot: QtBot, make_window: Callable[..., Window]) -> None:
    window = make_window(run__steps=ENDLESS)
    window.controls.run_or_pause()
    qtbot.waitUntil(lambda: len(window.simulator.run.history) > 30, timeout=LONG)
    first = window.simulator.run
    run = move_to(qtbot, window, 20)
    window.columns.show_page("branches")
    window.branches.refresh()
    assert window.side.branches.chosen.id == run.id
    window.controls.run_or_pause()
    qtbot.waitUntil(lambda: run.own > 0, timeout=LONG)
    qtbot.mouseClick(window.side.branches.delete, LEFT)
    assert window.simulator.run is first and not listed(window) and window.side.branches.empty.isVisible()
    library = kept()
    qtbot.waitUntil(lambda: {entry.id for entry in library.entries(deleted=True)} == {run.id}, timeout=LONG)
    assert [entry.id for entry in library.entries()] == [first.id]
    library.close()


@pytest.mark.shares_window(False)
def test_one_that_made_no_step_is_gone_without_a_trace(qtbot: QtBot, window: Window) -> None:
    before = queues()
    first = to_the_end(qtbot, window)
    run = move_to(qtbot, window, 20)
    window.branches.delete(run.id)
    assert window.simulator.run is first and list(window.simulator.family.members) == [first.id]
    assert "no step" in window.message.text.text() and not window.message.action.isVisible()
    assert queues() == before


@pytest.mark.shares_window(False)
def test_what_was_deleted_last_goes_with_the_window(qtbot: QtBot, tree: tuple[Window, list[Run]]) -> None:
    window, (first, lower, under, higher) = tree
    written(qtbot, first, lower, under, higher)
    window.branches.delete(lower.id)
    window.close()
    library = kept()
    assert {entry.id for entry in library.entries()} == {first.id, higher.id} and not library.entries(deleted=True)
    library.close()


@pytest.mark.shares_window(False)
def test_a_run_of_the_library_opens_with_its_family(qtbot: QtBot, tree: tuple[Window, list[Run]]) -> None:
    window, (first, lower, under, higher) = tree
    written(qtbot, first, lower, under, higher)
    window.controls.load(Preset(id="other", title="Other", experiment=Experiment()))
    window.columns.show_page("branches")
    window.refresh(whole=True)
    assert not listed(window)
    window.columns.show_page("runs")
    panel = window.side.runs
    qtbot.waitUntil(lambda: panel.model.rowCount() == 4, timeout=LONG)
    told = panel.model.index(panel.model.row_of(under.id)).data(Qt.ItemDataRole.AccessibleTextRole)
    assert "from step 25" in told and lower.id in panel.model.index(panel.model.row_of(under.id)).data(
        Qt.ItemDataRole.ToolTipRole
    )
    panel.choose(under.id)
    qtbot.mouseClick(panel.open, LEFT)
    qtbot.waitUntil(lambda: window.simulator.run.id == under.id, timeout=LONG)
    window.columns.show_page("branches")
    assert [member.id for member in listed(window)] == [first.id, lower.id, under.id, higher.id]
    assert [member.words.title for member in listed(window)][2:] == ["clipping.kind = norm", "optimizer.lr = 0.5"]
    window.runs.open(lower.id)  # of the family that is there
    assert window.simulator.run.id == lower.id and len(listed(window)) == 4
    again = branch(qtbot, window, 30, "optimizer.lr", 0.01)
    window.columns.show_page("branches")
    window.refresh(whole=True)
    assert row(window, again).depth == 2


class Shelf:
    """So much of a library as the search for relatives asks."""

    def __init__(self, parents: dict[str, str | None]) -> None:
        self.parents = parents

    def entries(self) -> list[Entry]:
        return [
            Entry(id, id, "small", "finished", float(number), 1, None, None, 1.0, "", (), False, parent, 1)
            for number, (id, parent) in enumerate(self.parents.items())
        ]

    def load(self, id: str) -> str:
        return id


def test_the_nearest_relatives_come_along() -> None:
    chain: dict[str, str | None] = {
        "run-0": None,
        **{f"run-{number}": f"run-{number - 1}" for number in range(1, 40)},
        "stranger": None,
    }
    run = Run(Preset(id="small", title="Small", experiment=Experiment()), Experiment(), id="run-20")
    found = relatives(Shelf(chain), run)  # type: ignore[arg-type]
    assert len(found) == FAMILY - 1 and set(found) <= {f"run-{number}" for number in range(14, 27)}
    assert found == sorted(found, key=lambda id: int(id[4:]))
    assert relatives(Shelf(chain), replace(run, id="stranger")) == []  # type: ignore[arg-type]


def large(count: int) -> tuple[Family, list[Run]]:
    first = Run(Preset(id="small", title="Small", experiment=Experiment()), Experiment(), id="run-0", started=0.0)
    runs = [first]
    for number in range(1, count):
        run = fork(runs[number // 3], 0)
        runs.append(replace(run, id=f"run-{number}", started=float(number), status="finished"))
    return Family(runs), runs


def test_what_is_chosen_stays_whatever_comes_and_goes() -> None:
    family, runs = large(20)
    model, overlays = BranchList(), Overlays()
    assert model.take(family, runs[0], overlays) and not model.take(family, runs[0], overlays)
    held = QPersistentModelIndex(model.index(model.row_of("run-7")))
    for run in family.offspring(runs[1]):
        family.members.pop(run.id)
    model.take(family, runs[0], overlays)
    assert held.isValid() == ("run-7" in family.members)
    held = QPersistentModelIndex(model.index(model.row_of("run-2")))
    family.add(runs[1])
    RunWriter(runs[2]).rename("named")
    model.take(family, runs[3] if "run-3" in family.members else runs[0], overlays)
    assert held.data() == "named" and [member.id for member in model.rows][:2] == ["run-0", "run-1"]
    del family.members["run-0"]  # such as one that was left out when a large family was opened
    model.take(family, runs[2], overlays)
    assert model.rows[model.row_of("run-2")].depth == 0 and held.data() == "named"
    for run in runs[3:0:-1]:
        family.add(run)  # in whatever order they come
    family.members = {id: family.members[id] for id in sorted(family.members, reverse=True)}
    model.take(family, runs[2], overlays)
    assert [member.id for member in model.rows if member.depth == 0] == ["run-1", "run-2"]


def test_a_refresh_of_thirty_costs_next_to_nothing() -> None:
    family, runs = large(30)
    model, overlays = BranchList(), Overlays()

    def cost() -> int:
        return calls_of(lambda: model.take(family, runs[0], overlays))

    whole = cost()
    assert cost() < whole / 100
    RunWriter(runs[-1]).rename("another")
    assert cost() < whole / 10


def test_every_control_has_a_name_and_a_help_text(qtbot: QtBot, tree: tuple[Window, list[Run]]) -> None:
    window, (_, lower, _, _) = tree
    panel = window.side.branches
    for button in panel.findChildren(QPushButton):
        assert button.toolTip() and button.text() and button.accessibleDescription()
    assert panel.list.accessibleName() and panel.list.accessibleDescription()
    view = choose(window, lower)
    view.customContextMenuRequested.emit(view.visualRect(view.currentIndex()).center())
    menu = next(menu for menu in view.findChildren(QMenu) if menu.isVisible())
    assert [action.text() for action in menu.actions() if action.text()][:3] == [
        "Go to (Enter)",
        "Rename (F2)",
        "Draw over plots (Space)",
    ]
    menu.close()


def test_nothing_is_listed_while_the_page_is_hidden(qtbot: QtBot, tree: tuple[Window, list[Run]]) -> None:
    window, _ = tree
    window.columns.show_page("diagnosis")
    taken = window.side.branches.model._state
    window.branches.tick(tree[1][1].id, True)
    window.refresh()
    assert window.side.branches.model._state is taken
    qtbot.keyClick(window, Qt.Key.Key_5, Qt.KeyboardModifier.ControlModifier)
    qtbot.waitUntil(
        lambda: window.side.page == "branches" and window.side.branches.model._state is not taken, timeout=LONG
    )
