"""The fixes that were tried: a row for each, the best first, with its loss as a small curve and a button that applies
it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
from PySide6.QtCore import QPointF, QSize, Qt, Signal
from PySide6.QtGui import QPainter, QPaintEvent, QPen, QPolygonF
from PySide6.QtWidgets import QFrame, QLabel, QPushButton, QSizePolicy, QWidget

from gradstudio.gui.drawing.smoothing import Smoother
from gradstudio.gui.theme import theme
from gradstudio.gui.widgets.rows import in_column, in_row
from gradstudio.session.record import run_outcome
from gradstudio.session.record.run import Run
from gradstudio.session.running import fix_trials, remedy_trial
from gradstudio.session.running.fix_trials import Trials
from gradstudio.session.running.remedy_trial import Trial
from gradstudio.session.words.fix_results import accuracy, describe_result, describe_trial, outcome_key
from gradstudio.session.words.outcome_words import outcome_of

SPARK = QSize(62, 26)  # px at normal size
ROUNDING = 1e-9  # relative difference of losses that does not count
LOG_FROM = 20.0  # ratio of the highest to the lowest loss above which the small curves are logarithmic
CROSS = 3.0  # px from its centre to its ends

BRANCH = "Rewinds to where the fixes were tried, sets these knobs, and continues as a branch"
TAKEN = "The run in the plots goes on with these knobs"
RESTART = "Sets these knobs and begins again from step 0, because they take effect on restart"

_MARKS = {"good": "✓", "warning": "–", "bad": "✗", "dim": "–"}  # by the colour of the result of a trial


class Sparkline(QWidget):
    """Loss of a trial from its first to its last step, on the scales of all trials. A NaN is a gap; a cross marks where
    the trial diverged."""

    def __init__(self) -> None:
        super().__init__()
        self._losses, self._steps = np.empty(0), 1
        self._range, self._broke, self._role = (0.0, 1.0), -1, "dim"
        self.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Fixed)
        theme.changed.connect(self.updateGeometry)

    def sizeHint(self) -> QSize:
        return SPARK * theme.zoom

    def show_losses(self, losses: np.ndarray, steps: int, bounds: tuple[float, float], broke: int, role: str) -> None:
        self._losses, self._steps = losses, max(steps - 1, 1)
        self._range, self._broke, self._role = bounds, broke, role
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        with QPainter(self) as painter:
            painter.setRenderHint(QPainter.RenderHint.Antialiasing)
            painter.setPen(QPen(theme.color("line"), 1))
            painter.drawLine(QPointF(0, self.height() - 0.5), QPointF(self.width(), self.height() - 0.5))
            painter.setPen(QPen(theme.color(self._role), 1))
            for stretch in self._stretches():
                painter.drawPolyline(stretch) if stretch.size() > 1 else painter.drawPoint(stretch.first())
            if self._broke >= 0:
                at = QPointF(min(max(self._x(self._broke), CROSS + 1), self.width() - CROSS - 1), CROSS + 1.5)
                painter.setPen(QPen(theme.color("bad"), 1.5))
                for way in (-1, 1):
                    painter.drawLine(at + QPointF(-CROSS, -CROSS * way), at + QPointF(CROSS, CROSS * way))

    def _x(self, step: float) -> float:
        return 1 + (self.width() - 2) * step / self._steps

    def _stretches(self) -> list[QPolygonF]:
        """Return the curve in pieces, split where there is no number, with at most one point per pixel."""
        low, high = self._range
        scaled = _heights(np.clip(self._losses, low, high), low, high)
        every = max(len(scaled) // max(self.width(), 1), 1)
        points, pieces = [], []
        for start in range(0, len(scaled), every):
            part = scaled[start : start + every]
            part = part[np.isfinite(part)]
            if len(part):
                points.append(QPointF(self._x(start), 2 + (self.height() - 5) * (1 - float(part.mean()))))
            elif points:
                pieces.append(points)
                points = []
        return [QPolygonF(piece) for piece in (*pieces, points) if piece]


class FixRow(QFrame):
    """One fix and its result."""

    apply_asked = Signal(object)

    def __init__(self, trial: Trial) -> None:
        super().__init__()
        self.trial = trial
        self._said: tuple[str, ...] = ()
        self._role = "dim"
        self.mark, self.name, self.what = QLabel("·"), QLabel(remedy_trial.in_words(trial.remedy)), QLabel()
        self.accuracy, self.sparkline, self.apply = QLabel(), Sparkline(), QPushButton("Taken")
        self.apply.setEnabled(False)  # until it is known whether the run has it
        self.accuracy.setAlignment(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
        self.mark.setAlignment(Qt.AlignmentFlag.AlignTop | Qt.AlignmentFlag.AlignHCenter)
        self.mark.setFixedWidth(14)
        for label in (self.name, self.what):
            label.setTextFormat(Qt.TextFormat.PlainText)
            label.setWordWrap(True)
        self.what.setProperty("role", "dim")
        self.apply.setProperty("role", "small")
        self.apply.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.apply.setAccessibleName(f"Take this one: {self.name.text()}")
        self.apply.clicked.connect(lambda: self.apply_asked.emit(self.trial))
        keep = self.apply.sizePolicy()
        keep.setRetainSizeWhenHidden(True)
        self.apply.setSizePolicy(keep)
        self.apply.hide()
        words = in_column(self.name, self.what, spacing=0)
        in_row(
            self.mark,
            (words, 1),
            self.accuracy,
            (self.sparkline, 0, Qt.AlignmentFlag.AlignVCenter),
            (self.apply, 0, Qt.AlignmentFlag.AlignVCenter),
            of=self,
            margins=(0, 3, 0, 4),
            spacing=6,
        )

    def show_trial(self, trials: Trials, bounds: tuple[float, float], *, taken: bool) -> None:
        trial = self.trial
        role = outcome_of(outcome_key(trial)).tone
        if trial.outcome == "broke again" and trial.remedy and _later(trials, trial):
            role = "dim"  # it helped, but too little
        if trial.outcome in (None, "not tried"):
            mark, role = "·", "dim"
        else:
            mark = _MARKS[role]
        text, figure = _text(trials, trial), accuracy(trial)
        if (mark, role, text) != self._said:
            self._said, self._role = (mark, role, text), role
            self.mark.setText(mark)
            told = text.replace(f" · {describe_result(trial)}", "") if figure else text
            self.what.setText(told.replace(" %", "\N{NO-BREAK SPACE}%"))
            self.what.setToolTip(trial.message)
            self.accuracy.setText(figure)
            self.accuracy.setToolTip(describe_result(trial) if figure else "")
            self.setAccessibleName(f"{self.name.text()}: {' '.join(text.split())}")
            self.restyle()
        self.apply.setVisible(trial.outcome == "held" and bool(trial.remedy))
        if self.apply.isEnabled() == taken:
            self.apply.setEnabled(not taken)
            self.apply.setText("Taken" if taken else "Take")
            does = BRANCH if remedy_trial.acts_live(trial.remedy) else RESTART
            self.apply.setToolTip(TAKEN if taken else does)
        if trial.run is not None and trial.run.replayed is None:
            losses = _curve(trial.run, trials)
            at = -1 if trial.broke_at is None else max(trial.broke_at - trials.step, 0)
            self.sparkline.show_losses(losses, trials.end - trials.step, bounds, at, role)

    def restyle(self) -> None:
        self.mark.setStyleSheet(f"color: {theme.color(self._role).name()}; font-weight: 600")
        self.name.setStyleSheet(f"color: {theme.color(self._role).name()}" if self._role in ("good", "warning") else "")

    def paintEvent(self, event: QPaintEvent) -> None:
        with QPainter(self) as painter:
            painter.setPen(QPen(theme.color("line"), 1))
            painter.drawLine(0, self.height() - 1, self.width(), self.height() - 1)


class FixesPanel(QWidget):
    """Shows the trials while they run and when they are done."""

    apply_asked = Signal(object)
    stop_asked = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.heading, self.progress, self.stop = QLabel(), QLabel(), QPushButton("Stop")
        self.heading.setProperty("role", "heading")
        self.progress.setProperty("role", "dim")
        self.stop.setProperty("role", "small")
        self.stop.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.stop.setToolTip("Tries no further fixes and keeps the results")
        self.stop.setAccessibleName("Stop trying fixes")
        self.stop.clicked.connect(self.stop_asked)
        for label in (self.heading, self.progress):
            label.setWordWrap(True)
            label.setTextFormat(Qt.TextFormat.PlainText)
        self.rows: list[FixRow] = []
        self._trials: Trials | None = None
        below = in_row((self.progress, 1), (self.stop, 0, Qt.AlignmentFlag.AlignTop), spacing=8)
        self._column = in_column(self.heading, of=self, margins=(2, 2, 0, 4), spacing=0)
        self._column.addSpacing(3)
        self._first = self._column.count()
        self._column.addSpacing(4)
        self._column.addLayout(below)
        theme.changed.connect(self._restyle)
        self.hide()

    def clear(self) -> None:
        for row in self.rows:
            self._column.removeWidget(row)
            row.hide()
            row.deleteLater()
        self._trials, self.rows = None, []

    def take(self, trials: Trials) -> None:
        """Show these trials from now on."""
        self.clear()
        self._trials = trials
        self.heading.setText(f"TWO FUTURES · from step {trials.step:,}, same batches")
        self.rows = [FixRow(trial) for trial in trials.trials]
        for place, row in enumerate(self.rows):
            row.apply_asked.connect(self.apply_asked)
            self._column.insertWidget(self._first + place, row)
        self.refresh()

    def refresh(self, drawn: str = "", has: Callable[[str], bool] = lambda _: False) -> None:
        """Show the progress of the trials, and which future is drawn over the plots. `has`: whether the run in the
        plots continues with a remedy."""
        trials = self._trials
        if trials is None:
            return
        order = {id(trial): place for place, trial in enumerate(trials.best_first)}
        rows = sorted(self.rows, key=lambda row: order[id(row.trial)])
        if rows != self.rows:
            self.rows = rows
            for place, row in enumerate(rows):
                self._column.insertWidget(self._first + place, row)  # Qt moves it from its old position
            for row, after in pairwise(rows):
                QWidget.setTabOrder(row.apply, after.apply)
        limits = bounds(trials)
        for row in rows:
            row.show_trial(trials, limits, taken=has(row.trial.remedy))
        over = trials.over
        self.stop.setVisible(not over)
        text = fix_trials.headline(trials) if over else f"Trying: {trials.progress}" if trials.progress else "Trying"
        if drawn:
            text = f"{text}. Over the plots: {drawn}"
        if text != self.progress.text():
            self.progress.setText(text)

    def _restyle(self) -> None:
        for row in self.rows:
            row.restyle()


def bounds(trials: Trials) -> tuple[float, float]:
    """Return the range of losses of the small curves: of the fixes that held, or else of the steps before the run
    diverged."""
    held = [trial for trial in trials.trials if trial.outcome == "held" and trial.run]
    before = trials.tried.history.column("loss", trials.step - run_outcome.LATEST, trials.step + 1)
    losses = np.concatenate([Smoother().smooth(before), *(_curve(trial.run, trials) for trial in held if trial.run)])
    losses = losses[np.isfinite(losses)]
    if not len(losses):
        return 0.0, 1.0
    low, high = (float(value) for value in np.percentile(losses, (0, 99)))  # a single spike would flatten every curve
    return (low, high) if high - low > ROUNDING * abs(low) else (low, low + max(1.0, abs(low)))


def _curve(run: Run, trials: Trials) -> np.ndarray:
    """Return the loss of a trial, smoothed as in the plot of the loss: at this size, the raw loss is only noise."""
    return Smoother().smooth(run.history.column("loss", trials.step, trials.end))


def _heights(losses: np.ndarray, low: float, high: float) -> np.ndarray:
    """Return losses as shares of the height, logarithmic if they differ much."""
    if low > 0 and high > LOG_FROM * low:
        losses, low, high = np.log(losses), float(np.log(low)), float(np.log(high))
    return (losses - low) / (high - low)


def _later(trials: Trials, trial: Trial) -> bool:
    unchanged = trials.trials[0].broke_at
    return unchanged is not None and trial.broke_at is not None and trial.broke_at > unchanged


def _text(trials: Trials, trial: Trial) -> str:
    """Return the result of a trial, as the text below its name."""
    if trial.outcome is None:
        return "being tried" if trials.now is trial else "waits"
    parts = [describe_trial(trial)]
    if trial.outcome == "held" and (how_far := describe_result(trial)):
        parts.append(how_far)
    began = f"\nfrom step {trial.from_step:,}" if trial.run is not None and trial.from_step != trials.step else ""
    return " · ".join(parts) + began
