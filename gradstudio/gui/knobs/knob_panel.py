"""The form of all knobs: the visible ones, their requested values and those in force, and the search."""

from __future__ import annotations

import time
from collections.abc import Iterable

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QHBoxLayout, QLabel, QPushButton, QSizePolicy, QVBoxLayout, QWidget

from gradstudio.core.experiment import KNOBS
from gradstudio.core.knobs import Knob, Value
from gradstudio.core.presets import Preset
from gradstudio.core.studio_file import StudioFile
from gradstudio.core.text import number
from gradstudio.gui.knobs.changes_list import ChangesList
from gradstudio.gui.knobs.editors import DeviceEditor
from gradstudio.gui.knobs.essentials import essential
from gradstudio.gui.knobs.knob_group import Fold, KnobGroup, can_act, is_changed, matches
from gradstudio.gui.knobs.knob_row import KnobRow
from gradstudio.gui.knobs.knob_rows import KnobRows
from gradstudio.gui.theme import theme
from gradstudio.gui.widgets.change_watch import ChangeWatch
from gradstudio.gui.widgets.plain_grounds import Ground, Rule, scroll_area
from gradstudio.gui.widgets.roles import role_label
from gradstudio.gui.widgets.rows import NO_MARGINS, in_column, tab_behind
from gradstudio.gui.widgets.search_line import SearchLine
from gradstudio.session.record.branches import manual_changes
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
    """The essential knobs first, then all others, folded, then the mistakes; with a search over all."""

    asked = Signal(str, object)
    slid = Signal(str, object, bool)

    def __init__(self) -> None:
        super().__init__(line="right")
        self.search = SearchLine("Find a knob", "Lists the knobs with these words in their names, help or choices")
        self.search.textChanged.connect(self.forget)
        self._told: tuple[Simulator, frozenset[str], dict[str, tuple[Value, Value]]] | None = None  # by all rows
        self.rows = KnobRows(KNOBS.values(), self._on_row_created)
        self.groups = [KnobGroup(title, knobs, self.rows) for title, knobs in _by_section(KNOBS.values())]
        self.mistakes = self.groups[[group.title for group in self.groups].index("Mistakes")]
        self.essentials = QWidget()
        self.changes = ChangesList()
        self.more = Fold("All knobs", "Opens and closes the sections with all other knobs")
        self._preset: Preset | None = None  # whose essentials are shown
        self._file: StudioFile | None = None  # whose knobs are shown
        self._of_file: KnobGroup | None = None
        for fold in (self.more, *(group.head for group in self.groups)):
            fold.toggled.connect(self.forget)
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
        """Show the requested values and those in force; cheap when nothing has changed. `locked`: why none can be
        changed at the moment."""
        run = simulator.run
        news = (simulator.preset, simulator.requested, simulator.has_begun, run, run.in_force, run.status, locked)
        if not self._watch.has_changed(*news, run.not_compared, *run.compared[-1:]):
            self._refresh_hints(simulator)
            return
        self._show_file(simulator.requested.studio_file)
        if self._show_reason(simulator, locked):
            return
        self._arrange(simulator.preset)
        before = manual_changes(run, len(run.history)) if run.status == "paused" else {}
        self._told = simulator, frozenset(simulator.waiting()), before
        for row in self.rows.made.values():
            self._show_state(row)
        self.compare.setVisible(simulator.requested.accumulation.steps > 1 or bool(run.compared))
        self.compare.setEnabled(not run.over)
        self.changes.refresh(run)
        self._show_rows(simulator, self.search.text().lower().split())

    def _show_rows(self, simulator: Simulator, words: list[str]) -> None:
        """Show the rows that can act and are not folded; in a search, every row that matches."""
        for row in self._firsts:
            row.setVisible(matches(row.knob, words) if words else can_act(row.knob, simulator))
        sections = [group for group in self.groups if group not in (self.mistakes, self._of_file)]
        more = 0
        for group in self.groups:
            inner = group in sections
            able = group.show_rows(simulator, words, folded=inner and not self.more.open)
            more += able if inner else 0
        standing = [] if self.more.open else [knob for group in sections for knob in group.standing]
        changed = sum(is_changed(knob, simulator) for knob in standing)
        note = f"{more} more" + (f", {changed} changed" if changed else "")
        self.more.show_title(open=self.more.open, note=note)
        self.more.setVisible(bool(more) and not words)
        self.nothing.setVisible(bool(words) and not any(matches(knob, words) for knob in self.rows.knobs.values()))

    def _arrange(self, preset: Preset) -> None:
        """Put the essential knobs of a preset above all others, and every other one into its section."""
        if preset is self._preset:
            return
        self._preset = preset
        names = [name for name in essential(preset) if name in self.rows]
        firsts = [self.rows[name] for name in names]
        if firsts == self._firsts:
            return
        self._firsts = firsts
        before: QWidget = self.search
        for row in firsts:
            self._essential.addWidget(row)
            row.show_as_essential()
            tab_behind(before, row)
            before = row
        for group in self.groups:
            group.place([knob for knob in group.knobs if knob.name not in names])

    def show_device(self, automatic: str, place: str) -> None:
        """Show the device that `auto` stands for, and its place; "": here."""
        editor = self.rows["run.device"].editor
        if isinstance(editor, DeviceEditor) and (automatic, place) != (editor.automatic, editor.place):
            editor.automatic, editor.place = automatic, place
            editor.set_value(editor.value)

    @property
    def device(self) -> QPushButton:
        """The button that lists the devices."""
        editor = self.rows["run.device"].editor
        assert isinstance(editor, DeviceEditor)
        return editor.button

    def _show_file(self, file: StudioFile | None) -> None:
        """Show the knobs of a studio file above all others, replacing those of the previous file."""
        if file == self._file:
            return
        self._file = file
        if self._of_file is not None:
            self.rows.remove(self._of_file.knobs)
            self.groups.remove(self._of_file)
            self._of_file.hide()
            self._of_file.deleteLater()
            self._of_file = None
        if file is not None and file.knobs:
            knobs = list(file.knobs.values())
            self.rows.add(knobs)
            self._of_file = KnobGroup(knobs[0].group, knobs, self.rows)
            self._of_file.head.toggled.connect(self.forget)
            self.groups.insert(0, self._of_file)
            self._column.insertWidget(self._column.indexOf(self.changes), self._of_file)

    def _show_reason(self, simulator: Simulator, locked: str) -> bool:
        """Show why no knob can be changed, if so: grey all of them, or show the facts about a script in their place.
        Return whether there are no knobs to show."""
        why, watched = locked or simulator.only_shown, simulator.run.watched
        instead = locked if watched is None else ""  # in the place of the search, so that no knob moves
        self.instead.setText(instead)
        self.instead.setVisible(bool(instead))
        self.instead.setFixedHeight(self.search.sizeHint().height())
        self.reason.setVisible(bool(why) and not instead)
        self.search.setVisible(watched is None and not instead)
        for part in (self.essentials, *self.groups):
            part.setEnabled(not why)
            if watched is not None:
                part.hide()
        self.essentials.setVisible(watched is None)
        if watched is None:
            self.reason.setText(why)
            return False
        for part in (self.nothing, self.compare, self.more, self.changes):
            part.hide()
        told = [*watched.all_facts]
        if len(history := simulator.run.history):
            told.insert(1, ("learning rate now", number(history.value("lr", len(history) - 1))))
        self.reason.setText("\n\n".join([why, *(f"{name}\n{value}" for name, value in told)]))
        return True

    def _on_row_created(self, row: KnobRow) -> None:
        """Put a row that was just created into its section, as if it had existed from the start."""
        row.asked.connect(self.asked)
        row.slid.connect(self.slid)
        row.hide()
        next(group for group in self.groups if row.knob in group.standing).take(row)
        self._show_state(row)

    def _show_state(self, row: KnobRow) -> None:
        if self._told is not None:
            simulator, waiting, before = self._told
            name = row.knob.name
            row.show_state(simulator, waiting=name in waiting, before=before.get(name, (None,))[0])

    def start_search(self) -> None:
        """Give the focus to the search."""
        self.show()
        self.search.setFocus()
        self.search.selectAll()

    def reveal(self, name: str, simulator: Simulator) -> None:
        """Show a knob, whether its section is open or not, and give it the focus."""
        self.show()
        self.search.setText(name)
        self.refresh(simulator)
        head = self.rows[name].editor.head
        inside = [head, *head.findChildren(QWidget)]
        next((each for each in inside if each.focusPolicy() & Qt.FocusPolicy.TabFocus), self.search).setFocus()

    @property
    def stale(self) -> bool:
        """Whether the next refresh updates every knob."""
        return self._watch.forgotten

    def forget(self) -> None:
        """Update every knob at the next refresh."""
        self._watch.forget()

    def _refresh_hints(self, simulator: Simulator) -> None:
        """Update the visible hints about the latest steps now and then."""
        steps, now = len(simulator.run.history), time.monotonic()
        if steps == self._steps or now < self._hints_due:
            return
        self._steps, self._hints_due = steps, now + HINTS_EVERY
        for row in self.rows.made.values():
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
        self.reason = QLabel(textFormat=Qt.TextFormat.PlainText, wordWrap=True)
        self.reason.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.reason.setContentsMargins(12, 4, 12, 8)
        self.reason.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred)  # no word makes it wider
        self.reason.hide()
        column.addWidget(self.reason)
        self._lay_out_essentials()
        others = [group for group in self.groups if group is not self.mistakes]
        self.more.setContentsMargins(0, 8, 0, 0)
        for part in (self.essentials, self.changes, self.more, *others, self.mistakes):
            column.addWidget(part)
        column.addStretch(1)
        scroll = self._scroll = scroll_area(inner, "Knobs")
        scroll.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        top = QHBoxLayout()
        top.setContentsMargins(12, 10, 12, 8)
        self.instead = QLabel()
        self.instead.hide()
        top.addWidget(self.search)
        top.addWidget(self.instead)
        in_column(top, (scroll, 1), of=self, margins=NO_MARGINS, spacing=0)
        for part in (self.search, self.instead, self.nothing, self.reason):
            theme.apply_style(part)

    def _lay_out_essentials(self) -> None:
        self._firsts: list[KnobRow] = []
        inside = QWidget()
        self._essential = in_column(of=inside, margins=(0, 0, 0, 5), spacing=3)
        heading = role_label("Essentials", "heading")
        heading.setContentsMargins(12, 2, 12, 2)
        self._essential.addWidget(heading)
        in_column(inside, Rule(), of=self.essentials, margins=NO_MARGINS, spacing=0)
        theme.apply_style(inside)

    def show_top(self) -> None:
        """Show the essentials, without a search."""
        self.search.clear()
        self._scroll.verticalScrollBar().setValue(0)


def _by_section(knobs: Iterable[Knob]) -> list[tuple[str, list[Knob]]]:
    groups: dict[str, list[Knob]] = {}
    for knob in knobs:
        groups.setdefault(knob.group, []).append(knob)
    return list(groups.items())
