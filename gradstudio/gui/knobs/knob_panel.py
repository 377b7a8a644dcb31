"""The form of all knobs: which are shown, what was asked for and what is in force, and the search."""

from __future__ import annotations

import time
from collections.abc import Iterable

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QHBoxLayout, QLabel, QPushButton, QSizePolicy, QVBoxLayout, QWidget

from gradstudio.core.experiment import KNOBS
from gradstudio.core.knobs import Knob
from gradstudio.core.studio_file import StudioFile
from gradstudio.gui.knobs.knob_group import KnobGroup
from gradstudio.gui.theme import theme
from gradstudio.gui.widgets.change_watch import ChangeWatch
from gradstudio.gui.widgets.plain_grounds import Ground, scrolled
from gradstudio.gui.widgets.roles import role_label
from gradstudio.gui.widgets.search_line import SearchLine
from gradstudio.session.simulator import Simulator

COMPARING = (
    "Compares the accumulated gradient of the next step with the gradient of the same examples as one large batch"
)
ABOUT_COMPARING = (
    "How far the accumulated gradient is from the gradient of one large batch of the same examples: the norm of the "
    "difference / the norm of the latter. Rounding gives about 1e-7 in fp32 and 1e-2 in bf16. More means a mistake in "
    "the loop, or a batch norm or loss that sees each micro-batch by itself."
)
HINTS_EVERY = 0.5  # seconds


