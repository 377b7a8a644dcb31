"""The symbol on a button that opens a menu."""

from PySide6.QtWidgets import QPushButton


def add_arrow(button: QPushButton) -> None:
    """Show at the right end of a button that it opens a menu."""
    button.setProperty("opens", "menu")
