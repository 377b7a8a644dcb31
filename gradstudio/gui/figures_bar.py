"""The figures of the current step, along the foot of the window."""

from __future__ import annotations

import math
import time

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QHBoxLayout, QLabel, QWidget

from gradstudio.core.history import History
from gradstudio.core.text import number, power
from gradstudio.gui.theme import theme
from gradstudio.session.run import Run

NAMES = ("step", "steps/s", "loss", "|g|", "clipped", "scale", "skipped", "non-finite")
NOTHING = "–"  # for a value that is not there
WINDOW = 500  # steps over which the share of clipped steps is taken


class Rate:
    """Steps a second, over the last second or two."""

    def __init__(self) -> None:
        self._marks: list[tuple[float, int]] = []

    def update(self, steps: int) -> float | None:
        now = time.perf_counter()
        if self._marks and steps < self._marks[-1][1]:
            self._marks = []
        self._marks = [mark for mark in self._marks if now - mark[0] < 2.0] + [(now, steps)]
        (first, before), (last, after) = self._marks[0], self._marks[-1]
        return (after - before) / (last - first) if last - first > 0.3 else None


class Figure(QWidget):
    """A name and its value. It never gets narrower while a run goes, so that those behind it stand still."""

    def __init__(self, name: str) -> None:
        super().__init__()
        title, self._value = QLabel(name), QLabel(NOTHING)
        title.setProperty("role", "fixed")
        self._value.setProperty("role", "title")
        for label in (title, self._value):
            label.setTextFormat(Qt.TextFormat.PlainText)  # a rich text is laid out for milliseconds
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(5)
        row.addWidget(title)
        row.addWidget(self._value)

    @property
    def value(self) -> str:
        return self._value.text()

    def show_value(self, value: str) -> None:
        if value != self._value.text():
            self._value.setText(value)
            self._value.setMinimumWidth(self._value.sizeHint().width())  # which is never less than the least width

    def forget(self) -> None:
        """Be as narrow as the next value allows."""
        self._value.setMinimumWidth(0)
        self._value.setText(NOTHING)


class FiguresBar(QWidget):
    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("figures")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.figures = {name: Figure(name) for name in NAMES}
        self._places = QWidget()
        self._places.setAccessibleName("Figures of the current step")
        place = QHBoxLayout(self._places)
        place.setSizeConstraint(QHBoxLayout.SizeConstraint.SetMinimumSize)  # half a number would be another number
        place.setContentsMargins(0, 0, 0, 0)
        place.setSpacing(16)
        for figure in self.figures.values():
            place.addWidget(figure)
        place.addStretch(1)
        self.note = QLabel()
        self.note.setProperty("role", "dim")
        self._rate = Rate()
        self._totals = (0, 0, 0)  # rows taken in, skipped steps, non-finite steps
        self._run: Run | None = None
        row = QHBoxLayout(self)
        row.setContentsMargins(12, 4, 12, 4)
        row.addWidget(self._places, 1)
        row.addWidget(self.note)
        theme.changed.connect(self._forget)

    def refresh(self, run: Run) -> None:
        """Show the last row of the run."""
        if run is not self._run:
            self._run, self._totals, self._rate = run, (0, 0, 0), Rate()
            self._forget()
        knobs = run.in_force.run
        note = f"seed {knobs.seed}" + (" · deterministic" if knobs.deterministic else "")
        if note != self.note.text():
            self.note.setText(note)
        values = self._values(run, self._rate.update(len(run.history)))
        for name, figure in self.figures.items():
            figure.setVisible(name in values)
            if name in values:
                figure.show_value(values[name])
        self.note.setVisible(self._places.minimumWidth() + self.note.sizeHint().width() < self.width() - 24)

    def _forget(self) -> None:
        for figure in self.figures.values():
            figure.forget()

    def _values(self, run: Run, rate: float | None) -> dict[str, str]:
        history = run.history
        count = len(history)
        if not count:
            return dict.fromkeys(("step", "loss", "|g|"), NOTHING)
        row = history.row(count - 1)
        skipped, nonfinite = self._count(history, count)
        norms = number(row["grad_norm"]) + (f" → {number(row['clipped_norm'])}" if row["clip_coef"] != 1 else "")
        share = float((history.column("clip_coef", count - WINDOW, count) < 1).mean())
        values = {
            "step": f"{count - 1:,}", "loss": number(row["loss"]), "|g|": norms, "clipped": f"{number(100 * share, 2)} %",
            "scale": _scale(row["scale"]), "skipped": f"{skipped:,}", "non-finite": f"{nonfinite:,}",
        }  # fmt: skip
        return values | {"steps/s": number(rate)} if run.status == "running" and rate else values

    def _count(self, history: History, count: int) -> tuple[int, int]:
        taken, skipped, nonfinite = self._totals
        skips = history.column("skipped", taken, count)
        bad = (history.column("nonfinite", taken, count) > 0) | (history.column("loss", taken, count) * 0 != 0)
        self._totals = (count, skipped + int(skips.sum()), nonfinite + int(bad.sum()))
        return self._totals[1:]


def _scale(scale: float) -> str:
    """A loss scale as a power of two where it is one; a dash where there is none."""
    if scale == 1:
        return NOTHING
    mantissa, exponent = math.frexp(scale)
    return power(2, exponent - 1) if mantissa == 0.5 else number(scale)
