"""The two small dialogs of the Help menu: keys and gestures, and what this program is."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QDialogButtonBox, QHBoxLayout, QLabel, QVBoxLayout, QWidget

from gradstudio import __version__
from gradstudio.gui.widgets import popups
from gradstudio.gui.widgets.list_keys import LIST_KEYS

LINE_HEIGHT = 125  # % of the text's own
GESTURES = (  # and keys that a widget hears only while it has the focus
    ("Drag the timeline, click a plot", "Rewind to that step"),
    ("Drag the max_norm line", "Set clipping.max_norm"),
    ("Wheel, drag on a plot", "Zoom and move along the steps"),
    ("+, -, Page up, Page down on a plot", "Zoom and move along the steps"),
    ("Double click on a plot", "Show whole run"),
    ("Left, Right on a plot", "Read the step before, the step after"),
    ("Up, Down on the layers", "Read the layer above, the layer below"),
    ("Click, Enter on the layers", "Open the page of that layer"),
    ("Up, Down on a layer's page", "Show the layer above, the layer below"),
    ("Click, Enter on a layer's page", "Look into that step"),
    ("Escape on a layer's page", "Show all plots"),
    ("Menu key, Shift+F10 on a plot", "Copy or save its figure and its data"),
    ("Click, Enter on a cell of a map", "Open that cell as a run"),
    ("Drag the cross on a map", "Set its two knobs"),
    *((f"{keys} on a run or branch", what) for keys, what in LIST_KEYS.values()),
)


def show_keys(parent: QWidget, commands: Sequence[tuple[str, str]]) -> None:
    """Show the keys of the commands beside the gestures."""
    dialog = popups.TemporaryDialog(parent, "Keys and gestures")
    columns = QHBoxLayout()
    columns.setSpacing(12)
    for pairs in (commands, GESTURES):
        columns.addWidget(_column([f"<b>{escape(keys)}</b>" for keys, _ in pairs]))
        columns.addWidget(_column([escape(what) for _, what in pairs]))
    buttons = QDialogButtonBox(QDialogButtonBox.StandardButton.Ok)
    buttons.accepted.connect(dialog.accept)
    rows = QVBoxLayout(dialog)
    rows.setContentsMargins(36, 14, 12, 12)
    rows.setSpacing(12)
    rows.addLayout(columns)
    rows.addWidget(buttons)
    dialog.open()


def _column(lines: Sequence[str]) -> QLabel:
    """Return one column of a table. Qt takes 0.1 s to lay a table of so many cells out, and a text next to nothing."""
    label = QLabel(f"<p style='white-space: pre; line-height: {LINE_HEIGHT}%'>{'<br>'.join(lines)}</p>")
    label.setAlignment(Qt.AlignmentFlag.AlignTop)
    return label


def show_about(parent: QWidget) -> None:
    text = (
        f"<h3>GradStudio {__version__}</h3><p>A flight simulator for training stability. It trains a real PyTorch "
        "model in front of you, "
        "lets you break the training on purpose, and shows why it broke.</p>"
        "<p>Handwritten digits: UCI Optical Recognition of Handwritten Digits, E. Alpaydin and C. Kaynak, CC BY 4.0. "
        "Font: Inter, SIL Open Font License 1.1.</p>"
    )
    popups.message_box(parent, "About GradStudio", text).open()
