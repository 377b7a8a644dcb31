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


class FiguresBar(QWidget):
    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("figures")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.text = QLabel()
        self.text.setTextFormat(Qt.TextFormat.RichText)
        self.text.setAccessibleName("Figures of the current step")
        self.note = QLabel()
        self.note.setProperty("role", "dim")
        self._rate = Rate()
        self._totals = (0, 0, 0)  # rows taken in, skipped steps, non-finite steps
        self._run: Run | None = None
        row = QHBoxLayout(self)
        row.setContentsMargins(12, 4, 12, 4)
        row.addWidget(self.text, 1)
        row.addWidget(self.note)

    def refresh(self, run: Run) -> None:
        """Show the last row of the run."""
        if run is not self._run:
            self._run, self._totals, self._rate = run, (0, 0, 0), Rate()
        knobs = run.in_force.run
        note = f"seed {knobs.seed}" + (" · deterministic" if knobs.deterministic else "")
        if note != self.note.text():
            self.note.setText(note)
        rate = self._rate.update(len(run.history))
        pairs = self._pairs(run, rate)
        self.text.setText(" &nbsp; &nbsp; ".join(f"<span style='color:{theme.colors.dim}'>{name}</span> <b>{value}</b>" for name, value in pairs))

    def _pairs(self, run: Run, rate: float | None) -> list[tuple[str, str]]:
        history = run.history
        count = len(history)
        if not count:
            return [("step", "–"), ("loss", "–"), ("|g|", "–")]
        row = history.row(count - 1)
        skipped, nonfinite = self._count(history, count)
        norms = number(row["grad_norm"]) + (f" → {number(row['clipped_norm'])}" if row["clip_coef"] != 1 else "")
        share = float((history.column("clip_coef", count - WINDOW, count) < 1).mean())
        pairs = [("step", f"{count - 1:,}")]
        if run.status == "running" and rate:
            pairs.append(("steps/s", number(rate)))
        pairs += [("loss", number(row["loss"])), ("|g|", norms), ("clipped", f"{number(100 * share, 2)} %")]
        pairs.append(("scale", _scale(row["scale"])))
        return [*pairs, ("skipped", f"{skipped:,}"), ("non-finite", f"{nonfinite:,}")]

    def _count(self, history: History, count: int) -> tuple[int, int]:
        taken, skipped, nonfinite = self._totals
        skips = history.column("skipped", taken, count)
        bad = (history.column("nonfinite", taken, count) > 0) | (history.column("loss", taken, count) * 0 != 0)
        self._totals = (count, skipped + int(skips.sum()), nonfinite + int(bad.sum()))
        return self._totals[1:]


def _scale(scale: float) -> str:
    """A loss scale as a power of two where it is one; a dash where there is none."""
    if scale == 1:
        return "–"
    mantissa, exponent = math.frexp(scale)
    return power(2, exponent - 1) if mantissa == 0.5 else number(scale)
