"""Runs in the window: kept, listed, found, opened, repeated, noted down, drawn over the plots, compared, deleted,
brought back."""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from counting import calls_of
from PySide6.QtCore import QPoint, QRect, QSettings, Qt
from PySide6.QtGui import QFontMetrics, QImage, QPainter, QTextDocument
from PySide6.QtWidgets import QApplication, QPushButton
from pytestqt.qtbot import QtBot
from waiting import ENDLESS, LONG

from gradstudio.core.diagnosis.finding import Finding
from gradstudio.core.experiment import Experiment
from gradstudio.core.presets import Preset
from gradstudio.gui.diagnosis.findings_panel import Card
from gradstudio.gui.drawing.overlay import MOST
from gradstudio.gui.runs import run_search, runs_controller, runs_panel
from gradstudio.gui.runs.comparison_page import ComparisonPage, ComparisonTable
from gradstudio.gui.runs.run_list import RunList
from gradstudio.gui.runs.run_painter import RunPainter, title_with_room
from gradstudio.gui.runs.run_search import SORTS, RunSearch
from gradstudio.gui.runs.several_runs import SeveralRuns
from gradstudio.gui.services.library_reader import QUEUE
from gradstudio.gui.theme import theme
from gradstudio.gui.window import Window
from gradstudio.session.files import crash_file
from gradstudio.session.library import schema
from gradstudio.session.library.requests import Request
from gradstudio.session.library.run_entries import Entry
from gradstudio.session.library.store import Library
from gradstudio.session.library.writer import LibraryWriter
from gradstudio.session.record.run import Run
from gradstudio.session.record.run_writer import RunWriter
from gradstudio.session.record.snapshots import Snapshots
from gradstudio.session.record.watched_script import WatchedScript
from gradstudio.session.running.worker import Worker
from gradstudio.session.words import run_texts
from gradstudio.session.words.run_texts import RowTexts

LEFT = Qt.MouseButton.LeftButton
SMALL = {"model.width": 8, "model.depth": 1, "problem.batch_size": 16, "run.steps": 40, "run.device": "cpu"}
HOSTILE = "<b>bold</b> <img src=x> & =cmd()"


def kept() -> Library:
    return Library(Path(os.environ["GRADSTUDIO_LIBRARY"]))


def loaded(run: str) -> Run:
    library = kept()
    found = library.load(run)
    library.close()
    return found


def write(run: Run) -> None:
    writer = LibraryWriter(Path(os.environ["GRADSTUDIO_LIBRARY"]))
    writer.follow(run)
    assert writer.close(LONG / 1000)


def run_to_the_end(qtbot: QtBot, window: Window) -> str:
    """Begin a run and wait for its end; gives its id."""
    if window.simulator.has_begun:
        window.controls.restart()
    else:
        window.controls.run_or_pause()
    qtbot.waitUntil(lambda: window.simulator.run.over, timeout=LONG)
    return window.simulator.run.id


def show_runs(qtbot: QtBot, window: Window, count: int) -> None:
    window.columns.show_page("runs")
    qtbot.waitUntil(lambda: window.side.runs.model.rowCount() == count, timeout=LONG)
    qtbot.waitUntil(lambda: all(entry.outcome == "finished" for entry in window.side.runs.model.all), timeout=LONG)


