"""The two small dialogs of the Help menu."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QMessageBox, QWidget

from gradstudio import __version__

KEYS = (
    ("Space, F5", "Run or pause"),
    ("F10", "One step"),
    ("Ctrl+R", "Restart"),
    ("Ctrl+.", "Stop"),
    ("Ctrl+Up, Ctrl+Down", "Faster, slower"),
    ("Ctrl+O, Ctrl+S", "Open a preset, save the knobs as one"),
    ("Ctrl+E", "Export a report"),
    ("Ctrl+F", "Find a knob"),
    ("Ctrl+B", "Compare the next step with the large batch"),
    ("Ctrl+G, Ctrl+Shift+G", "Go back to a step, to the last healthy one"),
    ("Drag the timeline, click a plot", "Go back to that step"),
    ("Ctrl+Z", "Take the last change of a knob back"),
    ("Ctrl+T", "Start twins, which differ in one knob"),
    ("Ctrl+1 to Ctrl+6", "Show or hide the knobs, the words, the code, the runs, the branches, the gauges"),
    ("Space, Enter, F2, Delete, Ctrl+Z on a run or branch", "Draw it over the plots, go to it, name it, delete it, undo that"),
    ("Menu key, Shift+F10 on a plot", "Copy or save its figure and its data"),
    ("Ctrl++, Ctrl+-, Ctrl+0", "Larger, smaller, normal text"),
    ("F11", "Full screen"),
    ("Wheel, drag on a plot", "Zoom and move along the steps"),
    ("Double click, Home", "The whole run"),
    ("Left, Right on a plot", "Read the step before, the step after"),
    ("Up, Down on the layers", "Read the layer above, the layer below"),
    ("+, -, Page up, Page down on a plot", "Zoom and move along the steps"),
    ("Drag the max_norm line", "Set clipping.max_norm"),
)


def show_keys(parent: QWidget) -> None:
    rows = "".join(f"<tr><td><b>{keys}</b>&nbsp;&nbsp;</td><td>{what}</td></tr>" for keys, what in KEYS)
    _show(parent, "Keys and gestures", f"<table cellspacing='4'>{rows}</table>")


def show_about(parent: QWidget) -> None:
    text = (
        f"<h3>GradStudio {__version__}</h3><p>A flight simulator for training stability. It trains a real PyTorch model in front of you, "
        "lets you break the training on purpose, and shows why it broke.</p>"
        "<p>Handwritten digits: UCI Optical Recognition of Handwritten Digits, E. Alpaydin and C. Kaynak, CC BY 4.0. "
        "Font: Inter, SIL Open Font License 1.1.</p>"
    )
    _show(parent, "About GradStudio", text)


def _show(parent: QWidget, title: str, text: str) -> None:
    box = QMessageBox(parent)
    box.setWindowTitle(title)
    box.setTextFormat(Qt.TextFormat.RichText)
    box.setText(text)
    box.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
    box.open()
