"""What takes long in the background is told at the foot of the window, and can be cancelled there."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import BinaryIO

import pytest
from PySide6.QtCore import Qt
from pytestqt.qtbot import QtBot
from waiting import LONG, PATIENCE, until

from gradstudio.core.experiment import Experiment
from gradstudio.core.presets import Preset
from gradstudio.gui.services import jobs
from gradstudio.gui.services.file_jobs import draw_file
from gradstudio.gui.services.jobs import Jobs, Task
from gradstudio.gui.services.message_bar import MessageBar
from gradstudio.gui.shell.figures_bar import FiguresBar
from gradstudio.gui.window import Window
from gradstudio.session.files.tensorboard import export
from gradstudio.session.record.run import Run

pytestmark = pytest.mark.shares_window


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "SHOWN_AFTER", -1.0)


def test_a_file_that_takes_long_can_be_cancelled(qtbot: QtBot, window: Window, tmp_path: Path) -> None:
    line, go_on = window.figures.tasks, threading.Event()

    def content(file: BinaryIO) -> None:
        file.write(b"the first half")
        assert go_on.wait(PATIENCE)
        file.write(b"the other half")

    path = tmp_path / "metrics.csv"
    path.write_text("before")
    window.files.write(lambda: content, str(path))
    qtbot.waitUntil(line.isVisible, timeout=LONG)
    assert line.words.text().startswith("Writing metrics.csv, ") and line.bar.maximum() == 0
    assert line.cancel.accessibleName() == "Cancel: Writing metrics.csv" and line.cancel.toolTip()
    qtbot.mouseClick(line.cancel, Qt.MouseButton.LeftButton)
    go_on.set()
    qtbot.waitUntil(lambda: window.message.message == "Cancelled: writing metrics.csv.", timeout=LONG)
    assert path.read_text() == "before" and [each.name for each in tmp_path.iterdir()] == ["metrics.csv"]
    assert not line.isVisible() and not window.jobs.long


def test_a_cancelled_event_file_leaves_nothing_behind(
    qtbot: QtBot, window: Window, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = threading.Event()

    def content(file: BinaryIO) -> None:
        file.write(b"the first half")
        assert go_on.wait(PATIENCE)
        file.write(b"the other half")

    monkeypatch.setattr(export, "event_file", lambda run: {"events.out.tfevents.0.small": content})
    window.files.export_events(window.simulator.run, str(tmp_path))
    (task,) = window.jobs.long
    assert task.words == "Writing an event file" and task.can_cancel
    task.cancel()
    go_on.set()
    qtbot.waitUntil(lambda: window.message.message == "Cancelled: writing an event file.", timeout=LONG)
    assert not list(tmp_path.iterdir())
    window.files.export_events(window.simulator.run, str(tmp_path))
    qtbot.waitUntil(lambda: window.figures.written.full_text.startswith("Written: "), timeout=LONG)
    assert [each.read_bytes() for each in tmp_path.iterdir()] == [b"the first halfthe other half"]


def test_a_request_to_the_library_is_dropped_where_it_is_cancelled(qtbot: QtBot, window: Window) -> None:
    qtbot.waitUntil(lambda: not window.jobs.busy, timeout=LONG)
    go_on, told, reasons = threading.Event(), [], []
    ask = window.context.library.ask
    first = ask(lambda _: go_on.wait(PATIENCE), told.append, reasons.append, "Opening the run 1", can_cancel=True)
    second = ask(lambda _: told.append("begun"), told.append, reasons.append, "Opening the run 2", can_cancel=True)
    window.figures.show_tasks(window.jobs)
    assert window.figures.tasks.words.text().endswith("(and 1 more)")
    first.cancel()
    second.cancel()
    go_on.set()
    qtbot.waitUntil(lambda: reasons == [first, second], timeout=LONG)
    assert not told and not window.jobs.long


def test_reports_of_several_runs_are_counted_and_cancelled_together(
    qtbot: QtBot, window: Window, tmp_path: Path
) -> None:
    go_on = threading.Event()

    def work(task: Task) -> None:
        draw_file(lambda: "made", tmp_path / "a.html", task)
        task.done += 1
        assert go_on.wait(PATIENCE)
        draw_file(lambda: "made", tmp_path / "b.html", task)

    task = window.jobs.start("Writing 3 reports", work, pytest.fail, parts=3, writes=True)
    qtbot.waitUntil(lambda: task.done == 1, timeout=LONG)
    window.figures.show_tasks(window.jobs)
    assert window.figures.tasks.words.text() == "Writing 3 reports, 1 of 3"
    assert (window.figures.tasks.bar.value(), window.figures.tasks.bar.maximum()) == (1, 3)
    task.cancel()
    go_on.set()
    qtbot.waitUntil(lambda: not window.jobs.busy, timeout=LONG)
    assert [each.name for each in tmp_path.iterdir()] == ["a.html"]
    assert window.message.message == "Cancelled: writing 3 reports."


def test_closing_waits_for_files_and_leaves_the_rest(qtbot: QtBot) -> None:
    bar, made = MessageBar(), list[object]()
    qtbot.addWidget(bar)
    known, go_on = Jobs(bar), threading.Event()
    known.start("Writing", lambda task: made.append(go_on.wait(PATIENCE)), writes=True)
    other = known.start("Reading", lambda task: until(lambda: task.cancelled))
    known.start("", lambda task: go_on.set(), queue="library", can_cancel=False)
    assert known.close(PATIENCE) and made == [True] and other.cancelled
    known.start("Reading", lambda task: made.append("begun"))
    known.hand_over()
    assert made == [True]


@pytest.mark.parametrize("width", [1000, 1280, 1600])
def test_a_long_task_takes_no_more_than_the_room_beside_the_figures(qtbot: QtBot, width: int) -> None:
    bar, known = FiguresBar(), Jobs(MessageBar())
    qtbot.addWidget(bar)
    preset = Preset(id="small", title="Small", experiment=Experiment())
    run = Run(preset, preset.experiment)
    bar.refresh(run)
    for figure in bar.figures.values():
        figure.show_value("1.23e+04 → 1.00")
    bar.resize(width, bar.sizeHint().height())
    bar.show()
    task = known.start("Writing " + "a-long-name-" * 20 + ".html", lambda task: until(lambda: task.cancelled))
    bar.show_tasks(known)
    qtbot.wait(0)  # so that Qt lays it out
    assert bar.tasks.isVisible() and bar.tasks.cancel.isVisible()
    assert bar.minimumSizeHint().width() <= bar.width() == width
    for figure in bar.figures.values():
        if figure.isVisible():
            assert figure.width() >= figure.minimumSizeHint().width()
    task.cancel()
    bar.show_tasks(known)
    assert not bar.tasks.isVisible()
