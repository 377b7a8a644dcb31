"""Keys and gestures: every key of the commands by menu, and every gesture, in columns with a search line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from PySide6.QtCore import QSize, Qt
from PySide6.QtWidgets import QDialogButtonBox, QLabel, QLineEdit, QVBoxLayout, QWidget

from gradstudio.gui.theme import theme
from gradstudio.gui.widgets import popups
from gradstudio.gui.widgets.plain_grounds import scroll_area
from gradstudio.gui.widgets.roles import role_label
from gradstudio.gui.widgets.rows import in_column, in_row

Pairs = Sequence[tuple[str, str]]
LINE_HEIGHT = 125  # % of the text's own
COLUMN = 380  # px of a column at normal text
MOST_COLUMNS = 3
MARGIN = 40  # px of the window that stay visible around the dialog
HEIGHT = 620  # px at normal text, at most
SEARCH = "Search keys and gestures"
NOTHING = "Nothing has all of these words: try fewer."


class _Topic(QWidget):
    """A heading, and under it keys beside their effects. Qt takes 0.1 s to lay out a table with so many cells, and two
    texts next to nothing."""

    def __init__(self, title: str, pairs: Pairs) -> None:
        super().__init__()
        self.title, self._pairs = title, pairs
        self._keys, self._what = QLabel(), QLabel()
        for label in (self._keys, self._what):
            label.setAlignment(Qt.AlignmentFlag.AlignTop)
        row = in_row(self._keys, (self._what, 1), spacing=12)
        in_column(role_label(title, "title"), row, of=self, margins=(0, 0, 0, 14), spacing=2)
        self.show_matches([])

    @property
    def lines(self) -> int:
        return len(self._pairs) + 2

    def show_matches(self, words: Sequence[str]) -> bool:
        """Show the pairs that contain every word, together with the title; return whether there are any."""
        kept = [
            pair for pair in self._pairs if all(word in f"{self.title} {' '.join(pair)}".casefold() for word in words)
        ]
        self._keys.setText(_text([keys for keys, _ in kept], "font-weight: 600"))
        self._what.setText(_text([what for _, what in kept]))
        self.setVisible(bool(kept))
        return bool(kept)


class KeysDialog(popups.TemporaryDialog):
    def __init__(self, parent: QWidget, topics: Mapping[str, Pairs]) -> None:
        super().__init__(parent, "Keys and gestures")
        self.search = QLineEdit(placeholderText=SEARCH, clearButtonEnabled=True)
        self.search.setAccessibleName(SEARCH)
        self.search.setToolTip("Shows only the lines that have all of these words")
        self.search.textChanged.connect(self._find)
        self.topics = [_Topic(title, pairs) for title, pairs in topics.items() if pairs]
        self.nothing = role_label(NOTHING, "dim")
        self.nothing.hide()
        room = parent.size() - QSize(MARGIN, MARGIN)
        count = min(MOST_COLUMNS, max(1, int(room.width() / (COLUMN * theme.zoom))))
        inside = QWidget()
        columns = in_row(of=inside, margins=(0, 0, 12, 0), spacing=24)
        for topics_of_column in _dealt(self.topics, count):
            column = QVBoxLayout()
            for topic in topics_of_column:
                column.addWidget(topic)
            column.addStretch(1)
            columns.addLayout(column, 1)
        buttons = QDialogButtonBox(QDialogButtonBox.StandardButton.Close)
        buttons.rejected.connect(self.reject)
        in_column(
            self.search,
            self.nothing,
            (scroll_area(inside, "Keys and gestures"), 1),
            buttons,
            of=self,
            margins=(16, 14, 12, 12),
            spacing=12,
        )
        wanted = QSize(count * COLUMN, HEIGHT) * theme.zoom
        self.resize(wanted.boundedTo(room))

    def _find(self, text: str) -> None:
        matches = [topic.show_matches(text.casefold().split()) for topic in self.topics]
        self.nothing.setVisible(not any(matches))


def _dealt(topics: Sequence[_Topic], count: int) -> list[list[_Topic]]:
    """Return the topics in their order, in `count` columns of about the same height."""
    columns: list[list[_Topic]] = [[] for _ in range(count)]
    whole, before = sum(topic.lines for topic in topics), 0
    for topic in topics:
        columns[min(int(count * (before + topic.lines / 2) / whole), count - 1)].append(topic)
        before += topic.lines
    return columns


def _text(lines: Sequence[str], style: str = "") -> str:
    text = "<br>".join(escape(line) for line in lines)
    return f"<p style='margin: 0; white-space: pre; line-height: {LINE_HEIGHT}%; {style}'>{text}</p>"
