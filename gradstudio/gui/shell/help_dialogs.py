"""The dialog of the Help menu that says what this program is."""

from __future__ import annotations

from PySide6.QtWidgets import QWidget

from gradstudio import __version__
from gradstudio.core.text import strong
from gradstudio.gui.widgets import popups


def show_about(parent: QWidget) -> None:
    text = (
        f"<p style='font-size: large'>{strong(f'GradStudio {__version__}')}</p>"
        "<p>A flight simulator for training stability. It trains a real PyTorch model in front of you, lets you break "
        "the training on purpose, and shows why it broke.</p>"
        "<p>Handwritten digits: UCI Optical Recognition of Handwritten Digits, E. Alpaydin and C. Kaynak, CC BY 4.0. "
        "Font: Inter, SIL Open Font License 1.1.</p>"
    )
    popups.message_box(parent, "About GradStudio", text).open()
