"""One section of the form of knobs, and the header that opens and closes it."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QPushButton, QWidget

from gradstudio.core import mistakes
from gradstudio.core.knobs import Knob
from gradstudio.gui import user_settings
from gradstudio.gui.knobs.knob_row import KnobRow
from gradstudio.gui.theme import theme
from gradstudio.gui.widgets.plain_grounds import Rule
from gradstudio.gui.widgets.roles import role_label
from gradstudio.gui.widgets.rows import NO_MARGINS, in_column, in_row
from gradstudio.session.simulator import Simulator

CLOSED_AT_FIRST = {"Gradients", "Loss", "Mistakes", "All knobs"}


class Fold(QWidget):
    """A header that opens and closes the part below it; its state is remembered."""

    toggled = Signal()

    def __init__(self, title: str, about: str, note: str = "") -> None:
        super().__init__()
        self.title = title
        self._kept = user_settings.section_open(title, title not in CLOSED_AT_FIRST)
        self.open = self._kept.get()
        self.button = QPushButton(title)
        self.button.setProperty("role", "group")
        self.button.setToolTip(about)
        self.button.setAccessibleDescription(about)
        self.button.clicked.connect(self._toggle)
        in_row((self.button, 1), role_label(note, "note"), of=self, margins=(12, 0, 12, 0))
        theme.dress(self)

    def show_title(self, *, open: bool, note: str = "") -> None:
        """Show whether it is open, and a note in brackets."""
        self.button.setIcon(theme.icon("chevron_up" if open else "chevron", "dim"))
        self.button.setText(f"{self.title} ({note})" if note else self.title)

    def _toggle(self) -> None:
        self.open = not self.open
        self._kept.set(self.open)
        self.toggled.emit()


class KnobGroup(QWidget):
    """Knobs under a header that says when they take effect."""

    def __init__(self, title: str, knobs: Sequence[Knob], rows: Sequence[KnobRow]) -> None:
        """`knobs`: all that may be here; `rows`: the initial ones."""
        super().__init__()
        self.title, self.knobs, self.rows = title, knobs, list[KnobRow]()
        live = {knob.live for knob in knobs}
        self.mixed = len(live) == 2
        acts = {(True,): "live", (False,): "on restart", (False, True): "live or on restart"}[tuple(sorted(live))]
        self.head = Fold(title, "Opens and closes this section", "next step" if title == "Accumulation" else acts)
        self.toggled = self.head.toggled
        self._body = QWidget()
        self._column = in_column(of=self._body, margins=NO_MARGINS, spacing=3)
        layout = in_column(self.head, self._body, of=self, margins=(0, 9, 0, 0), spacing=3)
        layout.addSpacing(5)
        layout.addWidget(Rule())
        self.place(rows)
        theme.dress(self._body)  # apart, as most of it may be out of sight

    def place(self, rows: Sequence[KnobRow]) -> None:
        """Show these rows, in this order; those that another group has taken are already gone."""
        if rows == self.rows:
            return
        self.rows = list(rows)
        for row in rows:
            self._column.addWidget(row)
            row.stand_in_section(mixed=self.mixed)

    def show_rows(self, simulator: Simulator, words: list[str], *, folded: bool) -> int:
        """Show the rows that are open and have an effect, none if the whole section is folded; in a search, every row
        that matches. Return how many have an effect."""
        able = [row for row in self.rows if can_act(row, simulator)]
        shown = [row for row in self.rows if row.matches(words)] if words else able if self.head.open else []
        for row in self.rows:
            row.setVisible(row in shown)
        self._body.setVisible(bool(shown))
        self.setVisible(bool(shown) if words else bool(able) and not folded)
        changed = sum(row.is_changed for row in able) if not self.head.open else 0
        notes = [f"{len(able)} that can act"] if self.title == "Mistakes" and not words else []
        notes += [f"{changed} changed"] if changed else []
        self.head.show_title(open=self.head.open or bool(words), note=", ".join(notes))
        return len(able)


def can_act(row: KnobRow, simulator: Simulator) -> bool:
    """Return whether a knob can have an effect given the others. A mistake that is switched on is always shown."""
    name, requested = row.knob.name, simulator.requested
    if not requested.applies(name):
        return False
    if row.knob.section != "mistakes" or requested[name] or row.is_changed:
        return True
    return not mistakes.note(name, requested).startswith(mistakes.NO_EFFECT)
