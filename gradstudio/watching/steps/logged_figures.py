"""The script's own reports, until the next row takes them: its figures, and its number of the next step."""

from __future__ import annotations

from collections.abc import Mapping

from gradstudio.session.files.log_reading.column_names import guess_columns

_KNOWN = ("accuracy", "test_accuracy", "val_loss", "reward", "kl")  # quantities that rules know by these names


class LoggedFigures:
    """Written and read in the thread that trains."""

    def __init__(self) -> None:
        self.step: int | None = None
        self._figures: list[tuple[str, float]] = []

    def log(self, step: int | None, figures: Mapping[str, float]) -> bool:
        """Keep figures for the next row, which the script gives this number, if it does. Return whether one of them is
        a reward."""
        self.step = step if step is not None else self.step
        known = {name: quantity for quantity, name in guess_columns(figures, {}).items() if quantity in _KNOWN}
        self._figures += [(known.get(name, name), value) for name, value in figures.items()]
        return "reward" in known.values()

    def take(self) -> tuple[tuple[str, float], ...]:
        """Return the figures for a row, and clear them."""
        taken, self._figures = tuple(self._figures), []
        return taken
