"""One section of the form of knobs, and the header that opens and closes it."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QPushButton, QWidget

from gradstudio.core import mistakes
from gradstudio.core.knobs import Knob
from gradstudio.gui import user_settings
from gradstudio.gui.knobs.essentials import label
from gradstudio.gui.knobs.knob_row import KnobRow
from gradstudio.gui.knobs.knob_rows import KnobRows
from gradstudio.gui.theme import theme
from gradstudio.gui.widgets.plain_grounds import Rule
from gradstudio.gui.widgets.roles import role_label
from gradstudio.gui.widgets.rows import NO_MARGINS, in_column, in_row, tab_behind
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
        theme.apply_style(self)

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

    def __init__(self, title: str, knobs: Sequence[Knob], rows: KnobRows) -> None:
        """`knobs`: all that may be in this group; `rows`: the rows of all knobs."""
        super().__init__()
        self.title, self.knobs, self._rows = title, knobs, rows
        self.standing: list[Knob] = []  # those that are here
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
        self.place(knobs)
        theme.apply_style(self._body)  # apart, as most of it may be out of sight

    @property
    def rows(self) -> list[KnobRow]:
        """The rows of this group that have been created."""
        return [self._rows.made[knob.name] for knob in self.standing if knob.name in self._rows.made]

    def place(self, knobs: Sequence[Knob]) -> None:
        """Show these knobs, in this order; those that another group has taken are already removed."""
        if knobs == self.standing:
            return
        self.standing = list(knobs)
        for row in self.rows:
            self.take(row)

    def take(self, row: KnobRow) -> None:
        """Insert the row of a knob of this group at its position."""
        place = self.rows.index(row)
        self._column.insertWidget(place, row)
        row.show_in_section(mixed=self.mixed)
        tab_behind(self.rows[place - 1] if place else self.head, row)

    def show_rows(self, simulator: Simulator, words: list[str], *, folded: bool) -> int:
        """Show the rows that are open and have an effect, none if the whole section is folded; in a search, every row
        that matches. Return how many have an effect."""
        able = [knob for knob in self.standing if can_act(knob, simulator)]
        shown = [knob for knob in self.standing if matches(knob, words)] if words else able
        if (folded and not words) or not (self.head.open or words):
            unfolded = []
        else:
            unfolded = [self._rows[knob.name] for knob in shown]
        for row in self.rows:
            row.setVisible(row in unfolded)
        self._body.setVisible(bool(unfolded))
        self.setVisible(bool(shown) and (bool(words) or not folded))
        changed = sum(is_changed(knob, simulator) for knob in able) if not self.head.open else 0
        notes = [f"{len(able)} that can act"] if self.title == "Mistakes" and not words else []
        notes += [f"{changed} changed"] if changed else []
        self.head.show_title(open=self.head.open or bool(words), note=", ".join(notes))
        return len(able)


def can_act(knob: Knob, simulator: Simulator) -> bool:
    """Return whether a knob can have an effect given the others. A mistake that is switched on is always shown."""
    name, requested = knob.name, simulator.requested
    if not requested.applies(name):
        return False
    if knob.section != "mistakes" or requested[name] or is_changed(knob, simulator):
        return True
    return not mistakes.note(name, requested).startswith(mistakes.NO_EFFECT)


def is_changed(knob: Knob, simulator: Simulator) -> bool:
    """Return whether the value of a knob differs from the preset's."""
    return simulator.requested[knob.name] != simulator.preset.experiment[knob.name]


def matches(knob: Knob, words: list[str]) -> bool:
    """Return whether the words of a search are all in the name, the help or the choices of a knob."""
    text = " ".join((knob.name, label(knob), knob.group, knob.help, *knob.choices)).lower()
    return all(word in text for word in words)
