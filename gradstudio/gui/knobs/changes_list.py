"""The user's changes of the run that is shown, below the essentials: what distinguishes this branch."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QGridLayout, QLabel, QWidget

from gradstudio.core.knobs import value_text
from gradstudio.gui.knobs.essentials import label
from gradstudio.gui.theme import theme
from gradstudio.gui.widgets.plain_grounds import Rule
from gradstudio.gui.widgets.roles import role_label
from gradstudio.gui.widgets.rows import NO_MARGINS, in_column
from gradstudio.session.record.run import Run

MOST = 6  # changes that are listed, the latest


class ChangesList(QWidget):
    """The latest changes with their steps. Hidden if there are none."""

    def __init__(self) -> None:
        super().__init__()
        self._heading = role_label("", "heading")
        self._rows: list[tuple[QLabel, QLabel]] = []
        inside = QWidget()
        self._grid = QGridLayout(inside)
        self._grid.setContentsMargins(12, 8, 12, 5)
        self._grid.setVerticalSpacing(2)
        self._grid.setColumnStretch(0, 1)
        self._grid.addWidget(self._heading, 0, 0, 1, 2)
        in_column(inside, Rule(), of=self, margins=NO_MARGINS)
        theme.apply_style(inside)

    def refresh(self, run: Run) -> None:
        """Show the changes that this run made itself."""
        changes = [event for event in run.changes if event.step >= run.parent_step]
        self._heading.setText(f"Changed in this {'branch' if run.parent else 'run'}")
        listed = list(enumerate(changes, 1))[-MOST:]
        for place in range(max(len(listed), len(self._rows))):
            if place == len(self._rows):
                self._add_row()
            told, step = self._rows[place]
            for part in (told, step):
                part.setVisible(place < len(listed))
            if place < len(listed):
                number, event = listed[place]
                name = label(run.experiment.find_knob(event.knob))
                values = " → ".join(value_text(value) for value in (event.before, event.value))
                told.setText(f"{number} · {name} {values}")
                step.setText(f"step {event.step:,}")
        self.setVisible(bool(listed))

    def _add_row(self) -> None:
        told, step = QLabel(), role_label("", "note")
        told.setTextFormat(Qt.TextFormat.PlainText)
        told.setWordWrap(True)
        self._rows.append((told, step))
        self._grid.addWidget(told, len(self._rows), 0)
        self._grid.addWidget(step, len(self._rows), 1)
