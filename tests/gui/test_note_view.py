"""A note is shown as Markdown, loads nothing, and opens no link unasked."""

from __future__ import annotations

from pathlib import Path

import pytest
from PySide6.QtCore import QPoint, Qt, QUrl
from PySide6.QtGui import QColor, QImage
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QLineEdit, QVBoxLayout, QWidget
from pytestqt.qtbot import QtBot

from gradstudio.gui.runs import note_view
from gradstudio.gui.runs.note_view import NoteView
from gradstudio.gui.runs.notes_editor import NotesEditor
from gradstudio.gui.runs.run_painter import one_line_of
from gradstudio.gui.window import Window

pytestmark = pytest.mark.shares_window


def test_markdown_is_shown_without_what_it_would_load(qtbot: QtBot, tmp_path: Path) -> None:
    picture = QImage(8, 8, QImage.Format.Format_RGB32)
    picture.fill(QColor("red"))
    assert picture.save(str(tmp_path / "a.png"))
    view = NoteView()
    qtbot.addWidget(view)
    view.resize(400, 300)
    view.show()
    asked: list[str] = []
    view.link_asked.connect(asked.append)
    url = QUrl.fromLocalFile(str(tmp_path / "a.png")).toString()
    view.show_note(
        f"# Title\n\n**bold** and *slanted*\n\n- one\n- two\n\n![a picture]({url}) ![p][r]\n\n[r]: {url}\n\n"
        f"<b>raw</b> <img src='{url}'> <script>alert(1)</script>\n\n[a link](https://example.org/x) [no](file:///etc)"
    )
    text, html = view.toPlainText(), view.document().toHtml()
    assert "Title" in text and "**" not in text and "- one" not in text
    assert "image: a picture" in text and "<b>raw</b>" in text and "<script>alert(1)</script>" in text
    assert "<img" not in html.replace("&lt;img", "")
    for word in ("a link", "no"):
        view.moveCursor(view.textCursor().MoveOperation.Start)
        assert view.find(word)
        cursor = view.textCursor()
        cursor.setPosition(cursor.selectionStart() + 1)
        view.setTextCursor(cursor)
        at = view.cursorRect().center()
        assert view.anchorAt(at)
        QTest.mouseClick(view.viewport(), Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier, at)
    assert asked == ["https://example.org/x"]
    view.show_note("x" * 20_000)  # which Qt could not lay out in a second as one word
    assert view.toPlainText().count("x") == 20_000


@pytest.mark.parametrize("begun", ["![a\nb]", "!![a]", "![a\n![b]"])
def test_an_image_in_any_spelling_opens_no_file(qtbot: QtBot, tmp_path: Path, begun: str) -> None:
    picture = QImage(64, 64, QImage.Format.Format_RGB32)
    picture.fill(QColor("red"))
    assert picture.save(str(tmp_path / "a.png"))
    view = NoteView()
    qtbot.addWidget(view)
    view.resize(300, 200)
    view.show()
    for url in (QUrl.fromLocalFile(str(tmp_path / "a.png")).toString(), str(tmp_path / "a.png")):
        view.show_note(f"{begun}({url})")
        assert "image: " in view.toPlainText() and "<img" not in view.document().toHtml()
        view.document().setMarkdown(f"![a]({url})")  # an image all the same is an empty one
        shown = view.grab().toImage()
        assert not any(shown.pixelColor(20, row) == QColor("red") for row in range(shown.height()))


def test_a_note_is_edited_as_text_and_then_shown(qtbot: QtBot) -> None:
    place, notes, elsewhere = QWidget(), NotesEditor(), QLineEdit()
    column = QVBoxLayout(place)
    column.addWidget(notes)
    column.addWidget(elsewhere)
    qtbot.addWidget(place)
    with qtbot.waitActive(place):
        place.show()
        place.activateWindow()
    assert notes.note.isVisible() and not notes.view.isVisible()
    notes.note.setFocus()
    qtbot.keyClicks(notes.note, "# Why")
    elsewhere.setFocus()
    assert notes.view.isVisible() and not notes.note.isVisible() and notes.view.toPlainText() == "Why"
    qtbot.keyClick(notes.view, Qt.Key.Key_Return)
    assert notes.note.isVisible() and notes.note.hasFocus() and notes.note.toPlainText() == "# Why"
    elsewhere.setFocus()
    QTest.mouseClick(notes.view.viewport(), Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier, QPoint(200, 40))
    assert notes.note.isVisible()


def test_a_long_note_is_shown_from_its_beginning_and_one_line_of_it_in_the_list(qtbot: QtBot) -> None:
    notes = NotesEditor()
    qtbot.addWidget(notes)
    notes.show()
    notes.note.setPlainText(
        "# Lower rate\n\n- `lr=0.01` **holds**\n- see [the paper](https://example.org)\n\n" + "more\n\n" * 9
    )
    notes._render()
    notes.view.ensureCursorVisible()  # as focus and a resize do
    assert notes.view.verticalScrollBar().maximum() > 0 and notes.view.verticalScrollBar().value() == 0
    assert one_line_of(notes.note.toPlainText()).startswith("Lower rate lr=0.01 holds see the paper more")


def test_a_link_is_opened_only_when_asked(window: Window, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr(note_view, "follow", opened.append)
    window.side.runs.notes.view.link_asked.emit("https://example.org/x")
    assert window.message.message == "The note links to https://example.org/x" and not opened
    qtbot.mouseClick(window.message.action, Qt.MouseButton.LeftButton)
    assert opened == ["https://example.org/x"]
