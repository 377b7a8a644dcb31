"""The game: a random run with a hidden fault is one click away from the gallery, and ends with what the best would have
done."""

from __future__ import annotations

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QDialog
from pytestqt.qtbot import QtBot
from waiting import LONG

from gradstudio.core.assignment import LETTERS
from gradstudio.core.experiment import parse_assignment
from gradstudio.gui.assignment.exam_page import ExamPage
from gradstudio.gui.assignment.game import Game
from gradstudio.gui.window import Window

QUICK = "512"  # a run of short steps, whose first draw makes an exam


@pytest.fixture
def played(qtbot: QtBot, window: Window) -> ExamPage:
    """The page of a run that was asked for by its number."""
    window.show_gallery()
    QTest.keyClicks(window.gallery_page.search, QUICK)
    assert window.gallery_page.game.title == f"Run {QUICK} broke tonight. Why?"
    qtbot.mouseClick(window.gallery_page.game, Qt.MouseButton.LeftButton)
    return arrived(qtbot, window)


def arrived(qtbot: QtBot, window: Window) -> ExamPage:
    game = window.game
    qtbot.waitUntil(lambda: game.page is not None and game.page.isVisible(), timeout=LONG)
    page = game.page
    assert page is not None
    qtbot.waitUntil(lambda: bool(page.attempt.sheet.tries) and not page.busy, timeout=LONG)
    return page


def test_a_run_is_healed_without_a_file_or_a_name(qtbot: QtBot, window: Window, played: ExamPage) -> None:
    assert not window.findChildren(QDialog) and window.windowTitle() == f"Run {QUICK} broke tonight. Why? — GradStudio"
    hidden, answers = played.exam.hidden, played.answers
    assert "A try is healed with 77.8 % right or more." in answers.budget.text()
    qtbot.mouseClick(answers.causes[hidden.right], Qt.MouseButton.LeftButton)
    qtbot.mouseClick(answers.diagnose, Qt.MouseButton.LeftButton)
    assert played.attempt.sheet.diagnosis == LETTERS[hidden.right]
    for text in hidden.fix:
        name, value = parse_assignment(text)
        answers.changes.add(name)
        answers.changes.rows[name].asked.emit(value)
    qtbot.mouseClick(answers.train, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: len(played.attempt.sheet.tries) == 2 and not played.busy, timeout=LONG)
    qtbot.mouseClick(answers.hand_in, Qt.MouseButton.LeftButton)
    verdict = played.verdict
    qtbot.waitUntil(verdict.next.isVisible, timeout=LONG)
    assert verdict.points.text() == "100 of 100 points" and played.exam.choices[hidden.right] in verdict.text
    assert "The best would have needed 1 try and 1 knob: model.activation = tanh." in verdict.text
    qtbot.mouseClick(verdict.copy, Qt.MouseButton.LeftButton)
    assert QApplication.clipboard().text() == (
        f"GradStudio, run {QUICK}: 100 of 100 points. Cause right, fix holds, 1 try, 1 knob."
    )


def test_it_waits_behind_the_gallery_and_the_answer_leads_to_the_next(
    qtbot: QtBot, window: Window, played: ExamPage
) -> None:
    window.show_gallery()
    card = window.gallery_page.game
    assert card.does == "Go on" and window.windowTitle().startswith("Gallery")
    qtbot.mouseClick(card, Qt.MouseButton.LeftButton)
    assert played.isVisible() and window.game.page is played
    qtbot.keyClick(played, Qt.Key.Key_Escape)
    assert window.plots.isVisible() and window.top.isVisible()
    window.show_gallery()
    qtbot.mouseClick(card, Qt.MouseButton.LeftButton)
    window.game.offer("8")
    assert window.game.page is played, "one that is begun stays"
    qtbot.mouseClick(played.answers.give_up, Qt.MouseButton.LeftButton)
    assert (
        played.verdict.points.text() == "Given up" and "What was set: model.activation = sigmoid" in played.verdict.text
    )
    assert played.verdict.line.text() == f"GradStudio, run {QUICK}: given up after 0 tries."
    assert card.does == "Break another run"
    window.game.offer("7")
    window.game.begin()
    page = arrived(qtbot, window)
    assert page is not played and window.windowTitle().startswith("Run 7 broke")


def test_making_it_can_be_cancelled_and_ends_with_the_window(qtbot: QtBot, window: Window) -> None:
    window.show_gallery()
    card, game = window.gallery_page.game, window.game
    qtbot.keyClick(card, Qt.Key.Key_Space)
    assert card.does == "Cancel" and card.share == 0
    qtbot.keyClick(card, Qt.Key.Key_Space)
    qtbot.waitUntil(lambda: card.does == "Find out" and card.share is None, timeout=LONG)
    assert game.page is None and window.message.message.startswith("Cancelled: breaking run")
    game.begin()
    making = game._making
    window.close()
    assert making is not None and making.cancelled


def test_only_a_number_is_offered(window: Window) -> None:
    game: Game = window.game
    before = game.number
    for text in ("", "clip", "0", "-3", "1234567", "12x"):
        assert not game.offer(text) and game.number == before
    assert game.offer("4183") and "4183" in window.gallery_page.game.accessibleName()
