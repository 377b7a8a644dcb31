"""The sign on a button that opens a menu."""

ARROW = "▼"
