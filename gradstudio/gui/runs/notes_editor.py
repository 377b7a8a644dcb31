"""A run's tags and its note: shown as Markdown, and edited as text. It saves when the user leaves a field or chooses
another run."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QMimeData, QObject, Qt, Signal
from PySide6.QtGui import QFocusEvent, QTextCursor
from PySide6.QtWidgets import QLineEdit, QPlainTextEdit, QWidget

from gradstudio.core.text import storable
from gradstudio.gui.runs.note_view import NoteView
from gradstudio.gui.theme import theme
from gradstudio.gui.widgets.rows import NO_MARGINS, in_column
from gradstudio.session.library.run_entries import LONGEST_NOTE, LONGEST_TAG, MOST_TAGS, Entry

STAYING = (Qt.FocusReason.PopupFocusReason, Qt.FocusReason.ActiveWindowFocusReason)  # of a user who continues there
LINES = 3  # visible lines of a note


class NoteLines(QPlainTextEdit):
    """The lines of a note. Pasted text is cut to the remaining room, before Qt wraps it."""

    def insertFromMimeData(self, source: QMimeData) -> None:
        room = LONGEST_NOTE - len(self.toPlainText()) + len(self.textCursor().selectedText())
        if room > 0:
            self.insertPlainText(source.text()[:room])


class NotesEditor(QWidget):
    left = Signal(str, str, tuple)  # run, note, tags that the user has written

    def __init__(self) -> None:
        super().__init__()
        self._entry: Entry | None = None
        self.tags, self.note = QLineEdit(), NoteLines()
        self.tags.setMaxLength((LONGEST_TAG + 2) * MOST_TAGS)
        self.tags.setPlaceholderText("Tags, with commas between them")
        self.tags.setAccessibleName("Tags of the chosen run")
        self.tags.setToolTip("Tags to find the run by, with commas between them; saved when you leave the field")
        self.note.setPlaceholderText("Note, in Markdown")
        self.note.setObjectName("note")
        self.note.setAccessibleName("Note on the chosen run")
        self.note.setToolTip("Keeps what you want to remember of this run; saved when you leave the field")
        self.note.setTabChangesFocus(True)
        self.view = NoteView()
        self.view.edit_asked.connect(self.edit)
        self.view.hide()
        column = in_column(of=self, margins=NO_MARGINS, spacing=6)
        for field in (self.tags, self.note):
            field.installEventFilter(self)
            column.addWidget(field)
        column.addWidget(self.view)
        self.tags.returnPressed.connect(self.save)
        self.fit()

    def fit(self) -> None:
        """Make the note as high as its lines of text."""
        for field in (self.note, self.view):
            field.setFixedHeight(LINES * self.note.fontMetrics().lineSpacing() + round(14 * theme.zoom))

    def edit(self) -> None:
        """Show the note as plain text, for editing."""
        self.view.hide()
        self.note.show()
        self.note.setFocus()
        self.note.moveCursor(QTextCursor.MoveOperation.End)

    def _render(self) -> None:
        """Show the note as Markdown; an empty one as a place to write in."""
        note = self.note.toPlainText()
        if note.strip():
            self.view.show_note(note)
        self.view.setVisible(bool(note.strip()))
        self.note.setVisible(not note.strip())

    def show_notes(self, entry: Entry | None) -> None:
        """Show the tags and the note of a run; keep unsaved text about the same run."""
        same = entry is not None and self._entry is not None and entry.id == self._entry.id
        if same and self._is_edited():
            return
        if not same:
            self.save()
        self._entry = entry
        self.setEnabled(entry is not None)
        tags, note = (", ".join(entry.tags), entry.note) if entry else ("", "")
        if tags != self.tags.text():
            self.tags.setText(tags)
        if note != self.note.toPlainText():
            self.note.setPlainText(note[:LONGEST_NOTE])
        if not self.note.hasFocus() or not same:
            self._render()

    def save(self) -> None:
        """Emit `left` if anything was written."""
        if self._entry is None or not self._is_edited():
            return
        note, tags = self._content()
        if len(note) > LONGEST_NOTE:
            note = note[:LONGEST_NOTE]
            self.note.setPlainText(note)
        self._entry = Entry(**{**vars(self._entry), "note": note, "tags": tags})
        self.left.emit(self._entry.id, note, tags)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if isinstance(event, QFocusEvent) and event.type() == QEvent.Type.FocusOut:
            self.save()
            if watched is self.note and event.reason() not in STAYING:
                self._render()
        return False

    def _is_edited(self) -> bool:
        return self._entry is not None and self._content() != (self._entry.note, self._entry.tags)

    def _content(self) -> tuple[str, tuple[str, ...]]:
        tags = [" ".join(tag.split()) for tag in self.tags.text().split(",")]
        return storable(self.note.toPlainText()), tuple(dict.fromkeys(storable(tag) for tag in tags if tag))
