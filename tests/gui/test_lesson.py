"""A lesson done by hand: predicted, run, explained, with a hint, a formula and a paper; and the clip microscope."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
from PySide6.QtCore import QPoint, QSettings, Qt
from PySide6.QtTest import QTest
from pytestqt.qtbot import QtBot
from waiting import PATIENCE

from gradstudio.core import presets
from gradstudio.gui.window import Window
from gradstudio.session.course import questions
from gradstudio.session.course.formula import why_not_drawn

pytestmark = pytest.mark.shares_window

PRESET = """
[model]
width = 8
depth = 1
[problem]
batch_size = 16
[run]
steps = 40
device = "cpu"

[[lesson]]
text = "What will the loss do?"
predict = [
    {text = "It becomes NaN.", outcome = "nonfinite"},
    {text = "It stays finite.", outcome = "finished"},
]
[[lesson]]
text = "How large was the first loss?"
explain = {measure = "loss.first", tolerance = 0.05}
hint = "Point at the left end."
formula = '\\frac{a}{b}'
paper = {text = "A paper", url = "https://arxiv.org/abs/1211.5063"}
[[lesson]]
text = "Press Run."
outcome = "finished"
"""


def test_a_lesson_is_done_by_hand(qtbot: QtBot, make_window: Callable[..., Window]) -> None:
    window = make_window()
    preset = presets.parse(PRESET, Path("asked.toml"))
    window.controls.load(preset)
    window.refresh(whole=True)
    predict, explain, last = window.lesson.steps
    assert predict.choices[0].isVisible() and not explain.isVisible() and "2 more steps" in window.lesson.more.text()
    QTest.mouseClick(predict.choices[0], Qt.MouseButton.LeftButton, pos=QPoint(60, 8))
    assert window.windowTitle() == "Lesson — GradStudio" and window.top.preset.text() == "Lesson", "which is no answer"
    assert predict.note.text() == "Now press Run, and see." and not predict.choices[0].isEnabled()
    QTest.keyClick(window.focusWidget(), Qt.Key.Key_Space)  # which runs, and does not leave the question out
    qtbot.waitUntil(lambda: window.simulator.run.over, timeout=1000 * PATIENCE)
    window.refresh(whole=True)
    assert predict.note.text() == "You expected: It becomes NaN. What happened: It stays finite."
    assert window.windowTitle().startswith(preset.title) and window.top.preset.text().startswith(preset.title)
    assert not predict.choices[0].isVisible() and explain.isVisible() and not last.isVisible()

    assert explain.hint.isVisible() and not explain.hint_text.isVisible()
    explain.hint.click()
    assert explain.hint_text.isVisible() and "arxiv.org/abs/1211.5063" in explain.paper.text()
    assert explain.paper.textFormat() is Qt.TextFormat.RichText  # a link, and not its source
    assert explain.formula is not None
    qtbot.waitUntil(lambda: not explain.formula.path.isEmpty(), timeout=1000 * PATIENCE)
    assert explain.formula.sizeHint().height() > 15

    QTest.keyClicks(explain.answer, "1e6")
    explain.check.click()
    assert explain.fault.text() == "Too large, by more than 5 %."
    assert preset.lesson[1].explain
    right = questions.measured_value(preset.lesson[1].explain, window.simulator.run)
    explain.answer.setText(f"{right:.3g}")
    QTest.keyClick(explain.answer, Qt.Key.Key_Return)
    assert explain.note.text().startswith("Right: the run has ") and not explain.answer.isVisible()
    assert window.lesson.heading.text().endswith("3 of 3")
    assert QSettings().value("finished") in (["asked"], "asked")


def test_the_clip_microscope(qtbot: QtBot, make_window: Callable[..., Window]) -> None:
    window = make_window(clipping__max_norm=1.0, clipping__clip_value=0.5)
    window.columns.show_page("gauges")
    window.refresh(whole=True)
    card = window.side.gauges.clipping
    assert (
        "Norm: 1 long, same direction." in card.text.text()
        and "Value: 0.707 long, turned by 21.4°." in card.text.text()
    )
    picture = card.picture
    middle = QPoint(picture.width() // 2, picture.height() // 2)
    QTest.mouseClick(picture, Qt.MouseButton.LeftButton, pos=middle + QPoint(10, 0))
    assert "nothing is cut" in card.text.text()
    QTest.mousePress(picture, Qt.MouseButton.LeftButton, pos=middle)
    QTest.mouseMove(picture, middle + QPoint(0, -picture.height() // 2))
    QTest.mouseRelease(picture, Qt.MouseButton.LeftButton, pos=middle)
    told = card.text.text()
    QTest.keyClick(picture, Qt.Key.Key_Right)
    assert card.text.text() != told

    card.live.click()
    assert not picture.isVisible() and card.text.text() == "Measured at the next step of the run."
    window.controls.step()
    qtbot.waitUntil(lambda: bool(window.simulator.run.gauge_samples.get("clipping")), timeout=1000 * PATIENCE)
    window.refresh(whole=True)
    found = window.simulator.run.gauge_samples["clipping"][-1][1]
    assert picture.isVisible() and f"All {found.size:,} entries" in card.text.text()
    assert card.across.currentText().startswith("Largest: ") and card.up.currentText().startswith("No. 2: ")
    card.up.setCurrentIndex(card.up.count() - 1)
    card.up.activated.emit(card.up.count() - 1)
    assert picture._plane is not None and picture._plane.vectors["before"] == (found.entries[0], found.entries[-1])
    assert math.isinf(picture._plane.limits.max_norm)


def test_every_formula_of_a_lesson_can_be_drawn() -> None:
    drawn = [step.formula for path in presets.available() for step in presets.read(path).lesson if step.formula]
    assert len(drawn) >= 15 and not any(map(why_not_drawn, drawn))
    assert all(why_not_drawn(text).startswith("the formula ") for text in (r"\no_such_word", "{"))
