"""The lesson of a preset: what to do, in steps that get a check mark when they are done."""

from __future__ import annotations

from collections.abc import Callable, Collection

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QGridLayout, QLabel, QVBoxLayout, QWidget

from gradstudio.core.experiment import Experiment
from gradstudio.core.presets import Preset
from gradstudio.gui.theme import theme
from gradstudio.session.record.run import Run
from gradstudio.session.words.lesson_check_marks import is_done


class LessonPanel(QWidget):
    def __init__(self) -> None:
        super().__init__()
        self._preset: Preset | None = None
        self._done = 0  # steps with a check mark
        self._rows: list[tuple[QLabel, QLabel]] = []
        self.heading = QLabel()
        self.heading.setProperty("role", "heading")
        self.summary = QLabel()
        self.summary.setWordWrap(True)
        self.summary.setTextFormat(Qt.TextFormat.PlainText)
        self._grid = QGridLayout()
        self._grid.setHorizontalSpacing(8)
        self._grid.setVerticalSpacing(7)
        self._grid.setColumnStretch(1, 1)
        column = QVBoxLayout(self)
        column.setContentsMargins(12, 8, 12, 12)
        column.setSpacing(8)
        column.addWidget(self.heading)
        column.addWidget(self.summary)
        column.addLayout(self._grid)
        column.addStretch(1)
        theme.dress(self, self._restyle)

    def refresh(self, run: Run, requested: Experiment, of_map: Callable[[Run], Collection[str]]) -> None:
        """Give check marks to the steps that are done; show another lesson where the preset has changed. A cell of a
        map goes on with the lesson of its preset. `of_map`: what was done with the map that the preset proposes."""
        preset = run.preset
        if preset is not self._preset:
            if self._preset is not None and preset.lesson and preset.lesson == self._preset.lesson:
                self._preset = preset
                self._restyle()
            else:
                self._show_lesson(preset)
        before = self._done
        while self._done < len(preset.lesson) and is_done(preset.lesson[self._done], run, requested, of_map):
            self._done += 1  # in order: a step is checked only after those before it
        if self._done != before:
            self._restyle()

    def _show_lesson(self, preset: Preset) -> None:
        self._preset, self._done = preset, 0
        for labels in self._rows:
            for label in labels:
                label.hide()
                label.deleteLater()
        self._rows = []
        for index, step in enumerate(preset.lesson):
            mark, text = QLabel(), QLabel(step.text)
            text.setWordWrap(True)
            text.setTextFormat(Qt.TextFormat.PlainText)
            self._grid.addWidget(mark, index, 0, Qt.AlignmentFlag.AlignTop)
            self._grid.addWidget(text, index, 1)
            self._rows.append((mark, text))
        self.summary.setText(preset.summary)
        self.summary.setVisible(bool(preset.summary))
        self.setVisible(bool(preset.lesson or preset.summary))
        self._restyle()

    def _restyle(self) -> None:
        if self._preset is None:
            return
        count = f"  {self._done} of {len(self._rows)}" if self._rows else ""
        what = "LESSON" if self._rows else "PRESET"
        self.heading.setText(f"{what} · {self._preset.title.upper()}{count}")
        for index, (mark, text) in enumerate(self._rows):
            done, upcoming = index < self._done, index == self._done
            mark.setText("✓" if done else "○")
            mark.setStyleSheet(f"color: {theme.colors.good if done else theme.colors.dim};")
            weight = 600 if upcoming else 400
            color = theme.colors.text if done or upcoming else theme.colors.dim
            text.setStyleSheet(f"font-weight: {weight}; color: {color};")
            text.setAccessibleName(f"{'Done' if done else 'To do'}: {text.text()}")