class KnobPanel(Ground):
    """Every knob, in the order in which a person needs them, with a search."""

    asked = Signal(str, object)
    slid = Signal(str, object, bool)

    def __init__(self) -> None:
        super().__init__(line="right")
        self.search = SearchLine("Find a knob", "Lists the knobs with these words in their names, help or choices")
        self.search.textChanged.connect(self.forget)
        self.groups = [KnobGroup(title, knobs) for title, knobs in _grouped(KNOBS.values())]
        self.rows = {row.knob.name: row for group in self.groups for row in group.rows}
        self._file: StudioFile | None = None  # whose knobs are shown
        self._of_file: KnobGroup | None = None
        for group in self.groups:
            self._connect(group)
        self.compare = QPushButton("compare")
        self.compare.setProperty("role", "small")
        self.compare.setAccessibleName("Compare with large batch")
        self.compare.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.rows["accumulation.steps"].note.setToolTip(ABOUT_COMPARING)
        self.rows["accumulation.steps"].add_button(self.compare)
        self._watch = ChangeWatch()
        self._steps, self._hints_due = 0, 0.0
        self._lay_out()
        theme.changed.connect(self.forget)

    def refresh(self, simulator: Simulator, locked: str = "") -> None:
        """Show the values that are asked for and in force; cheap where nothing has changed. `locked`: why none can be
        changed just now."""
        run = simulator.run
        news = (
            simulator.preset,
            simulator.requested,
            run,
            run.in_force,
            run.status,
            simulator.started,
            run.not_compared,
            locked,
        )
        if not self._watch.changed(*news, *run.compared[-1:]):
            self._refresh_hints(simulator)
            return
        self._show_file(simulator.requested.studio_file)
        if self._show_reason(simulator, locked):
            return
        waiting = simulator.waiting()
        for name, row in self.rows.items():
            row.show_state(simulator, waiting=name in waiting)
        self.compare.setVisible(simulator.requested.accumulation.steps > 1 or bool(run.compared))
        self.compare.setEnabled(not run.over)
        words = self.search.text().lower().split()
        for group in self.groups:
            group.show_rows(simulator, words)
        self.nothing.setVisible(bool(words) and not any(row.matches(words) for row in self.rows.values()))

    def _show_file(self, file: StudioFile | None) -> None:
        """Show the knobs of a studio file above all others, in place of those of the file before."""
        if file == self._file:
            return
        self._file = file
        if self._of_file is not None:
            for row in self._of_file.rows:
                del self.rows[row.knob.name]
            self.groups.remove(self._of_file)
            self._of_file.hide()
            self._of_file.deleteLater()
            self._of_file = None
        if file is not None and file.knobs:
            self._of_file = KnobGroup(next(iter(file.knobs.values())).group, list(file.knobs.values()))
            self._connect(self._of_file)
            self.groups.insert(0, self._of_file)
            self.rows |= {row.knob.name: row for row in self._of_file.rows}
            self._column.insertWidget(1, self._of_file)

    def _show_reason(self, simulator: Simulator, locked: str) -> bool:
        """Say why no knob can be changed, where that is so: grey all of them, or show what was read off a script in
        their place. Return whether there are no knobs to show."""
        why, watched = locked or simulator.only_shown, simulator.run.watched
        self.reason.setVisible(bool(why))
        self.search.setVisible(watched is None)
        for group in self.groups:
            group.setEnabled(not why)
            if watched is not None:
                group.hide()
        if watched is None:
            self.reason.setText(why)
            return False
        self.nothing.hide()
        self.compare.hide()
        self.reason.setText("\n\n".join([why, *(f"{name}\n{value}" for name, value in watched.told)]))
        return True

    def _connect(self, group: KnobGroup) -> None:
        for row in group.rows:
            row.asked.connect(self.asked)
            row.slid.connect(self.slid)
        group.toggled.connect(self.forget)

    def start_search(self) -> None:
        """Let a person type into the search."""
        self.show()
        self.search.setFocus()
        self.search.selectAll()

    def reveal(self, name: str, simulator: Simulator) -> None:
        """Show a knob, whether its section is open or not, and let a person change it."""
        self.show()
        self.search.setText(name)
        self.refresh(simulator)
        head = self.rows[name].editor.head
        inside = [head, *head.findChildren(QWidget)]
        next((each for each in inside if each.focusPolicy() & Qt.FocusPolicy.TabFocus), self.search).setFocus()

    @property
    def stale(self) -> bool:
        """Whether the next refresh shows every knob anew."""
        return self._watch.forgotten

    def forget(self) -> None:
        """Show every knob anew at the next refresh."""
        self._watch.forget()

    def _refresh_hints(self, simulator: Simulator) -> None:
        """Bring the hints about the latest steps up to date now and then, where they are in sight."""
        steps, now = len(simulator.run.history), time.monotonic()
        if steps == self._steps or now < self._hints_due:
            return
        self._steps, self._hints_due = steps, now + HINTS_EVERY
        for row in self.rows.values():
            if row.isVisible():
                row.show_hint(simulator)

    def _lay_out(self) -> None:
        inner = QWidget()
        column = self._column = QVBoxLayout(inner)
        column.setContentsMargins(0, 0, 0, 8)
        column.setSpacing(0)
        self.nothing = role_label("No knob has these words in its name, help or choices.", "dim")
        self.nothing.setContentsMargins(12, 4, 12, 4)
        self.nothing.setWordWrap(True)
        self.nothing.hide()
        column.addWidget(self.nothing)
        self.reason = QLabel()
        self.reason.setTextFormat(Qt.TextFormat.PlainText)
        self.reason.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.reason.setContentsMargins(12, 4, 12, 8)
        self.reason.setWordWrap(True)
        self.reason.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred)  # no word makes it wider
        self.reason.hide()
        column.addWidget(self.reason)
        for group in self.groups:
            column.addWidget(group)
        column.addStretch(1)
        scroll = scrolled(inner, "Knobs")
        scroll.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        top = QHBoxLayout()
        top.setContentsMargins(12, 10, 12, 8)
        top.addWidget(self.search)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(0)
        layout.addLayout(top)
        layout.addWidget(scroll, 1)
        for part in (self.search, self.nothing, self.reason):
            theme.dress(part)


def _grouped(knobs: Iterable[Knob]) -> list[tuple[str, list[Knob]]]:
    groups: dict[str, list[Knob]] = {}
    for knob in knobs:
        groups.setdefault(knob.group, []).append(knob)
    return list(groups.items())
