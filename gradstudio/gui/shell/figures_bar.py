"""The bar at the foot of the window: the figures of the current step."""

from __future__ import annotations

import math
import time
from pathlib import Path

import numpy as np
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QHBoxLayout, QLabel, QWidget

from gradstudio.core.history import History
from gradstudio.core.text import number, power, shorten
from gradstudio.core.unknown import is_known, known_mask
from gradstudio.gui.services.jobs import Jobs
from gradstudio.gui.shell.task_line import TaskLine
from gradstudio.gui.shell.written_line import WrittenLine
from gradstudio.gui.theme import theme
from gradstudio.gui.widgets.roles import role_label
from gradstudio.gui.widgets.rows import NO_MARGINS, in_row
from gradstudio.session.record.own_steps import own_step
from gradstudio.session.record.run import Run
from gradstudio.session.words.knob_hints import WINDOW, share_clipped

NAMES = ("step", "steps/s", "loss", "|g|", "clipped", "scale", "skipped", "non-finite")
NOTHING = "–"  # placeholder for a missing value
LATEST = 50  # steps of a watched run from whose times the speed is computed
_DIGITS = str.maketrans("123456789", "0" * 9)  # every digit has the same width
LONGEST_BRANCH = 40  # characters of a branch's name


class Rate:
    """Steps a second, measured over the latest two seconds."""

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
    """A name and its value. It never gets narrower during a run, so that its neighbours do not move."""

    def __init__(self, name: str) -> None:
        super().__init__()
        title, self._value = QLabel(name), QLabel(NOTHING)
        title.setProperty("role", "fixed")
        self._value.setProperty("role", "title")
        for label in (title, self._value):
            label.setTextFormat(Qt.TextFormat.PlainText)  # rich text takes milliseconds to lay out
        self.value = NOTHING
        self._fitting: set[str] = set()  # patterns of values for which there is room
        in_row(title, self._value, of=self, margins=NO_MARGINS, spacing=5)

    def show_value(self, value: str) -> None:
        if value == self.value:
            return
        self.value = value
        self._value.setText(value)
        kind = value.translate(_DIGITS)
        if kind not in self._fitting:
            self._fitting.add(kind)
            self._value.setMinimumWidth(self._value.sizeHint().width())  # never below the minimum

    def forget(self) -> None:
        """Reset the width to that of the next value."""
        self._fitting.clear()
        self._value.setMinimumWidth(0)
        self.show_value(NOTHING)


