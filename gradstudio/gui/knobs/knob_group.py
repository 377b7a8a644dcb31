"""One section of the form of knobs."""

from __future__ import annotations

from PySide6.QtCore import QSettings, Signal
from PySide6.QtWidgets import QHBoxLayout, QPushButton, QVBoxLayout, QWidget

from gradstudio.core.knobs import Knob
from gradstudio.gui.knobs.knob_row import ON_RESTART, KnobRow
from gradstudio.gui.theme import theme
from gradstudio.gui.widgets import stored
from gradstudio.gui.widgets.plain_grounds import Rule
from gradstudio.gui.widgets.roles import role_label
from gradstudio.session.simulator import Simulator

CLOSED_AT_FIRST = {"Gradients", "Loss", "Mistakes"}


class KnobGroup(QWidget):
    """The knobs of one section under a header that says when they take effect, and that opens and closes them."""

    toggled = Signal()

    def __init__(self, title: str, knobs: list[Knob]) -> None:
        super().__init__()
        self.title = title
        live = {knob.live for knob in knobs}
        self.rows = [KnobRow(knob, mixed=len(live) == 2) for knob in knobs]
        left = stored.switch(f"open/{title}")
        self.open = title not in CLOSED_AT_FIRST if left is None else left
        self.button = QPushButton(title)
        self.button.setProperty("role", "group")
        self.button.setAccessibleDescription("Opens and closes this section")
        self.button.clicked.connect(self._toggle)
        acts = {
            (True,): "live",
            (False,): f"{ON_RESTART} on restart",
            (False, True): f"live · {ON_RESTART} on restart",
        }[tuple(sorted(live))]
        self.acts = role_label("next step" if title == "Accumulation" else acts, "note")
        head, self._body = QWidget(), QWidget()
        header = QHBoxLayout(head)
        header.setContentsMargins(12, 0, 12, 0)
        header.addWidget(self.button, 1)
        header.addWidget(self.acts)
        body = QVBoxLayout(self._body)
        body.setContentsMargins(0, 0, 0, 0)
        body.setSpacing(3)
        for row in self.rows:
            body.addWidget(row)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 9, 0, 0)
        layout.setSpacing(3)
        layout.addWidget(head)
        layout.addWidget(self._body)
        layout.addSpacing(5)
        layout.addWidget(Rule())
        for part in (head, self._body):  # apart, as most of a body may be out of sight
            theme.dress(part)

    def show_rows(self, simulator: Simulator, words: list[str]) -> None:
        """Show the rows that are open and have an effect; in a search, every row that matches."""
        shown = 0
        for row in self.rows:
            visible = row.matches(words) if words else self.open and simulator.requested.applies(row.knob.name)
            row.setVisible(visible)
            shown += visible
        self._body.setVisible(bool(shown))
        self.setVisible(bool(shown) or not words)
        changed = sum(row.dot.isVisibleTo(row) for row in self.rows) if not self.open else 0
        arrow = "▾" if self.open or words else "▸"
        count = f" ({changed} changed)" if changed and not words else ""
        self.button.setText(f"{arrow} {self.title}{count}")

    def _toggle(self) -> None:
        self.open = not self.open
        QSettings().setValue(f"open/{self.title}", self.open)
        self.toggled.emit()
