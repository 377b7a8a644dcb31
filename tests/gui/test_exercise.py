"""An exercise in the window: its runs are loaded and ticked, its questions answered, and the worksheet handed in is one
that the grader repeats."""

from __future__ import annotations

from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QComboBox, QFileDialog, QLineEdit, QPlainTextEdit
from pytestqt.qtbot import QtBot
from waiting import LONG

from gradstudio.core import exercise as exercises
from gradstudio.core import files
from gradstudio.core.exercise import Exercise
from gradstudio.gui.assignment import assignment_files
from gradstudio.gui.assignment.exercise_page import ExercisePage
from gradstudio.gui.assignment.exercises_page import ExercisesPage
from gradstudio.gui.window import Window
from gradstudio.session.course import worksheet
from gradstudio.session.course.grading import Grader
from gradstudio.session.course.worksheet import Worksheet
from gradstudio.session.running.worker import Worker

pytestmark = pytest.mark.shares_window

TEXT = """
schema = 1
title = "One rate"
[[run]]
name = "slow"
text = "As it stands."
preset = "healthy-mlp"
knobs = ["run.steps=12", "model.width=8", "run.device=cpu"]
[[question]]
text = "How many steps?"
run = "slow"
explain = {measure = "steps", tolerance = 0.0}
points = 2
[[question]]
text = "How did it end?"
run = "slow"
predict = [{text = "NaN", outcome = "nonfinite"}, {text = "At its end", outcome = "finished"}]
[[question]]
text = "Why?"
"""


@pytest.fixture
def exercise(tmp_path: Path) -> Exercise:
    path = tmp_path / "one.toml"
    path.write_text(TEXT)
    return exercises.read(path, "one")


def test_an_exercise_is_done_in_the_window(qtbot: QtBot, window: Window, exercise: Exercise, tmp_path: Path) -> None:
    path = tmp_path / "ada.toml"
    sheet = Worksheet(schema=1, exercise="one", name="Ada", seed=worksheet.seed_of("Ada"))
    done: list[str] = []
    page = ExercisePage(window.context, path, sheet, exercise)
    page.run_done.connect(done.append)
    page.show_large()
    assert page.isVisible() and window.windowTitle().startswith(window.simulator.preset.title), "Run stays in sight"
    assert not page.hand_in.isEnabled() and page.states["slow"].text() == "not yet"
    qtbot.mouseClick(page.loads["slow"], Qt.MouseButton.LeftButton)
    assert window.simulator.requested.run.seed == sheet.seed and window.simulator.requested.model.width == 8
    assert not page.isVisible() and window.plots.isVisible(), "to watch the run"
    window.controls.run_or_pause()
    qtbot.waitUntil(lambda: page.states["slow"].text() == "✓", timeout=LONG)
    assert done == ["slow"]
    page.show_large()
    number, choice, text = (page.answers[name] for name in ("q1", "q2", "q3"))
    assert isinstance(number, QLineEdit) and isinstance(choice, QComboBox) and isinstance(text, QPlainTextEdit)
    number.setText("12")
    number.editingFinished.emit()
    choice.setCurrentIndex(2)
    text.setPlainText("As the rate is small.")
    qtbot.waitUntil(lambda: "As the rate" in path.read_text(), timeout=LONG)
    qtbot.mouseClick(page.hand_in, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: path.with_suffix(".pdf").exists() and path.with_suffix(".html").exists(), timeout=LONG)
    handed_in = worksheet.read(path)
    assert handed_in.answers == {"q1": "12", "q2": "B", "q3": "As the rate is small."}
    found = Grader(lambda run: Worker(run).run()).grade(handed_in, exercise)
    assert (found.verified, found.score, found.most) == (True, 3, 3), found.reason
    page.put_away()
    qtbot.waitUntil(lambda: not window.findChildren(ExercisePage), timeout=LONG)


