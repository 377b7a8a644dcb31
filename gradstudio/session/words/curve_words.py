"""A curve in words, for screen-reader users: its last, smallest and largest value, and how many of its values are
non-finite. Every number is that of the run, and every sentence names its steps."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gradstudio.core.history import History
from gradstudio.core.text import number, percent, plural

# Columns of the history by the name of their curve. The others are described by the plot's own reading.
CURVES: dict[str, str] = {
    "loss": "loss",
    "grad_norm": "gradient norm",
    "clipped_norm": "norm after clipping",
    "lr": "learning rate",
    "scale": "loss scale",
    "test_accuracy": "accuracy on the test set",
    "head_cosine": "cosine at the head",
    "clip_cosine": "cosine of clipping",
    "update_cosine": "cosine of the update",
}
SHARES = {"test_accuracy"}


def curve_words(name: str, steps: np.ndarray, values: np.ndarray, told: Callable[[float], str] = number) -> str:
    """Return the words for one curve: `values`, shape (n,), measured at `steps`, shape (n,), ascending. `told` formats
    a value. "" if nothing was measured."""
    summary = CurveSummary()
    summary.add(steps, values)
    return summary.words(name, told)


class CurveSummary:
    """The summary of a curve, updated as its rows arrive: nothing is read twice."""

    def __init__(self) -> None:
        self._count = self._broken = 0  # numbers of all and of non-finite values
        self._first_broken = 0  # step
        self._last = self._least = self._most = (0, 0.0)  # step and value

    def add(self, steps: np.ndarray, values: np.ndarray) -> None:
        """Add values, shape (n,), measured at the next `steps`, shape (n,)."""
        if not len(values):
            return
        finite = np.isfinite(values)
        rows = np.flatnonzero(finite)
        if len(rows):
            least, most = (int(rows[find(values[rows])]) for find in (np.argmin, np.argmax))
            none = self._count == self._broken
            if none or values[least] < self._least[1]:
                self._least = (int(steps[least]), float(values[least]))
            if none or values[most] > self._most[1]:
                self._most = (int(steps[most]), float(values[most]))
        if len(rows) < len(values):
            if not self._broken:
                self._first_broken = int(steps[np.argmin(finite)])
            self._broken += len(values) - len(rows)
        self._count += len(values)
        self._last = (int(steps[-1]), float(values[-1]))

    def words(self, name: str, told: Callable[[float], str] = number) -> str:
        """Return the words for the current curve; `told` formats a value. "" if it is empty."""
        if not self._count:
            return ""
        parts = [f"{name} {told(self._last[1])} at step {self._last[0]:,}"]
        if self._count > max(self._broken, 1):
            (least_at, least), (most_at, most) = self._least, self._most
            if least == most:
                parts.append("the same wherever it is finite" if self._broken else "always the same")
            else:
                parts.append(f"smallest {told(least)} at step {least_at:,}")
                parts.append(f"largest {told(most)} at step {most_at:,}")
        if self._broken:
            broken = plural(self._broken, "value is", "values are")
            parts.append(f"{broken} NaN or Inf, first at step {self._first_broken:,}")
        return f"{', '.join(parts)}."


class ColumnSummaries:
    """The words for some columns of a growing history, of which only new rows are read."""

    def __init__(self) -> None:
        self._history: History | None = None
        self._kept: dict[str, tuple[int, CurveSummary]] = {}  # by column: rows read, and their summary

    def forget(self) -> None:
        self._kept = {}

    def words(self, history: History, names: tuple[str, ...], stop: int) -> str:
        """Return the words for the rows before the step `stop`; "" if none of the columns was measured."""
        if history is not self._history:
            self._history = history
            self.forget()
        return " ".join(filter(None, (self._words(history, name, stop) for name in names if name in CURVES)))

    def _words(self, history: History, name: str, stop: int) -> str:
        start, summary = self._kept.get(name, (0, CurveSummary()))
        if stop < start:
            start, summary = 0, CurveSummary()
        summary.add(*history.measurements(name, start, stop))
        self._kept[name] = (stop, summary)
        return summary.words(CURVES[name], percent if name in SHARES else number)
