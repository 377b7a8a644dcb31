"""The two small dialogs of the Help menu: keys and gestures, and what this program is."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from PySide6.QtWidgets import QLabel, QWidget

from gradstudio import __version__
from gradstudio.gui.widgets import popups
from gradstudio.gui.widgets.list_keys import LIST_KEYS

GESTURES = (  # and keys that a widget hears only while it has the focus
    ("Drag the timeline, click a plot", "Rewind to that step"),
    ("Drag the max_norm line", "Set clipping.max_norm"),
    ("Wheel, drag on a plot", "Zoom and move along the steps"),
    ("+, -, Page up, Page down on a plot", "Zoom and move along the steps"),
    ("Double click on a plot", "Show whole run"),
    ("Left, Right on a plot", "Read the step before, the step after"),
    ("Up, Down on the layers", "Read the layer above, the layer below"),
    ("Menu key, Shift+F10 on a plot", "Copy or save its figure and its data"),
    *((f"{keys} on a run or branch", what) for keys, what in LIST_KEYS.values()),
)


def show_keys(parent: QWidget, commands: Sequence[tuple[str, str]]) -> None:
    """Show the keys of the commands beside the gestures."""
    pairs = zip_longest(commands, GESTURES, fillvalue=("", ""))
    lines = ("".join(_cell(f"<b>{keys}</b>") + _cell(what) for keys, what in line) for line in pairs)
    rows = "".join(f"<tr>{line}</tr>" for line in lines)
    box = popups.message_box(parent, "Keys and gestures", f"<table cellspacing='4'>{rows}</table>")
    for label in box.findChildren(QLabel):
        label.setWordWrap(False)  # no line is broken, and to try it out takes as long as all the rest
    box.open()


def _cell(text: str) -> str:
    return f"<td style='white-space: nowrap'>{text}&nbsp;&nbsp;</td>"


def show_about(parent: QWidget) -> None:
    text = (
        f"<h3>GradStudio {__version__}</h3><p>A flight simulator for training stability. It trains a real PyTorch "
        "model in front of you, "
        "lets you break the training on purpose, and shows why it broke.</p>"
        "<p>Handwritten digits: UCI Optical Recognition of Handwritten Digits, E. Alpaydin and C. Kaynak, CC BY 4.0. "
        "Font: Inter, SIL Open Font License 1.1.</p>"
    )
    popups.message_box(parent, "About GradStudio", text).open()
