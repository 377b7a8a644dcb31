"""The script's own reports, until the next row takes them: its figures, and its number of the next step."""

from __future__ import annotations


class LoggedFigures:
    """Written and read in the thread that trains."""

    def __init__(self) -> None:
        self.step: int | None = None
        self._figures: list[tuple[str, float]] = []

    def add(self, name: str, value: float) -> None:
        """Keep a figure for the next row."""
        self._figures.append((name, value))

    def take(self) -> tuple[tuple[str, float], ...]:
        """Return the figures for a row, and clear them."""
        taken, self._figures = tuple(self._figures), []
        return taken
