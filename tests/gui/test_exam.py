"""An exam in the window: it is made, taken and graded there, and nothing in sight tells what is hidden."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from PySide6.QtCore import QMimeData, QPointF, Qt, QUrl
from PySide6.QtGui import QDropEvent
from PySide6.QtWidgets import (
    QAbstractButton,
    QComboBox,
    QFileDialog,
    QInputDialog,
    QLabel,
    QLineEdit,
    QListWidget,
)
from pytestqt.qtbot import QtBot
from waiting import LONG

from gradstudio.core import exam as exams
from gradstudio.core.assignment import LETTERS
from gradstudio.core.experiment import Experiment, parse_assignment
from gradstudio.core.knobs import KnobError
from gradstudio.core.presets import Preset
from gradstudio.gui.assignment import assignment_files
from gradstudio.gui.assignment.changes_editor import ChangesEditor
from gradstudio.gui.assignment.exam_page import ExamPage
from gradstudio.gui.assignment.making_dialog import MakingDialog
from gradstudio.gui.theme import theme
from gradstudio.gui.window import Window
from gradstudio.session.course import exam_making, exam_taking
from gradstudio.session.running.worker import Worker

pytestmark = pytest.mark.shares_window

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


def opened(qtbot: QtBot, window: Window, path: Path) -> ExamPage:
    """Drop an exam on the window, and say a name where it is new."""
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
    qtbot.waitUntil(lambda: bool(window.findChildren(ExamPage)), timeout=LONG)
    (page,) = window.findChildren(ExamPage)
    qtbot.waitUntil(lambda: bool(page.attempt.sheet.tries) and not page.busy, timeout=LONG)
    return page


def closed(qtbot: QtBot, window: Window) -> None:
    qtbot.mouseClick(window.columns.middle.frame.back, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: not window.findChildren(ExamPage), timeout=LONG)


def in_sight(page: ExamPage) -> str:
    """Every text that the exam shows, also in tooltips and for screen readers."""
    texts = [label.text() for label in page.findChildren(QLabel)]
    texts += [button.text() for button in page.findChildren(QAbstractButton)]
    texts += [line.text() for line in page.findChildren(QLineEdit)]
    texts += [box.currentText() for box in page.findChildren(QComboBox)]
    texts += [each.item(row).text() for each in page.findChildren(QListWidget) for row in range(each.count())]
    texts += [part.toolTip() + part.accessibleDescription() for part in page.plots.plots]
    texts += [part.widget.accessibleDescription() for part in page.plots.plots]
    return "\n".join(texts)


def primary(page: ExamPage) -> list[QAbstractButton]:
    """The buttons that stand out."""
    return [each for each in page.findChildren(QAbstractButton)
            if each.property("role") == "primary" and each.isVisible() and each.isEnabled()]  # fmt: skip


def say(qtbot: QtBot, page: ExamPage, place: int) -> None:
    qtbot.mouseClick(page.answers.causes[place], Qt.MouseButton.LeftButton)
    assert primary(page) == [page.answers.diagnose]
    qtbot.mouseClick(page.answers.diagnose, Qt.MouseButton.LeftButton)


def change(qtbot: QtBot, editor: ChangesEditor, name: str, value: str) -> None:
    """Find a knob by its name, and type its value."""
    if name not in editor.rows:
        line = editor.knob.lineEdit()
        assert line is not None
        line.setFocus()
        qtbot.keyClicks(line, name)
        qtbot.keyClick(line, Qt.Key.Key_Return)
    head = editor.rows[name].editor.head
    assert isinstance(head, QLineEdit) and not editor.knob.currentText()
    head.setFocus()
    head.selectAll()
    qtbot.keyClicks(head, value)
    qtbot.keyClick(head, Qt.Key.Key_Return)


def tried(qtbot: QtBot, page: ExamPage, value: str) -> None:
    change(qtbot, page.answers.changes, "optimizer.lr", value)
    tries = len(page.attempt.sheet.tries)
    assert primary(page) == [page.answers.train]
    qtbot.mouseClick(page.answers.train, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: len(page.attempt.sheet.tries) == tries + 1 and not page.busy, timeout=LONG)


def hand_in(qtbot: QtBot, page: ExamPage) -> None:
    qtbot.mouseClick(page.answers.hand_in, Qt.MouseButton.LeftButton)


def test_an_exam_is_taken_and_graded(qtbot: QtBot, window: Window, exam: Path) -> None:
    page = opened(qtbot, window, exam)
    assert not window.top.isVisible() and not window.knobs.isVisible() and not window.side.isVisible()
    assert not page.answers.diagnose.isEnabled() and not page.answers.train.isEnabled() and not primary(page)
    assert "47.5" not in in_sight(page) and "The first answer counts." in in_sight(page)
    knobs = page.answers.changes.knob
    assert "run.steps" not in [knobs.itemText(row) for row in range(knobs.count())]
    right = exams.read(exam).hidden.right
    say(qtbot, page, right)
    assert page.attempt.sheet.diagnosis == LETTERS[right] and not page.answers.diagnose.isVisible()
    tried(qtbot, page, "0.2")
    assert primary(page) == [page.answers.hand_in]
    closed(qtbot, window)
    assert window.top.isVisible() and window.knobs.isVisible() and window.side.isVisible()
    again = opened(qtbot, window, exam)  # another day: the sheet is gone on with, and its runs are made again
    assert again.attempt.sheet.name == "Ada" and again.answers.tries.count() == 2
    again.answers.choose_try(1)
    qtbot.waitUntil(lambda: not again.busy, timeout=LONG)
    hand_in(qtbot, again)
    qtbot.waitUntil(lambda: "100 of 100 points" in again.verdict.text, timeout=LONG)
    assert "What was set: optimizer.lr = 47.5." in again.verdict.text
    assert "1 try and 1 knob: optimizer.lr = 0.3" in again.verdict.text and not again.verdict.next.isVisible()
    closed(qtbot, window)
    kept = exam_taking.read(exam.with_suffix(".answers.toml"))
    assert kept.fix == 1 and kept.with_seal().seal == kept.seal


def copied(exam: Path, folder: Path, name: str) -> Path:
    path = folder / name
    path.write_bytes(exam.read_bytes())
    return path


def test_it_says_what_comes_next_and_makes_room_for_the_verdict(
    qtbot: QtBot, window: Window, exam: Path, tmp_path: Path
) -> None:
    page = opened(qtbot, window, copied(exam, tmp_path, "next.exam"))
    answers = page.answers
    assert "Say the cause" in answers.budget.text()
    assert page.plots.plots[-1].widget.plot.getAxis("bottom").style["showValues"]
    say(qtbot, page, 0)
    assert "Change the knobs" in answers.budget.text() and not any(each.isVisible() for each in answers.causes)
    tried(qtbot, page, "0.1")
    assert "Hand in the try that heals it, or try again." in answers.budget.text() and answers.train.isVisible()
    assert not answers.train.isEnabled(), "it was tried"
    hand_in(qtbot, page)
    qtbot.waitUntil(lambda: "points" in page.verdict.text, timeout=LONG)
    for label in page.verdict.answers:
        qtbot.waitUntil(lambda label=label: label.height() >= label.heightForWidth(label.width()), timeout=LONG)
    assert not any(part.isVisible() for part in (answers.changes, answers.train, answers.hand_in))


def test_a_sheet_that_cannot_be_written_is_not_handed_in(
    qtbot: QtBot, window: Window, exam: Path, tmp_path: Path
) -> None:
    path = copied(exam, tmp_path, "full.exam")
    sheet = path.with_suffix(".answers.toml")
    page = opened(qtbot, window, path)
    sheet.unlink()
    sheet.mkdir()  # so that nothing can be written there
    say(qtbot, page, 0)
    assert "was not written" in page.answers.problem.text()
    tried(qtbot, page, "0.1")
    hand_in(qtbot, page)
    assert "was not written" in page.answers.problem.text() and "to your teacher" not in page.answers.budget.text()
    assert page.answers.hand_in.text() == "Hand in try 1"
    sheet.rmdir()
    hand_in(qtbot, page)
    assert not page.answers.problem.text() and exam_taking.read(sheet).fix == 1  # and all that was done before


def test_grading_can_be_cancelled_and_done_again(qtbot: QtBot, window: Window, exam: Path, tmp_path: Path) -> None:
    path = copied(exam, tmp_path, "cancelled.exam")
    page = opened(qtbot, window, path)
    say(qtbot, page, 0)
    tried(qtbot, page, "0.1")
    button = page.answers.hand_in
    for _ in ("handed in", "cancelled"):
        hand_in(qtbot, page)
    assert not button.isEnabled()
    qtbot.waitUntil(lambda: button.text() == "Grade it", timeout=LONG)
    assert button.isEnabled() and not page.verdict.isVisible()
    assert window.message.message == "Cancelled: grading the exam."
    closed(qtbot, window)
    again = opened(qtbot, window, path)  # another day
    button = again.answers.hand_in
    qtbot.waitUntil(button.isEnabled, timeout=LONG)
    assert button.text() == "Grade it"
    hand_in(qtbot, again)
    assert button.text() == "Cancel grading"
    qtbot.waitUntil(lambda: "points" in again.verdict.text, timeout=LONG)
    assert not button.isVisible()


def test_leaving_in_mid_run_ends_it(qtbot: QtBot, window: Window, exam: Path, tmp_path: Path) -> None:
    path = copied(exam, tmp_path, "two.exam")
    assignment_files.begin_exam(window.context, exams.read(path), "Ada", None, path)
    (page,) = window.findChildren(ExamPage)
    training = page._training
    assert training is not None and page.busy
    qtbot.keyClick(page, Qt.Key.Key_Escape)
    qtbot.waitUntil(lambda: training.ended.is_set() and not window.findChildren(ExamPage), timeout=LONG)
    assert not path.with_suffix(".answers.toml").exists()  # no try has ended


def test_closing_the_window_ends_it_and_keeps_the_columns(
    make_window: Callable[..., Window], exam: Path, tmp_path: Path
) -> None:
    window = make_window()
    path = copied(exam, tmp_path, "three.exam")
    assignment_files.begin_exam(window.context, exams.read(path), "Ada", None, path)
    (page,) = window.findChildren(ExamPage)
    training = page._training
    window.close()
    assert training is not None and training.ended.is_set()
    again = make_window()
    assert again.top.isVisible() and min(again.knobs.width(), again.side.width()) >= 240


def test_an_exam_goes_beside_a_run_which_waits(qtbot: QtBot, window: Window, exam: Path, tmp_path: Path) -> None:
    window.simulator.set_speed(20)
    window.controls.run_or_pause()
    qtbot.waitUntil(lambda: window.controls.possible.playing, timeout=LONG)
    page = opened(qtbot, window, copied(exam, tmp_path, "beside.exam"))
    assert page.attempt.sheet.tries and not window.controls.possible.playing and not window.simulator.run.over
    assert "diverged" in page.answers.tries.item(0).text()
    rows = len(window.simulator.run.history)
    qtbot.keyClick(page, Qt.Key.Key_Space)
    assert not window.controls.possible.playing and len(window.simulator.run.history) == rows
    closed(qtbot, window)
    window.simulator.set_speed(1e9)
    window.controls.run_or_pause()
    qtbot.waitUntil(lambda: window.simulator.run.status == "finished", timeout=LONG)


def test_an_exam_is_made_of_the_knobs_as_they_are_set(qtbot: QtBot, window: Window, tmp_path: Path) -> None:
    window.controls.set_together(dict(map(parse_assignment, BROKEN[:3])))
    assignment_files.make_exam(window.context)
    (dialog,) = window.findChildren(MakingDialog)
    qtbot.waitUntil(lambda: dialog.tries.isVisible() and theme.is_settled, timeout=LONG)
    assert dialog.changes.height() == dialog.tries.height() == dialog.cause.height()
    assert dialog.ok.icon().isNull()  # a desktop's own icons have colours of their own
    change(qtbot, dialog.fix, "optimizer.lr", "50")  # and no Enter accepts the dialog
    assert not dialog.parent().findChildren(QFileDialog) and dialog.isVisible()
    assert dialog.fix.texts == ["optimizer.lr=50.0"] and not dialog.fix_told.isVisible()
    dialog.make(str(tmp_path / "no.exam"))
    qtbot.waitUntil(lambda: "no fix makes" in dialog.problem.text(), timeout=LONG)
    change(qtbot, dialog.fix, "optimizer.lr", "3/10")
    dialog.make(str(tmp_path / "cancelled.exam"))
    dialog.reject()
    qtbot.waitUntil(lambda: dialog.ok.isEnabled() and not dialog.told.text(), timeout=LONG)
    dialog.make(str(tmp_path / "made.exam"))
    qtbot.waitUntil(lambda: (tmp_path / "made.exam").exists(), timeout=LONG)
    qtbot.waitUntil(lambda: not window.findChildren(MakingDialog), timeout=LONG)
    assert exams.read(tmp_path / "made.exam").hidden.fix == ["optimizer.lr=0.3"]
    assert not (tmp_path / "no.exam").exists() and not (tmp_path / "cancelled.exam").exists()


def test_a_change_that_is_not_allowed_is_refused_and_one_can_be_left_out(qtbot: QtBot, window: Window) -> None:
    allowed = Experiment().with_texts
    editor = ChangesEditor(
        ["optimizer.lr", "clipping.kind", "loss.kind"],
        lambda name: window.simulator.requested.find_knob(name),
        lambda name: Experiment()[name],
        lambda texts: allowed(texts) if len(texts) < 3 else exam_refuses(),
    )
    faults: list[str] = []
    qtbot.addWidget(editor)
    editor.wrong.connect(faults.append)
    editor.show()
    for name in ("optimizer.lr", "clipping.kind", "loss.kind"):
        editor.add(name)
    assert list(editor.rows) == ["optimizer.lr", "clipping.kind"] and faults[-1] == "3 knobs are changed"
    out = next(each for each in editor.rows["optimizer.lr"].findChildren(QAbstractButton) if each.text() == "Leave")
    qtbot.mouseClick(out, Qt.MouseButton.LeftButton)
    assert editor.texts == ["clipping.kind=none"] and faults[-1] == ""


def exam_refuses() -> None:
    raise KnobError("3 knobs are changed")
