"""The lesson of a preset: instructions and questions, in steps that get a check mark when they are done."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QGridLayout, QLabel, QWidget

from gradstudio.core.experiment import Experiment
from gradstudio.core.presets import Preset
from gradstudio.core.text import plural
from gradstudio.gui.diagnosis.formula import Formulas
from gradstudio.gui.diagnosis.lesson_step import MARKS, LessonStepRow
from gradstudio.gui.services.jobs import Jobs
from gradstudio.gui.theme import theme
from gradstudio.gui.widgets.roles import role_label
from gradstudio.gui.widgets.rows import in_column
from gradstudio.session.course.lesson_progress import Progress
from gradstudio.session.record.run import Run
from gradstudio.session.words.lesson_check_marks import no_map


class LessonPanel(QWidget):
    finished = Signal(object)  # the preset whose lesson is completely done
    began = Signal()  # another lesson is shown
    went_on = Signal(QWidget)  # the current step
    predicted = Signal()  # the next thing to do is to run

    def __init__(self, jobs: Jobs) -> None:
        super().__init__()
        self._preset: Preset | None = None
        self._run: Run | None = None
        self._requested: Experiment | None = None
        self._of_map: Callable[[Run], Collection[str]] = no_map
        self.progress: Progress | None = None
        self._shown: tuple = ()  # what the rows show of the run
        self._rows: list[tuple[QLabel, LessonStepRow]] = []
        self._at = 0  # index of the current step
        self._one_step = False  # whether only that step is shown
        self.formulas = Formulas(jobs, self)
        self.heading = role_label("", "heading")
        self.summary = QLabel(wordWrap=True, textFormat=Qt.TextFormat.PlainText)
        self.more = role_label("", "dim")
        self._grid = QGridLayout()
        self._grid.setHorizontalSpacing(8)
        self._grid.setVerticalSpacing(7)
        self._grid.setColumnStretch(1, 1)
        in_column(self.heading, self.summary, self._grid, self.more, 1, of=self, margins=(12, 8, 12, 12), spacing=8)
        theme.apply_style(self, self._restyle)

    @property
    def steps(self) -> list[LessonStepRow]:
        return [row for _, row in self._rows]

    def refresh(self, run: Run, requested: Experiment, of_map: Callable[[Run], Collection[str]]) -> None:
        """Check the finished steps; show another lesson if the preset has changed. A cell of a map continues the lesson
        of its preset. `of_map`: what was done with the map that the preset proposes."""
        self._run, self._requested, self._of_map = run, requested, of_map
        preset = run.preset
        if preset is not self._preset:
            if self._preset is not None and preset.lesson and preset.lesson == self._preset.lesson:
                self._preset = preset
                self._restyle()
            else:
                self._show_lesson(preset)
        assert self.progress is not None
        whole = self.progress.whole
        if self.progress.look(run, requested, of_map) or self._asked_of(run) != self._shown:
            self._restyle()
        if self.progress.whole and not whole:
            self.finished.emit(self.progress.preset)

    def _asked_of(self, run: Run) -> tuple:
        """Return what determines whether the question of the current step can be answered, and what answers wait
        for."""
        progress = self.progress
        if progress is None:
            return ()
        waits = tuple(
            progress.waits_for(place, run) if passed.mark == "answered" else ""
            for place, passed in enumerate(progress.steps)
        )
        place = progress.next
        if place >= len(self._rows) or not self._rows[place][1].step.is_question:
            return False, False, waits
        return progress.too_late(place, run), progress.can_explain(place, run), waits

    def _show_lesson(self, preset: Preset) -> None:
        self._preset, self.progress, self._shown = preset, Progress(preset), ()
        for parts in self._rows:
            for part in parts:
                part.hide()
                part.deleteLater()
        self._rows = []
        for place, step in enumerate(preset.lesson):
            mark, row = QLabel(), LessonStepRow(step, self.formulas)
            mark.setAlignment(Qt.AlignmentFlag.AlignHCenter)
            row.predicted.connect(partial(self._predict, place))
            row.explained.connect(partial(self._explain, place))
            row.left_out.connect(partial(self._leave_out, place))
            self._grid.addWidget(mark, place, 0, Qt.AlignmentFlag.AlignTop)
            self._grid.addWidget(row, place, 1)
            self._rows.append((mark, row))
        self._restyle()
        self.began.emit()

    def show_one_step(self, one: bool) -> None:
        """Show only the current step, or all of them."""
        self._one_step = one
        self._restyle()

    # ---- answers

    def _predict(self, place: int, choice: int) -> None:
        if self.progress and self._run and not self.progress.too_late(place, self._run):
            self.progress.predict(place, choice)
            self.predicted.emit()  # before the choices are greyed, or the focus would move on to "Leave out"
            self._look_again()

    def _explain(self, place: int, answer: str) -> None:
        if self.progress and self._run and self.progress.can_explain(place, self._run):
            fault = self.progress.explain(place, answer, self._run)
            self._rows[place][1].say(fault)
            if not fault:
                self._look_again()

    def _leave_out(self, place: int) -> None:
        if self.progress and self._run:
            self.progress.skip(place, self._run)
            self._look_again()

    def _look_again(self) -> None:
        if self._run is not None and self._requested is not None:
            self.refresh(self._run, self._requested, self._of_map)
            self._restyle()

    # ---- inside

    def _restyle(self) -> None:
        if self._preset is None or self.progress is None:
            return
        steps = self.progress.steps
        done = sum(step.over and step.mark != "answered" for step in steps)
        count = f"  {done} of {len(self._rows)}" if self._rows else ""
        what = "LESSON" if self._rows else "PRESET"
        title = "" if self._secret else f" · {self._preset.title.upper()}"  # the name may be the answer
        self.heading.setText(f"{what}{title}{count}")
        self._shown = self._asked_of(self._run) if self._run else ()
        if self._at != self.progress.next and 0 < self.progress.next < len(self._rows):
            self.went_on.emit(self._rows[self.progress.next][1])
        self._at = self.progress.next
        too_late, can_explain, waits = self._shown or (False, False, ("",) * len(self._rows))
        last = self._last_shown()
        widest = max(map(self.fontMetrics().horizontalAdvance, MARKS.values()))
        for place, (mark, row) in enumerate(self._rows):
            passed = steps[place]
            mark.setText(MARKS[passed.mark])
            mark.setFixedWidth(widest)  # so that no text moves when another mark appears
            tone = {"done": "good", "right": "good", "wrong": "bad"}.get(passed.mark, "dim")
            mark.setStyleSheet(f"color: {getattr(theme.colors, tone)};")
            current = place == self.progress.next
            row.show_state(passed, current=current, too_late=too_late, can_explain=can_explain, waits=waits[place])
            for part in (mark, row):
                part.setVisible(place == min(self._at, last) if self._one_step else place <= last)
        text = self._preset.setting if self._secret else self._preset.summary
        self.summary.setText(text)
        self.summary.setVisible(bool(text) and not (self._one_step and self._rows))
        hidden = len(self._rows) - 1 - last
        self.more.setVisible(hidden > 0 and not self._one_step)
        self.more.setText(f"… {plural(hidden, 'more step', 'more steps')} after the answer")

    @property
    def _secret(self) -> bool:
        """Whether the summary would answer an open question."""
        assert self.progress is not None
        return any(
            row.step.predict and self.progress.steps[place].mark in ("open", "answered")
            for place, (_, row) in enumerate(self._rows)
        )

    def _last_shown(self) -> int:
        """Return the index of the last step that is shown: those after a question would give its answer away."""
        assert self.progress is not None
        for place, (_, row) in enumerate(self._rows):
            if row.step.is_question and self.progress.steps[place].mark in ("open", "answered"):
                return place
        return len(self._rows) - 1