@pytest.fixture(scope="module")
def library_of_three(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A library with three finished runs of the small preset, trained once, and their ids, the newest last."""
    path, ids = tmp_path_factory.mktemp("three") / "runs.sqlite3", []
    for rate in (Experiment().optimizer.lr, 0.5, 0.002):
        experiment = Experiment().with_values(SMALL | {"optimizer.lr": rate})
        run = Run(Preset(id="small", title="Small", experiment=experiment), experiment)
        Worker(run, snapshots=Snapshots()).run()
        assert run.status == "finished"
        writer = LibraryWriter(path)
        writer.follow(run)
        assert writer.close(LONG / 1000)
        ids.append(run.id)
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    return path, ids


@pytest.fixture
def three(
    qtbot: QtBot, make_window: Callable[..., Window], library_of_three: tuple[Path, list[str]]
) -> tuple[Window, list[str]]:
    """A window with three runs, the newest last and open, and its list of them."""
    path, ids = library_of_three
    shutil.copy(path, os.environ["GRADSTUDIO_LIBRARY"])
    window = make_window()
    show_runs(qtbot, window, 3)
    window.runs.open(ids[-1])
    qtbot.waitUntil(lambda: window.simulator.run.id == ids[-1], timeout=LONG)
    window.refresh(whole=True)
    return window, list(ids)


def entry(number: int, **more: object) -> Entry:
    plain = {
        "id": f"run-{number}", "title": f"Title {number}", "preset": "small", "outcome": "finished",
        "started": 1e9 + number, "steps": number,
        "final_loss": 1.0 / (number + 1), "accuracy": None, "seconds": 1.0, "note": "", "tags": (), "deleted": False,
    }  # fmt: skip
    return Entry(**{**plain, **more})  # type: ignore[arg-type]


def test_a_run_is_kept_and_the_list_says_so(qtbot: QtBot, window: Window) -> None:
    window.columns.show_page("runs")
    panel = window.side.runs
    assert panel.empty.isVisible() and "Press Run" in panel.empty.text()
    run = run_to_the_end(qtbot, window)
    show_runs(qtbot, window, 1)
    assert not panel.empty.isVisible()
    index = panel.model.index(0)
    assert (
        index.data() == "Small"
        and "finished" in index.data(Qt.ItemDataRole.AccessibleTextRole)
        and "40 steps" in panel.model.index(0).data(Qt.ItemDataRole.AccessibleTextRole)
    )
    assert index.data(RunList.LOOK).current and index.data(RunList.ROW).id == run


def test_a_watched_run_is_opened_and_never_trained(qtbot: QtBot, window: Window) -> None:
    source = run_to_the_end(qtbot, window)
    show_runs(qtbot, window, 1)  # it is written to its end
    script = WatchedScript("train.py", ("--lr", "3"), "ab" * 32, 1, (("optimizer", "SGD(lr=3)"),))
    remedies = ("mistakes.never_zero_grad=false",)
    finding = Finding(
        "loop_order", "warning", "Calls in the wrong order", 2, 39, (), "Called: step.", "1 < 2.", remedies
    )
    findings = {"loop_order": finding}
    crash = crash_file.path_of(window.context.library.path, "watched", 39)
    crash.parent.mkdir()
    crash_file.write(crash, crash_file.Structure(reason="test", step=39, unknown="of a test"), [])
    write(replace(loaded(source), id="watched", name="train.py", watched=script, findings=findings))
    show_runs(qtbot, window, 2)
    window.runs.open("watched")
    qtbot.waitUntil(lambda: window.simulator.run.id == "watched", timeout=LONG)
    window.refresh(whole=True)
    offered = window.findings.state.try_fixes
    qtbot.waitUntil(lambda: not offered.isHidden() and offered.text() == "Open crash file", timeout=LONG)
    offered.click()
    qtbot.waitUntil(lambda: window.columns.middle.page is not None, timeout=LONG)
    assert window.windowTitle().startswith(crash.name)
    window.close_large()
    (card,) = window.findings.cards
    assert card.meaning.text().startswith(
        "1 &lt; 2. Change in the script: <code>optimizer.zero_grad()</code> once a step"
    )
    run, controls, knobs = window.simulator.run, window.controls, window.knobs
    assert len(run.history) == 40 and window.plots.loss.run is run and window.plots.timeline.reach == 0
    assert not any(
        (
            controls.possible.can_run,
            controls.possible.can_step,
            controls.possible.has_begun,
            controls.possible.can_stop,
            controls.possible.is_trained_elsewhere,
        )
    )
    assert "train.py --lr 3" in knobs.reason.text() and "SGD(lr=3)" in knobs.reason.text()
    assert not any(part.isVisible() for part in (knobs.essentials, knobs.more, *knobs.groups))
    top, slower = window.top, window.commands.commands["slower"]
    assert not top.speed.isEnabled() and not slower.enabled()
    assert top.speed.toolTip() == "The program that trained this run sets its own speed"
    speed = top.speed.value()
    slower.call()
    assert top.speed.value() == speed
    window.columns.show_page("branches")
    window.refresh(whole=True)
    branches = window.side.branches
    assert branches.empty.isVisible() and "It has no meaning for this run" in branches.empty.text()
    before = window.simulator.requested
    for act in (
        controls.restart, controls.undo, controls.reset_knobs, partial(controls.rewind, 3),
        partial(controls.set_knob, "optimizer.lr", 0.5), partial(controls.save_preset_as, "mine"),
    ):  # fmt: skip
        window.message.hide()
        act()
        assert "watched in train.py" in window.message.text.text()
    assert window.simulator.run is run and window.simulator.requested is before
    window.columns.show_page("code")
    window.refresh(whole=True)
    assert "# script: train.py --lr 3" in window.side.code.text and not window.side.code.save.isEnabled()
    window.runs.run_again("watched")
    qtbot.waitUntil(lambda: "run that script again" in window.message.text.text(), timeout=LONG)
    controls.open_preset("rnn-explosion")
    window.refresh(whole=True)
    assert (
        controls.possible.can_run
        and knobs.essentials.isVisible()
        and knobs.essentials.isEnabled()
        and not knobs.reason.text()
    )
    assert top.speed.isEnabled() and slower.enabled() and "unlimited" in top.speed.toolTip()
    window.columns.show_page("branches")
    window.refresh(whole=True)
    assert "Change a knob" in branches.empty.text()


def test_code_that_is_long_breaks_in_the_narrow_column(qtbot: QtBot) -> None:
    card = Card()
    qtbot.addWidget(card)
    theme.apply_style(card)
    code = "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)"
    card.show_text("bad", "Title", "", "Text.", f"Change in the script: `{code}` before `optimizer.step()`.")
    assert card.minimumSizeHint().width() < 300
    shown = QTextDocument()
    shown.setHtml(card.meaning.text())
    assert code.replace("norm_(", "norm_( ") in shown.toPlainText()


def test_a_run_of_another_program_is_followed_and_asked(qtbot: QtBot, window: Window) -> None:
    source = run_to_the_end(qtbot, window)
    show_runs(qtbot, window, 1)  # it is written to its end
    whole = loaded(source)
    live = replace(whole, id="live", status="running", history=whole.history.until(20))
    heard: list[Request] = []
    writer = LibraryWriter(Path(os.environ["GRADSTUDIO_LIBRARY"]))
    writer.follow(live, on_request=heard.append)
    window.columns.show_page("runs")
    qtbot.waitUntil(lambda: window.side.runs.model.rowCount() == 2, timeout=LONG)
    window.runs.open("live")
    qtbot.waitUntil(lambda: window.simulator.run.id == "live", timeout=LONG)
    run, controls = window.simulator.run, window.controls
    assert (
        len(run.history) == 20
        and controls.possible.is_trained_elsewhere
        and controls.possible.can_run
        and controls.possible.can_stop
    )
    assert not controls.possible.can_step and not controls.possible.has_begun
    live.history.catch_up(whole.history.until(30))
    qtbot.waitUntil(lambda: len(run.history) == 30, timeout=LONG)
    assert run.history.column("loss").tobytes() == whole.history.column("loss", 0, 30).tobytes()
    assert run.history.layer_metric("grad_norm").tobytes() == whole.history.layer_metric("grad_norm", 0, 30).tobytes()
    controls.set_knob("optimizer.lr", 0.5)
    assert "Another program trains this run" in window.message.text.text()

    def told() -> set[str]:
        return {task.words for task in window.jobs.tasks if task.words.startswith("Asked ")}

    controls.run_or_pause()
    controls.request_asked.emit("rate", 0.25)
    qtbot.waitUntil(lambda: heard == [Request("pause"), Request("rate", 0.25)], timeout=LONG)
    assert told() == {"Asked the program that trains to pause: it obeys at its next step",
                      "Asked the program that trains to change its learning rate: it obeys at its next step"}  # fmt: skip
    RunWriter(live).set_status("paused")
    qtbot.waitUntil(lambda: run.status == "paused", timeout=LONG)
    assert window.message.message == "the program that trains has paused, as it was asked to." and len(told()) == 1
    RunWriter(live).note("notice", "slower from here on", value=0.25)
    qtbot.waitUntil(lambda: not told(), timeout=LONG)
    qtbot.waitUntil(lambda: window.message.message == "slower from here on", timeout=LONG)  # as it says itself
    controls.run_or_pause()
    controls.stop()
    qtbot.waitUntil(lambda: heard[2:] == [Request("resume"), Request("stop")], timeout=LONG)
    live.history.catch_up(whole.history)
    RunWriter(live).set_status("finished")
    qtbot.waitUntil(lambda: run.over, timeout=LONG)
    assert len(run.history) == 40 and controls.possible.has_begun and controls.possible.is_trained_here and not told()
    assert writer.close(LONG / 1000)


def test_closing_in_mid_run_ends_soon_and_keeps_the_run(qtbot: QtBot, make_window: Callable[..., Window]) -> None:
    window = make_window(run__steps=ENDLESS)
    window.simulator.set_speed(2000.0)
    window.controls.run_or_pause()
    qtbot.waitUntil(lambda: len(window.simulator.run.history) > 50, timeout=LONG)
    run = window.simulator.run
    window.close()
    library = kept()
    loaded = library.load(run.id)
    library.close()
    assert loaded.status == "stopped" and len(loaded.history) == len(run.history) > 50
    assert loaded.history.column("loss").tobytes() == run.history.column("loss").tobytes()


def test_search_filter_and_order(qtbot: QtBot, three: tuple[Window, list[str]]) -> None:
    window, ids = three
    panel = window.side.runs
    assert [panel.model.index(row).data(RunList.ROW).id for row in range(3)] == ids[::-1]
    panel.search.setFocus()
    qtbot.keyClicks(panel.search, "small FINISHED")
    assert panel.model.rowCount() == 3
    qtbot.keyClicks(panel.search, " nowhere")
    assert (
        panel.model.rowCount() == 0
        and panel.empty.isVisible()
        and "search" in panel.empty.text()
        and "0 of 3" in panel.count.text()
    )
    qtbot.keyClick(panel.search, Qt.Key.Key_Escape)
    assert panel.model.rowCount() == 3
    panel.sort.setCurrentIndex(list(SORTS).index("loss"))
    losses = [panel.model.index(row).data(RunList.ROW).final_loss for row in range(3)]
    assert losses == sorted(losses)
    assert panel.outcome.findData("finished") > 0 and panel.preset.findData("small") > 0


def test_open_with_the_keyboard_asks_for_its_knobs(qtbot: QtBot, three: tuple[Window, list[str]]) -> None:
    window, ids = three
    panel = window.side.runs
    panel.search.setFocus()
    qtbot.keyClick(panel.search, Qt.Key.Key_Down)
    qtbot.keyClick(panel.list, Qt.Key.Key_End)
    qtbot.keyClick(panel.list, Qt.Key.Key_Return)
    qtbot.waitUntil(lambda: window.simulator.run.id == ids[0], timeout=LONG)
    window.refresh()
    assert window.plots.loss.raw.envelope.count == 40
    assert window.simulator.requested.optimizer.lr == Experiment().optimizer.lr
    assert panel.model.index(2).data(RunList.LOOK).current


def test_run_again_repeats_it_bit_for_bit(qtbot: QtBot, three: tuple[Window, list[str]]) -> None:
    window, ids = three
    panel = window.side.runs
    first = window.simulator.run
    panel.choose(ids[1])
    qtbot.mouseClick(panel.again, LEFT)
    qtbot.waitUntil(lambda: window.simulator.run.id not in ids and window.simulator.run.over, timeout=LONG)
    library = kept()
    assert (
        window.simulator.run.history.column("loss").tobytes() == library.load(ids[1]).history.column("loss").tobytes()
    )
    library.close()
    assert first.history.column("loss").tobytes() != window.simulator.run.history.column("loss").tobytes()


def test_note_and_tags_are_saved_when_they_are_left_and_shown_as_they_are(
    qtbot: QtBot, three: tuple[Window, list[str]]
) -> None:
    window, ids = three
    panel = window.side.runs
    panel.choose(ids[1])
    panel.notes.tags.setFocus()
    qtbot.keyClicks(panel.notes.tags, "class,  lr  0.5 , class")
    panel.notes.note.setFocus()
    panel.notes.note.insertPlainText(HOSTILE)
    panel.choose(ids[0])
    library = kept()

    def saved() -> Entry:
        return next(entry for entry in library.entries() if entry.id == ids[1])

    qtbot.waitUntil(lambda: saved().note == HOSTILE and saved().tags == ("class", "lr 0.5"), timeout=LONG)
    library.close()
    assert panel.notes.note.toPlainText() == ""
    qtbot.waitUntil(lambda: panel.model.entry(ids[1]).note == HOSTILE, timeout=LONG)
    panel.search.setText("=cmd() class")
    assert panel.model.rowCount() == 1
    document = QTextDocument()
    document.setHtml(panel.model.index(0).data(Qt.ItemDataRole.ToolTipRole))
    assert HOSTILE in document.toPlainText()
    window.grab()


def test_delete_and_undo(qtbot: QtBot, three: tuple[Window, list[str]]) -> None:
    window, ids = three
    panel = window.side.runs
    panel.list.setFocus()
    panel.choose(ids[1])
    qtbot.keyClick(panel.list, Qt.Key.Key_Delete)
    qtbot.waitUntil(lambda: panel.model.rowCount() == 2, timeout=LONG)
    assert window.message.isVisible() and window.message.action.text() == "Undo"
    qtbot.mouseClick(window.message.action, LEFT)
    qtbot.waitUntil(lambda: panel.model.rowCount() == 3, timeout=LONG)
    panel.list.selectAll()
    assert not panel.open.isEnabled() and panel.compare.isEnabled()
    qtbot.mouseClick(panel.delete, LEFT)
    qtbot.waitUntil(lambda: panel.model.rowCount() == 0, timeout=LONG)
    panel.list.setFocus()
    qtbot.keyClick(panel.list, Qt.Key.Key_Z, Qt.KeyboardModifier.ControlModifier)
    qtbot.waitUntil(lambda: panel.model.rowCount() == 3, timeout=LONG)


def test_what_was_deleted_is_gone_with_the_window(qtbot: QtBot, three: tuple[Window, list[str]]) -> None:
    window, ids = three
    window.runs.delete([ids[0]])
    qtbot.waitUntil(lambda: window.side.runs.model.rowCount() == 2, timeout=LONG)
    window.close()
    library = kept()
    assert not library.entries(deleted=True) and len(library.entries()) == 2
    library.close()


def test_a_deleted_run_that_went_on_stays(qtbot: QtBot, three: tuple[Window, list[str]]) -> None:
    window, ids = three
    window.runs.delete([ids[0]])
    qtbot.waitUntil(lambda: window.side.runs.model.rowCount() == 2, timeout=LONG)
    library = kept()
    library.restore([ids[0]])  # as the writer does when the run goes on
    window.close()
    assert len(library.entries()) == 3
    library.close()


def test_runs_are_drawn_over_hidden_and_taken_off(qtbot: QtBot, three: tuple[Window, list[str]]) -> None:
    window, ids = three
    panel, plots = window.side.runs, window.plots
    panel.list.setFocus()
    panel.choose(ids[0])
    qtbot.keyClick(panel.list, Qt.Key.Key_Space)
    qtbot.waitUntil(lambda: list(plots.overlays.slots) == [ids[0]], timeout=LONG)
    assert not window.simulator.busy  # Space was for the list
    panel.list.scrollTo(panel.model.index(1))
    box = panel.rows.box(panel.list.visualRect(panel.model.index(1))).center()
    qtbot.mouseClick(panel.list.viewport(), LEFT, pos=QPoint(box.x(), box.y()))
    qtbot.waitUntil(lambda: len(plots.overlays.slots) == 2, timeout=LONG)
    assert (
        plots.chips.isVisible()
        and panel.model.index(2).data(RunList.LOOK).slot == 0
        and panel.model.index(1).data(RunList.LOOK).slot == 1
    )
    curve = plots.loss.overlay._curves[0]._path.path()
    assert curve.elementCount() > 30
    plots.step_cursor.move(20)
    library = kept()
    loss = library.load(ids[0]).history.column("loss")[20]
    library.close()
    assert plots.overlays.places[0].at("loss", 20) == loss and ">A</span>" in plots.loss.legend_label.text()
    chip = plots.chips.chips[0]
    qtbot.mouseClick(chip.toggle, LEFT)
    assert (
        list(plots.overlays.by_place) == [1]
        and "hidden" in chip.toggle.accessibleName()
        and 0 not in plots.loss.overlay._curves
    )
    qtbot.mouseClick(chip.toggle, LEFT)
    assert 0 in plots.loss.overlay._curves
    qtbot.mouseClick(chip.remove, LEFT)
    assert list(plots.overlays.places) == [1] and panel.model.index(2).data(RunList.LOOK).slot is None
    qtbot.mouseClick(plots.chips.clear, LEFT)
    assert not plots.chips.isVisible() and not plots.loss.overlay._curves


def test_a_run_that_went_non_finite_leaves_its_mark(qtbot: QtBot, make_window: Callable[..., Window]) -> None:
    window = make_window(optimizer__lr=1e6, model__activation="leaky_relu", model__depth=3)
    run = run_to_the_end(qtbot, window)
    run_to_the_end(qtbot, window)  # another one for the plots
    window.columns.show_page("runs")
    qtbot.waitUntil(lambda: [entry.outcome for entry in window.side.runs.model.all] == ["nonfinite"] * 2, timeout=LONG)
    window.runs.tick(run, True)
    qtbot.waitUntil(lambda: len(window.plots.overlays.places) == 1, timeout=LONG)
    curve = window.plots.loss.overlay._curves[0]
    assert any(len(marks.steps) and marks.isVisible() for marks in curve._marks)


def test_what_is_drawn_over_costs_nothing_while_nothing_changes(qtbot: QtBot, three: tuple[Window, list[str]]) -> None:
    window, ids = three
    for run in ids[:2]:
        window.runs.tick(run, True)
    qtbot.waitUntil(lambda: len(window.plots.overlays.places) == 2, timeout=LONG)
    laid_out = []
    for curve in window.plots.loss.overlay._curves.values():
        original = curve.lay_out
        curve.lay_out = lambda *given, original=original: (laid_out.append(1), original(*given))  # type: ignore[method-assign]
    for _ in range(5):
        window.refresh()
        window.plots.loss.settle()
    assert not laid_out
    window.plots.steps.zoom(5, 25)
    assert laid_out


def test_no_more_runs_are_drawn_over_than_can_be_told_apart(qtbot: QtBot, three: tuple[Window, list[str]]) -> None:
    window, ids = three
    library = kept()
    run = library.load(ids[0])
    library.close()
    from gradstudio.gui.runs.run_overlay import overlaid

    for number in range(MOST + 2):
        window.plots.overlays.add(overlaid(replace(run, id=f"copy {number}")))
    assert len(window.plots.overlays.places) == MOST
    window.runs.tick(ids[0], True)
    assert window.message.isVisible() and str(MOST) in window.message.text.text()


def compared(qtbot: QtBot, window: Window) -> ComparisonPage:
    """Return the comparison that opens in the middle."""
    qtbot.waitUntil(lambda: isinstance(window.columns.middle.page, ComparisonPage), timeout=LONG)
    page = window.columns.middle.page
    assert isinstance(page, ComparisonPage)
    return page


def test_compare_shows_the_knob_that_differs(qtbot: QtBot, three: tuple[Window, list[str]]) -> None:
    window, _ = three
    panel = window.side.runs
    panel.list.selectAll()
    qtbot.mouseClick(panel.compare, LEFT)
    dialog = compared(qtbot, window)
    assert dialog.drawn == [0, 1, 2] and dialog.curves.isVisible()  # none is over the plots, so each gets a place
    rows = {label: cells for label, cells, _ in dialog.model.rows}
    assert rows["optimizer.lr"] == ["0.002", "0.5", f"{Experiment().optimizer.lr:g}"] and "model.width" not in rows
    assert rows["loss as the first run's"][1].startswith("different from step 1")
    qtbot.mouseClick(dialog.copy, LEFT)
    assert "optimizer.lr\t0.002\t0.5" in dialog.model.text()
    qtbot.waitUntil(lambda: dialog.table.model() is dialog.model, timeout=LONG)
    assert dialog.table.columnSpan(0, 0) == 4 and dialog.table.currentIndex().row() == 1
    found = dialog.model.found
    window.close_large()
    qtbot.waitUntil(lambda: not window.findChildren(ComparisonPage), timeout=LONG)
    titled = replace(found, members=[replace(member, title=" =1+1") for member in found.members])
    assert ComparisonTable(titled, [None] * 3).text().startswith("\t'=1+1\t'=1+1\t'=1+1\n")


def test_what_became_of_a_damaged_library_is_said(window: Window) -> None:
    window.simulator._library_writer.notice = "The run library was damaged"
    window.refresh(whole=True)
    assert window.message.isVisible() and "was damaged" in window.message.text.text()
    assert not window.simulator.library_problem


def test_compare_with_what_is_drawn_over(qtbot: QtBot, three: tuple[Window, list[str]]) -> None:
    window, ids = three
    window.runs.tick(ids[0], True)
    qtbot.waitUntil(lambda: len(window.plots.overlays.places) == 1, timeout=LONG)
    qtbot.mouseClick(window.plots.chips.compare, LEFT)
    dialog = compared(qtbot, window)
    assert [member.run for member in dialog.model.found.members] == [ids[2], ids[0]]
    assert dialog.model.headerData(2, Qt.Orientation.Horizontal) == "A  Small"
    dialog.grab()
    window.close_large()


def test_another_preset_in_mid_run_keeps_the_run_and_offers_it(
    qtbot: QtBot, make_window: Callable[..., Window]
) -> None:
    window = make_window(run__steps=ENDLESS)
    window.controls.run_or_pause()
    qtbot.waitUntil(lambda: len(window.simulator.run.history) > 5, timeout=LONG)
    left = window.simulator.run
    window.controls.load(Preset(id="other", title="Other", experiment=Experiment()))
    assert "kept in the library" in window.message.text.text() and window.message.action.isVisible()
    qtbot.mouseClick(window.message.action, LEFT)
    qtbot.waitUntil(lambda: window.simulator.run.id == left.id, timeout=LONG)
    assert window.simulator.run.status == "stopped" and window.windowTitle().startswith("Small")


def test_a_run_that_was_read_before_its_end_was_written_is_read_again(
    qtbot: QtBot, make_window: Callable[..., Window]
) -> None:
    monkeypatch = pytest.MonkeyPatch()
    window = make_window(run__steps=ENDLESS)
    window.controls.run_or_pause()
    qtbot.waitUntil(lambda: len(window.simulator.run.history) > 5, timeout=LONG)
    left = window.simulator.run
    with contextlib.closing(schema.connect(window.context.library.path)) as other:  # it may have no tables yet
        running = "SELECT count(*) FROM runs WHERE status = 'running'"
        qtbot.waitUntil(lambda: other.execute(running).fetchone()[0] == 1, timeout=LONG)
        other.execute("BEGIN IMMEDIATE")  # nobody else writes meanwhile
        window.controls.load(Preset(id="other", title="Other", experiment=Experiment()))
        window.runs.open(left.id)
        monkeypatch.setattr(window.jobs, "hand_over", lambda: None)
        read = window.context.library.ask(lambda _: None)  # after it
        qtbot.waitUntil(read.ended.is_set, timeout=LONG)
        other.execute("ROLLBACK")
    qtbot.waitUntil(lambda: not window.simulator.leaves(left.id), timeout=LONG)
    monkeypatch.undo()
    qtbot.waitUntil(lambda: window.simulator.run.id == left.id, timeout=LONG)
    assert window.simulator.run.status == "stopped"


def test_a_library_that_cannot_be_written_is_said_once(
    qtbot: QtBot, make_window: Callable[..., Window], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "library").write_text("a file where a folder should be")
    monkeypatch.setenv("GRADSTUDIO_LIBRARY", str(tmp_path / "library" / "runs.sqlite3"))
    window = make_window()
    run_to_the_end(qtbot, window)
    qtbot.waitUntil(lambda: window.message.isVisible() and "library" in window.message.text.text(), timeout=LONG)
    window.message.hide()
    window.refresh()
    assert not window.message.isVisible()
    (tmp_path / "library").unlink()  # so that it can be written after all


def test_nothing_is_asked_of_the_library_while_the_list_is_hidden(
    qtbot: QtBot, make_window: Callable[..., Window], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs_panel, "LOOK_EVERY", 5)
    window = make_window()
    run_to_the_end(qtbot, window)
    looks: list[object] = []
    window.side.runs.look_asked.connect(lambda: looks.append(window.side.page))
    assert QUEUE not in [thread.name for thread in threading.enumerate()]
    show_runs(qtbot, window, 1)
    assert looks
    window.columns.show_page("diagnosis")
    looks.clear()
    qtbot.wait(30)
    assert not looks


def test_a_thousand_runs_are_listed_and_filtered_at_once() -> None:
    def listed(runs: int) -> RunList:
        model = RunList()
        model.take(
            [entry(number, final_loss=math.nan if number % 7 == 0 else 1.0 / (number + 1)) for number in range(runs)]
        )
        for search in ("title 99", "", "title"):
            model.find(RunSearch(search, "loss"))
        return model

    assert calls_of(lambda: listed(1000)) < 2.5 * calls_of(lambda: listed(500))  # what is quadratic takes minutes
    model = listed(1000)
    assert model.rowCount() == 1000
    losses = [model.index(row).data(RunList.ROW).final_loss for row in range(1000)]
    assert losses[0] == 1 / 1000 and losses[-1] != losses[-1]


def test_a_refresh_keeps_what_is_chosen() -> None:
    from PySide6.QtCore import QPersistentModelIndex

    model = RunList()
    model.take([entry(number) for number in range(10)])
    held = QPersistentModelIndex(model.index(model.row_of("run-4")))
    model.take([entry(number, steps=99) for number in range(2, 14)])
    assert held.isValid() and held.data(RunList.ROW).id == "run-4" and model.rowCount() == 12
    assert [model.index(row).data(RunList.ROW).id for row in range(12)] == [
        f"run-{number}" for number in range(13, 1, -1)
    ]
    model.find(RunSearch("title 5"))
    assert not held.isValid() and model.rowCount() == 1


def test_when_a_run_began_in_words() -> None:
    now = time.mktime((2026, 3, 10, 12, 0, 0, 0, 0, -1))
    assert run_texts.when(now, now) == "today 12:00"
    assert run_texts.when(now - 86400, now) == "yesterday 12:00"
    assert run_texts.when(now - 20 * 86400, now) == "18 Feb 12:00"
    assert run_texts.when(now - 400 * 86400, now) == "2025-02-03"


def test_the_name_of_a_watched_script_is_left_out_where_there_is_no_room_for_it() -> None:
    watched = entry(1, preset="train", watched=True, steps=1234, final_loss=0.0123)
    words = run_texts.words(watched, 1e9)
    assert words.line.endswith(" · 1,234 steps · loss 0.0123 · watched in train")
    assert words.short == words.line.removesuffix(" in train") and "watched in train" in run_texts.tip(watched)

    def drawn(texts: RowTexts, width: int) -> QImage:
        image = QImage(600, 60, QImage.Format.Format_RGB32)
        image.fill(0)
        with QPainter(image) as painter:
            RunPainter().paint_words(painter, QRect(0, 7, width, 46), texts, current=False)
        return image

    metrics = QFontMetrics(theme.font(0.88))
    for room, line in (
        (metrics.horizontalAdvance(words.line), words.line), (metrics.horizontalAdvance(words.short), words.short),
        (metrics.horizontalAdvance(words.short) - 1, words.short.removesuffix(" · watched")),
    ):  # fmt: skip
        assert drawn(words, room) == drawn(words._replace(line=line, short=""), room)


def test_every_button_of_the_panel_has_a_help_text(window: Window) -> None:
    for button in window.side.runs.findChildren(QPushButton):
        assert button.toolTip() and button.text()


def test_a_run_that_is_not_in_the_library_is_waited_for_and_then_refused(
    qtbot: QtBot, window: Window, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs_controller, "RETRY", 0)
    told: list[str] = []
    monkeypatch.setattr(window.message, "show_news", told.append)
    window.runs.open("gone", tries=1)
    qtbot.waitUntil(lambda: window.message.message.startswith("The run cannot be opened: no run gone"), timeout=LONG)
    assert told == ["The run cannot be opened yet; it is tried again."]


def test_several_runs_are_tagged_drawn_and_reported(
    qtbot: QtBot, three: tuple[Window, list[str]], tmp_path: Path
) -> None:
    window, _ = three
    panel = window.side.runs
    show_runs(qtbot, window, 3)
    panel.list.selectAll()
    assert len(panel.chosen) == 3
    several = window.runs.findChild(SeveralRuns)
    assert several is not None
    several.tag(panel.chosen, "lab 1, seen")
    qtbot.waitUntil(lambda: all(entry.tags == ("lab 1", "seen") for entry in panel.model.all), timeout=LONG)
    several.tag(panel.chosen[:1], "-seen, mine")
    qtbot.waitUntil(lambda: sorted(map(len, (entry.tags for entry in panel.model.all))) == [2, 2, 2], timeout=LONG)
    qtbot.waitUntil(lambda: sum("mine" in entry.tags for entry in panel.model.all) == 1, timeout=LONG)
    assert sum("seen" in entry.tags for entry in panel.model.all) == 2
    several.export(panel.chosen, str(tmp_path))
    qtbot.waitUntil(lambda: len(list(tmp_path.glob("*.html"))) == 3, timeout=LONG)
    panel.draw_asked.emit(panel.chosen)
    qtbot.waitUntil(lambda: len(window.plots.overlays.slots) >= 2, timeout=LONG)


def test_a_search_is_saved_found_again_and_forgotten(qtbot: QtBot, three: tuple[Window, list[str]]) -> None:
    window, _ = three
    panel = window.side.runs
    show_runs(qtbot, window, 3)
    panel.search.setText("small")
    panel.sort.setCurrentIndex(panel.sort.findData("loss"))
    panel.save_search("  the  small ones ")
    panel.search.setText("")
    panel.sort.setCurrentIndex(0)
    found = run_search.load_searches()
    assert found == {"the small ones": RunSearch("small", "loss")}
    panel.apply(found["the small ones"])
    assert panel.search.text() == "small" and panel.sort.currentData() == "loss"
    panel._forget("the small ones")
    assert run_search.load_searches() == {}
    QSettings().setValue("searches", '{"a": ["x", "no such order", "", ""], "b": 3}')
    assert run_search.load_searches() == {}


def test_the_change_of_a_branch_is_told_where_there_is_little_room(qapp: QApplication) -> None:
    metrics = QFontMetrics(theme.font())
    title = "Deep sigmoid vanishing: optimizer.lr = 0.3"
    whole = metrics.horizontalAdvance(title)
    assert title_with_room(metrics, title, whole) == title
    fitted = title_with_room(metrics, title, whole - 40)
    assert fitted.endswith("…: optimizer.lr = 0.3") and metrics.horizontalAdvance(fitted) <= whole - 40
    for text in (title, "A name: with a colon", "No change"):
        assert metrics.horizontalAdvance(title_with_room(metrics, text, 60)) <= 60