def test_a_worksheet_is_gone_on_with(qtbot: QtBot, window: Window, tmp_path: Path) -> None:
    path = tmp_path / "ada.toml"
    path.write_text(worksheet.blank(exercises.load("1"), "Ada").replace('q1 = ""', 'q1 = "7"'))
    assignment_files.open_worksheet(window.context, path)
    qtbot.waitUntil(lambda: bool(window.findChildren(ExercisePage)), timeout=LONG)
    (page,) = window.findChildren(ExercisePage)
    assert page.sheet.answers["q1"] == "7" and page.exercise.id == "norm-clipping"
    page.put_away()
    path.write_text("exercise = 3")
    assignment_files.open_worksheet(window.context, path)
    qtbot.waitUntil(lambda: str(path) in window.message.text.text(), timeout=LONG)


def begun(qtbot: QtBot, window: Window, name: str) -> ExercisePage:
    """Choose the first exercise with keys, say a name, and begin."""
    window.activateWindow()
    qtbot.waitUntil(window.isActiveWindow, timeout=LONG)
    window.commands.commands["exercise"].call()
    (page,) = window.findChildren(ExercisesPage)
    assert page.cards[0].hasFocus() and page.cards[0].isChecked() and not window.knobs.isVisible()
    assert "about 90 min" in page.cards[0].accessibleName()
    qtbot.keyClick(page.cards[0], Qt.Key.Key_Right)
    assert page.cards[1].hasFocus()
    qtbot.keyClick(page.cards[1], Qt.Key.Key_Space)
    assert page.title.text() == "Value or norm" and page.name.hasFocus()
    page.cards[1].setFocus()
    qtbot.keyClick(page.cards[1], Qt.Key.Key_Left)
    qtbot.keyClick(page.cards[0], Qt.Key.Key_Space)
    assert page.title.text() == "Norm clipping" and page.name.hasFocus() and not page.begin.isEnabled()
    qtbot.keyClicks(page.name, name)
    qtbot.keyClick(page.name, Qt.Key.Key_Return)
    qtbot.waitUntil(lambda: bool(window.findChildren(ExercisePage)), timeout=LONG)
    qtbot.waitUntil(lambda: not window.findChildren(ExercisesPage), timeout=LONG)
    (page,) = window.findChildren(ExercisePage)
    return page


def test_an_exercise_begins_with_a_card_and_a_name_and_asks_for_no_file(qtbot: QtBot, window: Window) -> None:
    page = begun(qtbot, window, "Ada")
    assert page.exercise.id == "norm-clipping" and page.sheet.name == "Ada" and window.knobs.isVisible()
    assert not window.findChildren(QFileDialog) and page.hand_in.text() == "Hand in…"
    page.take("q1", "7")
    page.put_away()
    qtbot.waitUntil(lambda: not window.findChildren(ExercisePage), timeout=LONG)
    again = begun(qtbot, window, "Ada")
    assert again.sheet.answers["q1"] == "7", "it is gone on with"
    qtbot.mouseClick(again.save, Qt.MouseButton.LeftButton)
    (asked,) = window.findChildren(QFileDialog)
    chosen = files.user_worksheets().parent / "ada.toml"
    asked.fileSelected.emit(str(chosen))
    asked.close()
    assert worksheet.read(chosen).answers["q1"] == "7" and not list(files.user_worksheets().iterdir())
    again.put_away()


def test_a_worksheet_that_is_saved_where_its_draft_lies_stays(qtbot: QtBot, window: Window) -> None:
    page = begun(qtbot, window, "Ada")
    page.take("q1", "7")
    qtbot.mouseClick(page.save, Qt.MouseButton.LeftButton)
    (asked,) = window.findChildren(QFileDialog)
    (draft,) = files.user_worksheets().iterdir()
    asked.fileSelected.emit(str(draft))
    asked.close()
    assert worksheet.read(draft).answers["q1"] == "7" and page.hand_in.text() == "Hand in"
    page.put_away()
