"""An exam in the window: it is made, taken and graded there, and nothing in sight tells what is hidden."""

from __future__ import annotations

from pathlib import Path

import pytest
from PySide6.QtCore import QMimeData, QPointF, Qt, QUrl
from PySide6.QtGui import QDropEvent
from PySide6.QtWidgets import QApplication, QComboBox, QFileDialog, QInputDialog, QLabel, QLineEdit, QListWidget
from pytestqt.qtbot import QtBot
from waiting import LONG

from gradstudio.core import exam as exams
from gradstudio.core.exam import LETTERS
from gradstudio.core.experiment import Experiment, parse_assignment
from gradstudio.core.presets import Preset
from gradstudio.gui.exam import exam_files
from gradstudio.gui.exam.exam_dialog import ExamDialog
from gradstudio.gui.exam.making_dialog import MakingDialog
from gradstudio.gui.theme import theme
from gradstudio.gui.window import Window
from gradstudio.session.course import exam_making, exam_taking
from gradstudio.session.running.worker import Worker

BROKEN = ["optimizer.lr=47.5", "model.width=24", "run.steps=80", "run.device=cpu", "model.depth=1"]


@pytest.fixture(scope="module")
def exam(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("exam") / "one.exam"
    preset = Preset(id="x", title="x", experiment=Experiment().with_texts(BROKEN))
    made = exam_making.of(
        preset, 3, lambda run: Worker(run).run(), str, cause="rate too high", fix=["optimizer.lr=0.3"], tries=2
    )
    path.write_text(made.to_toml())
    return path


def opened(qtbot: QtBot, window: Window, path: Path) -> ExamDialog:
    data = QMimeData()
    data.setUrls([QUrl.fromLocalFile(str(path))])
    window.dropEvent(
        QDropEvent(QPointF(9, 9), Qt.DropAction.CopyAction, data, Qt.MouseButton.LeftButton, Qt.KeyboardModifier(0))
    )
    if not path.with_suffix(".answers.toml").exists():
        qtbot.waitUntil(lambda: bool(window.findChildren(QInputDialog)), timeout=LONG)
        (asked,) = window.findChildren(QInputDialog)
        asked.setTextValue("Ada")
        asked.accept()
    qtbot.waitUntil(lambda: bool(window.findChildren(ExamDialog)), timeout=LONG)
    (dialog,) = window.findChildren(ExamDialog)
    return dialog


def in_sight(dialog: ExamDialog) -> str:
    """Every text that the exam shows, also in tooltips and for screen readers."""
    texts = [label.text() for label in dialog.findChildren(QLabel)]
    texts += [line.text() for line in dialog.findChildren(QLineEdit)]
    texts += [box.currentText() for box in dialog.findChildren(QComboBox)]
    texts += [each.item(row).text() for each in dialog.findChildren(QListWidget) for row in range(each.count())]
    texts += [part.toolTip() + part.accessibleDescription() for part in dialog.plots.plots]
    texts += [part.widget.accessibleDescription() for part in dialog.plots.plots]
    return "\n".join(texts)


def trained(qtbot: QtBot, dialog: ExamDialog, tries: int) -> None:
    qtbot.mouseClick(dialog.train, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: len(dialog.attempt.sheet.tries) == tries and not dialog.busy, timeout=LONG)


def test_an_exam_is_taken_and_graded(qtbot: QtBot, window: Window, exam: Path) -> None:
    dialog = opened(qtbot, window, exam)
    assert not dialog.hand_in.isEnabled() and not dialog.diagnose.isEnabled() and not dialog.changes.knob.isEnabled()
    trained(qtbot, dialog, 1)
    assert "47.5" not in in_sight(dialog)
    assert "run.steps" not in [dialog.changes.knob.itemText(row) for row in range(dialog.changes.knob.count())]
    right = exams.read(exam).hidden.right
    dialog.causes.setCurrentRow(right)
    qtbot.mouseClick(dialog.diagnose, Qt.MouseButton.LeftButton)
    assert dialog.attempt.sheet.diagnosis == LETTERS[right] and not dialog.diagnose.isEnabled()
    dialog.changes.knob.setCurrentText("optimizer.lr")
    editor = dialog.changes.editor
    assert editor is not None
    editor.set_value(0.2)
    qtbot.mouseClick(dialog.changes.add, Qt.MouseButton.LeftButton)
    trained(qtbot, dialog, 2)
    dialog.close()
    qtbot.waitUntil(lambda: not window.findChildren(ExamDialog), timeout=LONG)
    again = opened(qtbot, window, exam)  # another day: the sheet is gone on with, and its runs are made again
    assert again.attempt.sheet.name == "Ada" and again.tries.count() == 2
    again.tries.setCurrentRow(1)
    qtbot.waitUntil(lambda: not again.busy, timeout=LONG)
    qtbot.mouseClick(again.hand_in, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: "100 of 100 points" in again.verdict.text(), timeout=LONG)
    again.close()
    kept = exam_taking.read(exam.with_suffix(".answers.toml"))
    assert kept.fix == 1 and kept.sealed().seal == kept.seal


def test_it_says_what_comes_next_and_makes_room_for_the_verdict(
    qtbot: QtBot, window: Window, exam: Path, tmp_path: Path
) -> None:
    path = tmp_path / "next.exam"
    path.write_bytes(exam.read_bytes())
    dialog = opened(qtbot, window, path)
    assert "First train it" in dialog.budget.text()
    assert dialog.plots.plots[-1].widget.plot.getAxis("bottom").style["showValues"]
    trained(qtbot, dialog, 1)
    assert "Choose the cause" in dialog.budget.text()
    dialog.causes.setCurrentRow(0)
    qtbot.mouseClick(dialog.diagnose, Qt.MouseButton.LeftButton)
    assert "Change the knobs" in dialog.budget.text()
    qtbot.mouseClick(dialog.changes.add, Qt.MouseButton.LeftButton)
    trained(qtbot, dialog, 2)
    assert "hand it in, or try again." in dialog.budget.text() and dialog.train.isVisible()
    qtbot.mouseClick(dialog.hand_in, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: "points" in dialog.verdict.text(), timeout=LONG)
    width = dialog.verdict.width()
    qtbot.waitUntil(lambda: dialog.verdict.height() >= dialog.verdict.heightForWidth(width), timeout=LONG)
    assert dialog.causes.geometry().bottom() < dialog.diagnose.y()
    assert not any(part.isVisible() for part in (dialog.changes, dialog.train))


def test_a_sheet_that_cannot_be_written_is_not_handed_in(
    qtbot: QtBot, window: Window, exam: Path, tmp_path: Path
) -> None:
    path = tmp_path / "full.exam"
    path.write_bytes(exam.read_bytes())
    dialog = opened(qtbot, window, path)
    sheet = path.with_suffix(".answers.toml")
    sheet.mkdir()  # so that nothing can be written there
    trained(qtbot, dialog, 1)
    assert "was not written" in dialog.problem.text()
    dialog.causes.setCurrentRow(0)
    qtbot.mouseClick(dialog.diagnose, Qt.MouseButton.LeftButton)
    qtbot.mouseClick(dialog.changes.add, Qt.MouseButton.LeftButton)
    trained(qtbot, dialog, 2)
    qtbot.mouseClick(dialog.hand_in, Qt.MouseButton.LeftButton)
    assert "was not written" in dialog.problem.text() and "give it to your teacher" not in dialog.budget.text()
    assert dialog.hand_in.text() == "Hand in this try"
    sheet.rmdir()
    qtbot.mouseClick(dialog.hand_in, Qt.MouseButton.LeftButton)
    assert not dialog.problem.text() and exam_taking.read(sheet).fix == 1  # and all that was done before


def test_grading_can_be_cancelled_and_done_again(qtbot: QtBot, window: Window, exam: Path, tmp_path: Path) -> None:
    path = tmp_path / "cancelled.exam"
    path.write_bytes(exam.read_bytes())
    dialog = opened(qtbot, window, path)
    trained(qtbot, dialog, 1)
    dialog.causes.setCurrentRow(0)
    qtbot.mouseClick(dialog.diagnose, Qt.MouseButton.LeftButton)
    qtbot.mouseClick(dialog.changes.add, Qt.MouseButton.LeftButton)
    trained(qtbot, dialog, 2)
    for _ in ("handed in", "cancelled"):
        qtbot.mouseClick(dialog.hand_in, Qt.MouseButton.LeftButton)
    assert not dialog.hand_in.isEnabled()
    qtbot.waitUntil(lambda: dialog.hand_in.text() == "Grade it", timeout=LONG)
    assert dialog.hand_in.isEnabled() and not dialog.verdict.text()
    assert window.message.shown == "Cancelled: grading the exam."
    dialog.close()
    qtbot.waitUntil(lambda: not window.findChildren(ExamDialog), timeout=LONG)
    again = opened(qtbot, window, path)  # another day
    qtbot.waitUntil(again.hand_in.isEnabled, timeout=LONG)  # the try that is shown is trained again
    assert again.hand_in.text() == "Grade it"
    qtbot.mouseClick(again.hand_in, Qt.MouseButton.LeftButton)
    assert again.hand_in.text() == "Cancel grading"
    qtbot.waitUntil(lambda: "points" in again.verdict.text(), timeout=LONG)
    assert again.hand_in.text() == "Graded" and not again.hand_in.isEnabled()


def test_closing_in_mid_run_ends_it(qtbot: QtBot, window: Window, exam: Path, tmp_path: Path) -> None:
    path = tmp_path / "two.exam"
    path.write_bytes(exam.read_bytes())
    dialog = opened(qtbot, window, path)
    qtbot.mouseClick(dialog.train, Qt.MouseButton.LeftButton)
    worker = dialog._worker
    dialog.reject()
    assert worker is not None
    qtbot.waitUntil(lambda: not worker.is_alive(), timeout=LONG)
    assert not path.with_suffix(".answers.toml").exists()  # no try has ended


def heal(qtbot: QtBot, dialog: MakingDialog, value: str) -> None:
    """Name a fix as a person does: choose its knob, type the value, add it to the list."""
    dialog.fix.knob.setCurrentText("optimizer.lr")
    line = dialog.fix.editor.head if dialog.fix.editor is not None else None
    assert isinstance(line, QLineEdit)
    line.setFocus()
    line.selectAll()
    qtbot.keyClicks(line, value)
    qtbot.keyClick(line, Qt.Key.Key_Return)  # which adds it, and does not accept the dialog
    assert not dialog.parent().findChildren(QFileDialog) and dialog.isVisible()


def test_an_exam_is_made_of_the_knobs_as_they_are_set(qtbot: QtBot, window: Window, tmp_path: Path) -> None:
    window.controls.set_together(dict(map(parse_assignment, BROKEN[:3])))
    exam_files.make_exam(window.context)
    (dialog,) = window.findChildren(MakingDialog)
    qtbot.waitUntil(lambda: dialog.tries.isVisible() and theme.settled, timeout=LONG)
    assert dialog.changes.height() == dialog.tries.height() == dialog.cause.height()
    assert dialog.ok.icon().isNull()  # a desktop's own icons have colours of their own
    heal(qtbot, dialog, "50")
    assert dialog.fix.texts == ["optimizer.lr=50.0"] and not dialog.fix_told.isVisible()
    dialog.make(str(tmp_path / "no.exam"))
    qtbot.waitUntil(lambda: "no fix makes" in dialog.problem.text(), timeout=LONG)
    heal(qtbot, dialog, "3/10")
    dialog.make(str(tmp_path / "made.exam"))
    qtbot.waitUntil(lambda: (tmp_path / "made.exam").exists(), timeout=LONG)
    qtbot.waitUntil(lambda: not window.findChildren(MakingDialog), timeout=LONG)
    assert exams.read(tmp_path / "made.exam").hidden.fix == ["optimizer.lr=0.3"]
    assert not (tmp_path / "no.exam").exists()


def test_no_exam_beside_a_run(qtbot: QtBot, window: Window, exam: Path) -> None:
    window.controls.run_or_pause()
    qtbot.waitUntil(lambda: window.controls.started, timeout=LONG)
    window.controls.run_or_pause()
    exam_files.open_exam(window.context, exam)
    exam_files.make_exam(window.context)
    assert not QApplication.activeModalWidget() and not window.findChildren(ExamDialog) + window.findChildren(
        MakingDialog
    )
