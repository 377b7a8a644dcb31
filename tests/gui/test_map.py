"""The page of maps: it shows what the file holds, a click opens the very run of a cell, and nothing is lost on the way.
Cells are trained in this process."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtCore import QPoint, QPointF, Qt
from PySide6.QtWidgets import QApplication, QMenu
from pytestqt.qtbot import QtBot
from session.map.test_mapper import Inline
from waiting import LONG

from gradstudio.core import files
from gradstudio.core.experiment import Experiment
from gradstudio.core.presets import LessonStep, MapProposal
from gradstudio.gui.map import map_controller
from gradstudio.gui.map.plan_dialog import NO_THIRD, PlanDialog
from gradstudio.gui.services import file_choice
from gradstudio.gui.window import Window
from gradstudio.session.map import journal, mapper, time_needed
from gradstudio.session.map.journal import Journal, JournalError
from gradstudio.session.map.map_plan import Job, Plan, Spot, read_plan
from gradstudio.session.map.outcome import CellResult
from gradstudio.session.record.run import Run
from gradstudio.session.record.watched_script import WatchedScript

X, Y = "optimizer.lr=0.01:1000:log", "model.init_gain=0.1:10:log"


@pytest.fixture(autouse=True)
def inline(monkeypatch: pytest.MonkeyPatch) -> type[Inline]:
    crew = type("Crew", (Inline,), {})
    monkeypatch.setattr(mapper, "Pool", crew)
    monkeypatch.setattr(time_needed, "Pool", crew)
    return crew


def opened(qtbot: QtBot, window: Window) -> Window:
    window.activateWindow()
    qtbot.waitUntil(window.isActiveWindow, timeout=LONG)
    if window.columns.middle.page is not window.side.map:  # as the window before left it
        qtbot.keyClick(window, Qt.Key.Key_8, Qt.KeyboardModifier.ControlModifier)
    assert window.columns.middle.page is window.side.map and window.side.map.isVisible()
    return window


def plan_of(window: Window, *, cells: int = 4, steps: int = 12, by: str = "") -> Plan:
    experiment = window.simulator.requested.with_value("run.steps", steps)
    preset = window.simulator.preset.model_copy(update={"experiment": experiment})
    return read_plan(preset, X, Y, cells, by, 1, full=True)


def finished(qtbot: QtBot, window: Window) -> journal.JournalContent:
    """Wait until the map is made and shown; return what its file holds."""
    panel = window.side.map
    qtbot.waitUntil(lambda: not window.map.going and panel.state.text().startswith("Whole"), timeout=LONG)
    (path,) = files.user_library().parent.glob("maps/*.map")
    return journal.load(path)


def mapped(qtbot: QtBot, window: Window) -> journal.JournalContent:
    window.map.make(plan_of(opened(qtbot, window)))
    return finished(qtbot, window)


def middle(window: Window, spot: Spot) -> QPoint:
    """Return the pixel in the middle of a cell."""
    picture = window.side.map.picture
    area = picture.area(spot.panel)
    across, up = (spot.column + 0.5) / 4, (spot.row + 0.5) / 4
    return QPointF(area.left() + across * area.width(), area.bottom() - up * area.height()).toPoint()


def test_a_map_is_planned_made_read_and_its_cell_opened(qtbot: QtBot, window: Window) -> None:
    panel = opened(qtbot, window).side.map
    assert panel.state.text() and not panel.picture.isVisible() and not panel.export.isEnabled()
    qtbot.mouseClick(panel.new, Qt.MouseButton.LeftButton)
    dialog = window.findChild(PlanDialog)
    assert dialog is not None and dialog.across.text == "optimizer.lr=0.003:3:log"
    qtbot.waitUntil(
        lambda: dialog.time.text().startswith(("It takes about ", "It is seen coarsely after about ")), timeout=LONG
    )
    before = dialog.told.text()
    dialog.up.knob.setCurrentText("model.depth")  # of which there are only so many
    dialog.up.show_text("model.depth=1:3")
    assert dialog.told.text().startswith(f"{3 * dialog.cells.value():,} cells, ")
    dialog.up.show_text("model.init_gain=0.03:30:log")
    assert dialog.told.text() == before
    for knob, texts in (
        ("clipping.kind", "none,norm,value,agc,per_tensor,per_module,per_network,zclip,adagc,per_example"),
        ("model.residual", "false,true"),
    ):
        dialog.third.setCurrentText(knob)
        assert dialog.values.text == texts  # all of them, until a person unticks some
    dialog.values.boxes[0].click()
    assert dialog.values.text == "true" and dialog.told.text() == before
    dialog.third.setCurrentText("model.depth")
    assert dialog.values.line.isVisible() and not dialog.values.boxes
    dialog.values.line.setText("1,2")
    assert dialog.told.text().startswith(f"{2 * dialog.cells.value() ** 2:,} cells, ")
    dialog.third.setCurrentText(NO_THIRD)
    dialog.across.high.setText("0.001")
    dialog.accept()
    assert "FROM must be below TO" in dialog.problem.text() and dialog.isVisible()
    for fields, text in ((dialog.across, X), (dialog.up, Y)):
        fields.show_text(text)
    dialog.cells.setValue(4)
    dialog.steps.setValue(12)
    dialog.full.setChecked(True)
    assert "16 cells, each 1 run of 12 steps" in dialog.told.text()
    dialog.accept()
    assert window.map.going
    stored = finished(qtbot, window)
    assert len(stored.results) == 16 and {trained.outcome for trained in stored.results.values()} >= {"diverged"}
    assert "16 cells of 16 trained" in panel.words.text()
    spot = Spot(0, 1, 2)
    job, cell = Job(spot, 0), stored.results[Job(spot, 0)]
    qtbot.mouseMove(panel.picture, middle(window, spot))
    assert f"step {cell.step}" in panel.readout.text() and "learning rate 0.46" in panel.readout.text()
    qtbot.mouseClick(panel.picture, Qt.MouseButton.LeftButton, pos=middle(window, spot))
    run = window.simulator.run
    assert run.experiment == stored.plan.experiment_of(job) and not run.preset.bundled
    qtbot.waitUntil(lambda: run.over and "to the last bit" in panel.place.text(), timeout=LONG)
    assert repr(run.history.value("loss", cell.step)) == repr(cell.loss)


def test_the_cross_moves_with_the_knobs_and_drags_them(qtbot: QtBot, window: Window) -> None:
    mapped(qtbot, window)
    panel, picture = window.side.map, window.side.map.picture
    qtbot.waitUntil(lambda: "run.steps" in panel.place.text(), timeout=LONG)  # 40 here, 12 on the map
    window.controls.set_knob("run.steps", 12)
    window.controls.set_together({"optimizer.lr": 0.01, "model.init_gain": 0.1})
    qtbot.waitUntil(lambda: "The cross is where" in panel.place.text(), timeout=LONG)
    first, last = middle(window, Spot(0, 0, 0)), middle(window, Spot(0, 2, 3))
    qtbot.mousePress(picture, Qt.MouseButton.LeftButton, pos=first)
    qtbot.mouseMove(picture, last)
    assert window.simulator.requested.optimizer.lr == 0.01
    qtbot.mouseRelease(picture, Qt.MouseButton.LeftButton, pos=last)
    requested = window.simulator.requested
    assert (requested.optimizer.lr, requested.model.init_gain) == (21.5443, 10.0)
    assert not window.simulator.has_begun
    window.controls.set_knob("optimizer.lr", 5000.0)
    qtbot.waitUntil(lambda: "outside of this map" in panel.place.text(), timeout=LONG)


def test_a_lesson_asks_for_the_map_and_for_a_cell_of_it(qtbot: QtBot, window: Window) -> None:
    steps = [LessonStep(text="Make the map.", map="made"), LessonStep(text="Open a cell.", map="opened")]
    proposed = MapProposal(x="optimizer.lr=0.1:1:log", y="model.init_gain=0.1:1:log", cells=4, steps=12)
    preset = window.simulator.preset.model_copy(update={"lesson": steps, "map": proposed})
    window.controls.load(preset)
    heading = window.lesson.heading
    qtbot.waitUntil(lambda: heading.text().endswith("0 of 2"), timeout=LONG)
    mapped(qtbot, window)
    qtbot.waitUntil(lambda: heading.text().endswith("1 of 2"), timeout=LONG)
    qtbot.mouseClick(window.side.map.picture, Qt.MouseButton.LeftButton, pos=middle(window, Spot(0, 1, 2)))
    qtbot.waitUntil(lambda: heading.text().endswith("2 of 2"), timeout=LONG)
    assert window.simulator.preset.map == proposed and window.simulator.run.preset is not preset
    window.controls.load(preset.model_copy(update={"experiment": preset.experiment.with_value("model.depth", 3)}))
    assert not window.map.done_with_proposal(window.simulator.run), "a map of another experiment"


def test_the_keyboard_reads_and_opens_cells(qtbot: QtBot, window: Window) -> None:
    mapped(qtbot, window)
    picture = window.side.map.picture
    picture.setFocus()
    window.controls.set_knob("optimizer.lr", 5000.0)  # no cross
    qtbot.waitUntil(lambda: "outside" in window.side.map.place.text(), timeout=LONG)
    for key in (Qt.Key.Key_Left, Qt.Key.Key_Up, Qt.Key.Key_Up):
        qtbot.keyClick(picture, key)
    assert "learning rate 0.46, init gain 10" in picture.accessibleDescription()
    qtbot.keyClick(picture, Qt.Key.Key_Return)
    assert window.simulator.run.experiment.model.init_gain == 10.0


def test_it_is_paused_cancelled_and_gone_on_with_in_another_window(
    qtbot: QtBot, make_window: Callable[..., Window], inline: Any
) -> None:
    window = opened(qtbot, make_window())
    panel, trained = window.side.map, []

    def before(experiment: Experiment) -> None:
        trained.append(experiment)
        if len(trained) == 5:
            window.map._mapper.pause()  # pyright: ignore[reportOptionalMemberAccess, reportPrivateUsage]

    inline.before = staticmethod(before)
    window.map.make(plan_of(window))
    qtbot.waitUntil(lambda: panel.go_on.isVisible() and "Paused" in panel.state.text(), timeout=LONG)
    assert not panel.pause.isVisible() and not panel.new.isEnabled()
    qtbot.mouseClick(panel.cancel, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: not window.map.going and "not all" in panel.state.text(), timeout=LONG)
    (path,) = files.user_library().parent.glob("maps/*.map")
    known = len(journal.load(path).results)
    assert 0 < known == len(trained) < 16 and panel.go_on.isVisible()
    window.close()

    window = opened(qtbot, make_window())
    panel = window.side.map
    window.map.open(path)
    qtbot.waitUntil(lambda: panel.go_on.isVisible() and panel.picture.isVisible(), timeout=LONG)
    qtbot.mouseClick(panel.go_on, Qt.MouseButton.LeftButton)
    assert len(finished(qtbot, window).results) == len(trained) == 16


def test_what_cannot_be_opened_or_exported_is_said(
    qtbot: QtBot, window: Window, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    panel = opened(qtbot, window).side.map
    damaged = tmp_path / "a.map"
    damaged.write_text("no map")
    window.map.open(damaged)
    qtbot.waitUntil(lambda: "is no map of GradStudio" in window.message.text.text(), timeout=LONG)
    stored = mapped(qtbot, window)
    assert window.side.map.picture.isVisible()
    places = {kind: tmp_path / f"made.{kind}" for kind in ("png", "svg", "csv", "npz")}
    monkeypatch.setattr(file_choice, "ask_where", lambda _context, _title, name, chosen: chosen(str(asked(name))))

    def asked(name: str) -> Path:
        return tmp_path / ("report.html" if name.endswith("html") else places[Path(name).suffix[1:]].name)

    window.map._export("report")  # pyright: ignore[reportPrivateUsage]
    qtbot.waitUntil(lambda: window.message.text.text() == map_controller.NO_RUN, timeout=LONG)
    qtbot.mouseClick(panel.picture, Qt.MouseButton.LeftButton, pos=middle(window, Spot(0, 0, 1)))
    qtbot.waitUntil(lambda: window.simulator.run.over, timeout=LONG)
    for entry in range(5):
        qtbot.mouseClick(panel.export, Qt.MouseButton.LeftButton)
        menu = QApplication.activePopupWidget()
        assert isinstance(menu, QMenu)
        menu.actions()[entry].trigger()
        menu.close()
    everything = [*places.values(), tmp_path / "report.html"]
    qtbot.waitUntil(lambda: all(path.exists() for path in everything), timeout=LONG)
    assert len(list(csv.reader(places["csv"].read_text().splitlines()))) == 1 + len(stored.results)
    assert "the same to the last bit" in everything[-1].read_text()


def test_a_watched_run_cannot_be_mapped_and_the_page_says_why(qtbot: QtBot, window: Window) -> None:
    panel = opened(qtbot, window).side.map
    plain = panel.new.toolTip()
    preset = window.simulator.preset
    script = WatchedScript("train.py", (), "ab" * 32, 1, ())
    window.controls.show_stored(Run(preset, preset.experiment, watched=script))
    window.refresh(whole=True)
    assert not panel.new.isEnabled() and panel.open.isEnabled()
    assert panel.new.toolTip() == panel.new.accessibleDescription() == panel.state.text() == map_controller.WATCHED
    window.controls.load(preset)  # which shows the plots
    opened(qtbot, window)
    window.refresh(whole=True)
    assert panel.new.isEnabled() and panel.new.toolTip() == plain and panel.state.text() != map_controller.WATCHED


def test_panels_of_a_third_knob(qtbot: QtBot, window: Window) -> None:
    window.map.make(plan_of(opened(qtbot, window), cells=2, steps=3, by="clipping.kind=none,norm"))
    finished(qtbot, window)
    picture = window.side.map.picture
    qtbot.mouseClick(picture, Qt.MouseButton.LeftButton, pos=picture.area(1).center().toPoint() + QPoint(9, 9))
    assert window.simulator.requested.clipping.kind == "norm"


def test_closing_ends_the_work_and_keeps_what_is_known(qtbot: QtBot, window: Window) -> None:
    window.map.make(plan_of(opened(qtbot, window), cells=12))
    qtbot.waitUntil(lambda: "Level" in window.side.map.state.text(), timeout=LONG)
    window.close()
    (path,) = files.user_library().parent.glob("maps/*.map")
    assert not [other for other in path.parent.iterdir() if other != path]
    assert journal.load(path).plan.cells == 144


def test_a_map_that_is_opened_twice_is_whole_both_times(qtbot: QtBot, window: Window) -> None:
    mapped(qtbot, window)
    panel = window.side.map
    (path,) = files.user_library().parent.glob("maps/*.map")
    for _ in range(2):
        panel.state.setText("")
        window.map.open(path)
        qtbot.waitUntil(lambda: panel.state.text().startswith("Whole"), timeout=LONG)
        assert not panel.go_on.isVisible()


def test_a_map_that_cannot_be_gone_on_with_stays_in_sight(
    qtbot: QtBot, window: Window, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_of(opened(qtbot, window))
    with Journal(tmp_path / "a.map", plan, resume=False) as half:
        half.add(Job(Spot(0, 1, 1), 0), CellResult("learned", 11, 0.5, 0.5, 0.1))
    panel = window.side.map
    window.map.open(tmp_path / "a.map")
    qtbot.waitUntil(lambda: panel.go_on.isVisible() and "1 cell of 16 trained" in panel.words.text(), timeout=LONG)

    def full(*_: Any, **__: Any) -> None:
        raise JournalError("a.map cannot be written: the disk is full")

    monkeypatch.setattr(mapper, "Journal", full)
    qtbot.mouseClick(panel.go_on, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: not window.map.going and "disk is full" in panel.state.text(), timeout=LONG)
    window.map.refresh()
    assert "1 cell of 16 trained" in panel.words.text() and panel.go_on.isVisible()
    assert len(window.map._view.stored.results) == 1  # pyright: ignore[reportOptionalMemberAccess, reportPrivateUsage]


def test_a_cell_whose_values_do_not_go_together_is_not_opened_and_says_why(
    qtbot: QtBot, window: Window, tmp_path: Path
) -> None:
    opened(qtbot, window)
    before = window.simulator.run
    experiment = Experiment().with_texts(["problem.task=sequential_digits", "model.kind=rnn", "run.device=cpu"])
    preset = window.simulator.preset.model_copy(update={"experiment": experiment})
    plan = read_plan(preset, "problem.seq_len=2:8", "optimizer.lr=0.6:0.9:log", 8, "", 1, full=True)
    Journal(tmp_path / "a.map", plan, resume=False).close()
    window.map.open(tmp_path / "a.map")
    qtbot.waitUntil(window.side.map.picture.isVisible, timeout=LONG)
    impossible = next(place for place, value in enumerate(plan.x.values) if value == 6)
    window.map._open_cell(Spot(0, impossible, 0))  # pyright: ignore[reportPrivateUsage]
    assert "problem.seq_len" in window.message.text.text() and window.simulator.run is before