class FiguresBar(QWidget):
    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("figures")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.figures = {name: Figure(name) for name in NAMES}
        self.figures["clipped"].setToolTip(f"Share of the latest {WINDOW} steps that were clipped")
        self._places = QWidget()
        self._places.setAccessibleName("Figures of the current step")
        place = QHBoxLayout(self._places)
        place.setSizeConstraint(QHBoxLayout.SizeConstraint.SetMinimumSize)  # half a number would read as another number
        place.setContentsMargins(0, 0, 0, 0)
        place.setSpacing(16)
        for figure in self.figures.values():
            place.addWidget(figure)
        place.addStretch(1)
        self.note = role_label("", "dim")
        self._rate = Rate()
        self._totals = (0, 0, 0)  # rows counted so far, skipped steps, non-finite steps
        self._noted: tuple = ()  # text of the note, and the room for it in px
        self._run: Run | None = None
        self._named = set(NAMES)  # visible figures
        row = QHBoxLayout(self)
        row.setContentsMargins(12, 4, 12, 4)
        self.tasks, self.written = TaskLine(), WrittenLine()
        row.addWidget(self._places, 1)
        row.addWidget(self.tasks)
        row.addWidget(self.written)
        row.addWidget(self.note)
        theme.apply_style(self)
        theme.changed.connect(self._forget)

    def refresh(self, run: Run, step: int | None = None) -> None:
        """Show the latest row of the run, or that of a step."""
        if run is not self._run:
            self._run, self._totals, self._rate = run, (0, 0, 0), Rate()
            self._forget()
        knobs = run.in_force.run
        named = shorten(run.name or run.default_name, LONGEST_BRANCH)
        branch = f"branch “{named}” · " if run.parent and run.own else ""
        note = f"{branch}seed {knobs.seed}" + (" · deterministic" if knobs.deterministic else "")
        if run.watched is not None:  # the script's own seed is unknown
            note = ""
        rate = self._rate.update(len(run.history))
        values = self._values(run, rate) if step is None else self._values(run, None, step + 1)
        if values.keys() != self._named:
            self._named = set(values)
            for name, figure in self.figures.items():
                figure.setVisible(name in values)
        for name, value in values.items():
            self.figures[name].show_value(value)
        self._place_note(note)

    def show_tasks(self, jobs: Jobs) -> None:
        """Show long-running tasks, in the room that the figures leave: the note then has less room, or none. Cheap when
        there are none."""
        if self.tasks.isHidden() and not jobs.long:
            return
        self.tasks.refresh(jobs, self._room)
        if self._noted:
            self._place_note(self._noted[0])

    def show_written(self, text: str, file: Path) -> bool:
        """Show what was written, with a button that opens it; return whether it is visible."""
        return self.isVisible() and self.written.say(text, file, self._room_beside_tasks)

    @property
    def _room_beside_tasks(self) -> int:
        return self._room - (0 if self.tasks.isHidden() else self.tasks.sizeHint().width())

    @property
    def _room(self) -> int:
        """Pixels beside the figures."""
        row = self.layout()
        assert row is not None
        return self.width() - 24 - 2 * row.spacing() - self._places.minimumSizeHint().width()

    def _place_note(self, note: str) -> None:
        room = self._room_beside_tasks
        if self.written.fit(room):
            room -= self.written.sizeHint().width()
        if (note, room) != self._noted:
            self._noted = (note, room)
            self.note.setText(note)
        self.note.setVisible(self.note.sizeHint().width() < room)

    def _forget(self) -> None:
        self._noted = ()
        for figure in self.figures.values():
            figure.forget()

    def _values(self, run: Run, rate: float | None, until: int | None = None) -> dict[str, str]:
        """Return the figures of the latest row, or of the last one of the first `until`."""
        history = run.history
        count = len(history) if until is None else until
        if not count:
            return dict.fromkeys(("step", "loss", "|g|"), NOTHING)
        row = history.row(count - 1)
        skipped, nonfinite = self._count(history, count)
        norms = _format(row["grad_norm"]) + (f" → {number(row['clipped_norm'])}" if row["clip_coef"] < 1 else "")
        values = {
            "step": f"{own_step(history, count - 1):,}", "loss": _format(row["loss"]), "|g|": norms,
            "clipped": f"{number(100 * share_clipped(run, count), 2)} %",
            "scale": _scale(row["scale"]) if row["scale"] != 1 or _scales(run) else NOTHING,
            "skipped": f"{skipped:,}", "non-finite": f"{nonfinite:,}",
        }  # fmt: skip
        if run.watched is not None and run.watched.log:  # unknown
            return values | dict.fromkeys(("clipped", "skipped"), NOTHING)
        if run.status != "running":
            return values
        if run.watched is not None:  # its rows come in batches, so the time of its steps is used
            seconds = float(np.mean(history.column("step_seconds", max(count - LATEST, 0), count)))
            rate = 1 / seconds if seconds > 0 else None
        return values | {"steps/s": NOTHING if rate is None else number(rate)}  # from the start: nothing moves for it

    def _count(self, history: History, count: int) -> tuple[int, int]:
        """Return how many of the first rows skipped the update, and how many are non-finite. Only the rows between the
        latest count and this one are read, forward or backward."""
        taken, skipped, nonfinite = self._totals
        sign = 1 if count >= taken else -1
        first, stop = sorted((taken, count))
        losses, skips, bad = (history.column(name, first, stop) for name in ("loss", "skipped", "nonfinite"))
        skipped += sign * int(np.count_nonzero(skips == 1))
        nonfinite += sign * int(np.count_nonzero((bad > 0) | (~np.isfinite(losses) & known_mask(losses))))
        self._totals = (count, skipped, nonfinite)
        return skipped, nonfinite


def _format(value: float) -> str:
    return number(value) if is_known(value) else NOTHING


def _scales(run: Run) -> bool:
    precision = run.in_force.precision
    return precision.dtype == "fp16" and precision.scaling != "none"


def _scale(scale: float) -> str:
    """Return a loss scale, as a power of two if it is one."""
    if not is_known(scale):
        return NOTHING
    mantissa, exponent = math.frexp(scale)
    return power(2, exponent - 1) if mantissa == 0.5 else number(scale)
