"""Texts of 100,000 characters, HTML and terminal escapes where a person can type, paste or name: cut, and shown as text."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from PySide6.QtCore import QMimeData, Qt
from PySide6.QtGui import QFont, QFontMetrics
from PySide6.QtWidgets import QApplication, QFileDialog, QLineEdit, QPushButton, QToolButton
from pytestqt.qtbot import QtBot
from waiting import LONG

from gradstudio.core.text import LONGEST_LINE, storable
from gradstudio.gui.diagnosis.findings_panel import in_lines
from gradstudio.gui.knobs.preset_text import LONGEST_PASTED, PastedPreset
from gradstudio.gui.runs.notes_editor import NotesEditor
from gradstudio.gui.services.message_bar import MessageBar
from gradstudio.gui.shell.state_pill import shorten
from gradstudio.gui.shell.window_columns import LEAST
from gradstudio.gui.theme import theme
from gradstudio.gui.widgets.popups import file_dialog
from gradstudio.gui.widgets.search_line import SearchLine
from gradstudio.gui.window import Window
from gradstudio.session.library.run_entries import LONGEST_NOTE, LONGEST_TAG, MOST_TAGS

pytestmark = pytest.mark.shares_window

VERY_LONG = "x" * 100_000
HOSTILE = "\x1b[31m<b>red</b>\r\n"


def test_a_message_is_one_line_and_ends(qtbot: QtBot) -> None:
    bar = MessageBar()
    qtbot.addWidget(bar)
    bar._show("bad", VERY_LONG, VERY_LONG, bar._file)
    assert len(bar.text.text()) <= LONGEST_LINE and "…" in bar.text.text()
    assert bar._details == VERY_LONG
    bar._show("bad", HOSTILE, "", bar._file)
    assert bar.text.text() == "[31m<b>red</b>" and bar.text.textFormat() == Qt.TextFormat.PlainText


def test_the_state_of_a_run_says_nothing_else_where_there_is_less_room(qapp: object) -> None:
    metrics = QFontMetrics(theme.font(1.0, QFont.Weight.DemiBold))
    for text, short in (
        ("Finished: test accuracy 29.2 %", "Finished"),
        ("Exploding since step 1,234", "Exploding"),
        ("Diverged: the loss is NaN at step 134", "Diverged at step 134"),
        ("Finished: test accuracy 9 % · branch “x”", "Finished"),
        ("Looking at step 108 of 1,500", "Looking at step 108"),
        ("Updates too large, of gradients that spiked", "Updates too large"),
    ):
        whole = text.partition(" · ")[0]
        assert shorten(text, metrics, 1000) == whole
        assert shorten(text, metrics, metrics.horizontalAdvance(whole) - 1) == short


def test_the_state_keeps_its_place_and_width(qtbot: QtBot, window: Window) -> None:
    places = set()
    for text in ("Ready: press Run", "Finished: test accuracy 71.4 % · branch “clipping.kind none → norm”"):
        window.top.pill.show_state("good", text)
        QApplication.processEvents()
        places.add(window.top.pill.geometry().getRect())
        assert window.top.pill.toolTip() == text
    assert len(places) == 1


def test_no_remedy_is_wider_than_the_narrowest_page(qtbot: QtBot, window: Window) -> None:
    remedy = "model.norm=batch model.residual=true model.norm_position=pre"
    button = QPushButton(in_lines(remedy.replace("=", " = ").replace(" model.", ", model.")))
    button.setProperty("role", "remedy")
    button.setParent(window.findings)
    button.ensurePolished()
    assert button.text() == "model.norm = batch,\nmodel.residual = true,\nmodel.norm_position = pre"
    assert button.sizeHint().width() < LEAST[2] - 60
    assert in_lines("optimizer.lr = 0.1, a = 1") == "optimizer.lr = 0.1, a = 1"


def test_a_search_takes_no_more_than_a_search(qapp: object) -> None:
    line = SearchLine("Find", "Finds")
    line.setText(VERY_LONG)
    assert len(line.text()) == 200


def test_a_note_is_cut_before_it_is_broken_into_lines(qtbot: QtBot, make_window: Callable[..., Window]) -> None:
    editor = NotesEditor()
    qtbot.addWidget(editor)
    pasted = QMimeData()
    for letter in ("x", "😀"):  # one is two of Qt's characters
        pasted.setText(letter * 100_000)
        editor.note.clear()
        editor.note.insertFromMimeData(pasted)
        editor.note.insertFromMimeData(pasted)
        assert editor.note.toPlainText() == letter * LONGEST_NOTE
    editor.tags.setText(VERY_LONG)
    assert len(editor.tags.text()) <= (LONGEST_TAG + 2) * MOST_TAGS


def test_a_text_too_long_for_a_preset_is_refused_when_it_is_pasted(window: Window) -> None:
    QApplication.clipboard().clear()  # which the dialog takes a preset from
    dialog, pasted = PastedPreset(window.context), QMimeData()
    pasted.setText(VERY_LONG)
    dialog.text.insertFromMimeData(pasted)
    assert not dialog.text.toPlainText() and "100,000 characters" in dialog.problem.text()
    pasted.setText(VERY_LONG[:LONGEST_PASTED])
    dialog.text.insertFromMimeData(pasted)
    assert len(dialog.text.toPlainText()) == LONGEST_PASTED and not dialog.problem.text()
    dialog.text.insertFromMimeData(pasted)
    assert len(dialog.text.toPlainText()) == LONGEST_PASTED and dialog.problem.text()


def test_the_buttons_of_a_file_dialog_have_room_for_their_icons(window: Window) -> None:
    dialog = file_dialog(window, "Save", "")
    dialog.setOption(QFileDialog.Option.DontUseNativeDialog)
    dialog.open()
    for button in dialog.findChildren(QToolButton):
        shown = button.grab().toImage()
        middle = {shown.pixel(x, y) for x in range(6, shown.width() - 6) for y in range(6, shown.height() - 6)}
        assert len(middle) > 2, button.objectName()
    dialog.reject()


def test_a_file_dialog_takes_no_name_that_no_file_can_have(window: Window) -> None:
    dialog = file_dialog(window, "Save", "")
    name = dialog.findChild(QLineEdit, "fileNameEdit")
    for text, taken in (("a\0b", ""), ("Übung 1.csv", "Übung 1.csv")):
        QApplication.clipboard().setText(text)
        name.clear()
        name.paste()
        assert name.text() == taken
    dialog.close()


@pytest.mark.parametrize("text", ["\ud800", "a\udfffb"])
def test_half_a_letter_can_be_stored(text: str) -> None:
    assert storable(text).encode() and storable("ä👩‍👧") == "ä👩‍👧"


def test_a_preset_named_with_half_a_letter(window: Window) -> None:
    window.controls.save_preset_as("name \ud800")
    assert "Saved as" in window.message.message and window.simulator.preset.title == "name ?"


def test_a_run_named_by_an_enemy(qtbot: QtBot, window: Window) -> None:
    window.controls.run_or_pause()
    qtbot.waitUntil(lambda: window.simulator.run.over, timeout=LONG)
    for name in (VERY_LONG, HOSTILE, "half \ud800"):
        window.branches.rename(window.simulator.run.id, name)
        for page in ("runs", "branches"):
            window.columns.show_page(page)
            window.refresh(whole=True)
            window.grab()
        qtbot.waitUntil(lambda: not window.jobs.busy, timeout=LONG)
    assert not window.simulator.library_problem
