"""The knobs: a form made from their declarations, with what was asked for and what is in force."""

from __future__ import annotations

import time
from collections.abc import Iterable

from PySide6.QtCore import QPoint, QSettings, Qt, Signal
from PySide6.QtGui import QKeySequence, QShortcut
from PySide6.QtWidgets import QApplication, QFrame, QHBoxLayout, QLabel, QLineEdit, QMenu, QPushButton, QScrollArea, QVBoxLayout, QWidget

from gradstudio.core import mistakes
from gradstudio.core.experiment import KNOBS
from gradstudio.core.knobs import Knob, Value, format_value
from gradstudio.gui.editors import editor_for, help_text
from gradstudio.gui.theme import theme
from gradstudio.gui.watch import Watch
from gradstudio.session.hints import Hint, applies_to, hint
from gradstudio.session.simulator import Simulator

CLOSED_AT_FIRST = {"Gradients", "Loss", "Mistakes"}
COMPARING = (
    "Holds the gradient that a step's micro-batches add up to against that of the same examples as one large batch: the norm of the "
    "difference, relative. About 1e-7 is rounding in fp32, 1e-2 in bf16. More is another gradient: a mistake in the loop, or a norm "
    "or a loss that looks at a batch as a whole, and sees each micro-batch by itself."
)
HINTS_EVERY = 0.5  # seconds
ON_RESTART = "\u21ba"  # an arrow in a circle: acts on restart


def _label(text: str, role: str) -> QLabel:
    label = QLabel(text)
    label.setProperty("role", role)
    return label


def _set_role(label: QLabel, role: str) -> None:
    if label.property("role") != role:
        label.setProperty("role", role)
        label.style().unpolish(label)
        label.style().polish(label)


def _rule() -> QFrame:
    line = QFrame()
    line.setObjectName("rule")
    line.setFixedHeight(1)
    return line


class KnobRow(QWidget):
    """One knob: a dot where it differs from the preset, its label, its editor, and a line for what there is to say."""

    asked = Signal(str, object)
    slid = Signal(str, object, bool)

    def __init__(self, knob: Knob, *, mixed: bool) -> None:
        super().__init__()
        self.knob = knob
        self._preset_value: Value = knob.default
        self.editor = editor_for(knob)
        self.editor.changed.connect(lambda value: self.asked.emit(knob.name, value))
        self.editor.slid.connect(lambda value, by_keys: self.slid.emit(knob.name, value, by_keys))
        self.editor.wrong.connect(self._show_error)
        self.dot = QPushButton("●")
        self.dot.setFixedWidth(12)
        self.dot.setProperty("role", "flat")
        self.dot.setStyleSheet("padding: 0; font-size: 7pt;")
        self.dot.clicked.connect(lambda: self.asked.emit(knob.name, self._preset_value))
        self.dot.setAccessibleName(f"Back to the preset's {knob.name}")
        keep = self.dot.sizePolicy()
        keep.setRetainSizeWhenHidden(True)
        self.dot.setSizePolicy(keep)
        self.label = QLabel(knob.label + (f" {ON_RESTART}" if mixed and not knob.live else ""))
        self.label.setToolTip(help_text(knob))
        self.label.setBuddy(self.editor.head)
        self.note = _label("", "note")
        self.note.setWordWrap(True)
        self.note.setTextFormat(Qt.TextFormat.PlainText)
        self._error = ""
        self._hint, self._waiting = Hint(), False
        self._lay_out()
        self.setContextMenuPolicy(Qt.ContextMenuPolicy.CustomContextMenu)
        self.customContextMenuRequested.connect(self._menu)

    def matches(self, words: list[str]) -> bool:
        text = f"{self.knob.name} {self.knob.label} {self.knob.group} {self.knob.help} {' '.join(self.knob.choices)}".lower()
        return all(word in text for word in words)

    def show_state(self, simulator: Simulator, *, waiting: bool) -> None:
        """Show what was asked for, what is in force, and whether it has an effect."""
        name, requested = self.knob.name, simulator.requested
        if self.editor.value != requested[name]:
            self.editor.set_value(requested[name])
        self._preset_value = simulator.preset.experiment[name]
        self.dot.setVisible(requested[name] != self._preset_value)
        self.dot.setToolTip(f"The preset has {format_value(self._preset_value)}: press to go back to it.")
        applies = requested.applies(name)
        self.setEnabled(applies)
        fixed = simulator.started and not simulator.run.over and not self.knob.live
        _set_role(self.label, "fixed" if fixed or not applies else "")
        self._waiting = waiting
        text, grave = self._hint = hint(name, requested, simulator.run)
        role = "waiting" if grave else "note"
        if not applies:
            text, role = applies_to(self.knob), "note"
        elif waiting:
            when = "applies on restart" if not self.knob.live or simulator.run.over else "waits for the next step"
            text, role = f"{when}; in force: {format_value(simulator.run.in_force[name])}", "waiting"
        elif simulator.started and simulator.run.in_force[name] != requested[name]:
            text = f"in force by the timeline: {format_value(simulator.run.in_force[name])}"
        if self._error:
            text, role = self._error, "error"
        self._write(text, role)
        if self.knob.section == "mistakes":
            self.label.setToolTip(help_text(self.knob, mistakes.note(name, requested)))

    def show_hint(self, simulator: Simulator) -> None:
        """Show what has come of the last steps of the run."""
        if hint(self.knob.name, simulator.requested, simulator.run) != self._hint:
            self.show_state(simulator, waiting=self._waiting)

    def add_button(self, button: QPushButton) -> None:
        """A button of its own, left of the value."""
        self._head.insertWidget(2, button)

    def _lay_out(self) -> None:
        head = self._head = QHBoxLayout()
        head.setContentsMargins(0, 0, 0, 0)
        head.setSpacing(4)
        head.addWidget(self.dot)
        head.addWidget(self.label, 1)
        head.addWidget(self.editor.head)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(6, 2, 12, 2)
        layout.setSpacing(1)
        layout.addLayout(head)
        for part in (self.editor.foot, self.note):
            if part is not None:
                row = QHBoxLayout()
                row.setContentsMargins(16, 0, 0, 2 if part is self.editor.foot else 0)
                row.addWidget(part)
                layout.addLayout(row)
        self.note.hide()
        if self.editor.foot is not None:
            self.label.setBuddy(self.editor.foot)

    def _write(self, text: str, role: str) -> None:
        text = text.replace(" %", "\u00a0%")  # which never stands alone in a line
        if self.note.text() != text:
            self.note.setText(text)
            self.note.setVisible(bool(text))
        _set_role(self.note, role)

    def _show_error(self, text: str) -> None:
        self._error = text
        self._write(text, "error" if text else "note")

    def _menu(self, position: QPoint) -> None:
        menu = QMenu(self)
        knob = self.knob
        menu.addAction(f"Preset's value: {format_value(self._preset_value)}", lambda: self.asked.emit(knob.name, self._preset_value))
        menu.addAction(f"Default: {format_value(knob.default)}", lambda: self.asked.emit(knob.name, knob.default))
        menu.addSeparator()
        text = f"{knob.name}={format_value(self.editor.value)}"
        menu.addAction(f"Copy “{text}”", lambda: QApplication.clipboard().setText(text))
        menu.popup(self.mapToGlobal(position))


class KnobGroup(QFrame):
    """The knobs of one section under a header that says when they act, and that opens and closes them."""

    def __init__(self, title: str, knobs: list[Knob]) -> None:
        super().__init__()
        self.title = title
        live = {knob.live for knob in knobs}
        self.rows = [KnobRow(knob, mixed=len(live) == 2) for knob in knobs]
        stored = QSettings().value(f"open/{title}")
        self.open = title not in CLOSED_AT_FIRST if stored is None else stored in (True, "true")
        self.button = QPushButton(title)
        self.button.setProperty("role", "group")
        self.button.setAccessibleDescription("Opens and closes this section.")
        self.button.clicked.connect(self._toggle)
        acts = {(True,): "live", (False,): f"{ON_RESTART} on restart", (False, True): f"live · {ON_RESTART} on restart"}[tuple(sorted(live))]
        self.acts = _label("next step" if title == "Accumulation" else acts, "note")
        header = QHBoxLayout()
        header.setContentsMargins(12, 0, 12, 0)
        header.addWidget(self.button, 1)
        header.addWidget(self.acts)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 9, 0, 0)
        layout.setSpacing(3)
        layout.addLayout(header)
        for row in self.rows:
            layout.addWidget(row)
        layout.addSpacing(5)
        layout.addWidget(_rule())

    def show_rows(self, simulator: Simulator, words: list[str]) -> None:
        """Show the rows that are open and have an effect; in a search, all that match."""
        shown = 0
        for row in self.rows:
            visible = row.matches(words) if words else self.open and simulator.requested.applies(row.knob.name)
            row.setVisible(visible)
            shown += visible
        self.setVisible(bool(shown) or not words)
        changed = sum(row.dot.isVisibleTo(row) for row in self.rows) if not self.open else 0
        self.button.setText(("▾ " if self.open or words else "▸ ") + self.title + (f" ({changed} changed)" if changed and not words else ""))

    def _toggle(self) -> None:
        self.open = not self.open
        QSettings().setValue(f"open/{self.title}", self.open)
        self.window().findChild(KnobPanel).forget()


class KnobPanel(QWidget):
    """Every knob, in the order in which one reaches for them, with a search."""

    asked = Signal(str, object)
    slid = Signal(str, object, bool)
    compare_asked = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("left")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.search = QLineEdit()
        self.search.setPlaceholderText("Find a knob")
        self.search.setAccessibleName("Find a knob")
        self.search.setToolTip("Part of a knob's name, of its help or of its choices.")
        self.search.setClearButtonEnabled(True)
        self.search.textChanged.connect(self.forget)
        escape = QShortcut(QKeySequence(Qt.Key.Key_Escape), self.search, self.search.clear)
        escape.setContext(Qt.ShortcutContext.WidgetShortcut)  # which as an argument goes unheard
        self.groups = [KnobGroup(title, knobs) for title, knobs in _grouped(KNOBS.values())]
        self.rows = {row.knob.name: row for group in self.groups for row in group.rows}
        for row in self.rows.values():
            row.asked.connect(self.asked)
            row.slid.connect(self.slid)
        self.compare = QPushButton("compare")
        self.compare.setProperty("role", "small")
        self.compare.setAccessibleName("Compare with the large batch")
        self.compare.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.compare.clicked.connect(self.compare_asked)
        for part in (self.compare, self.rows["accumulation.steps"].note):
            part.setToolTip(COMPARING)
        self.rows["accumulation.steps"].add_button(self.compare)
        self._watch = Watch()
        self._steps, self._hints_due = 0, 0.0
        self._lay_out()
        theme.changed.connect(self.forget)

    def refresh(self, simulator: Simulator) -> None:
        """Show the knobs as they stand; cheap where nothing has changed."""
        run = simulator.run
        news = (simulator.preset, simulator.requested, run, run.in_force, run.status, simulator.started, run.not_compared)
        if not self._watch.changed(*news, *run.compared[-1:]):
            self._refresh_hints(simulator)
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

    @property
    def stale(self) -> bool:
        """Whether the next refresh looks again, whatever has changed."""
        return self._watch.forgotten

    def forget(self) -> None:
        """Look again at the next refresh, whatever has changed."""
        self._watch.forget()

    def _refresh_hints(self, simulator: Simulator) -> None:
        """Now and then, what is held against the last steps of the run; only where it is seen."""
        steps, now = len(simulator.run.history), time.monotonic()
        if steps == self._steps or now < self._hints_due:
            return
        self._steps, self._hints_due = steps, now + HINTS_EVERY
        for row in self.rows.values():
            if row.isVisible():
                row.show_hint(simulator)

    def _lay_out(self) -> None:
        inner = QWidget()
        column = QVBoxLayout(inner)
        column.setContentsMargins(0, 0, 0, 8)
        column.setSpacing(0)
        self.nothing = _label("No knob has these words in its name, help or choices.", "dim")
        self.nothing.setContentsMargins(12, 4, 12, 4)
        self.nothing.setWordWrap(True)
        self.nothing.hide()
        column.addWidget(self.nothing)
        for group in self.groups:
            column.addWidget(group)
        column.addStretch(1)
        scroll = QScrollArea()
        scroll.setWidgetResizable(True)
        scroll.setWidget(inner)
        scroll.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        scroll.setAccessibleName("Knobs")
        scroll.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        top = QHBoxLayout()
        top.setContentsMargins(12, 10, 12, 8)
        top.addWidget(self.search)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(0)
        layout.addLayout(top)
        layout.addWidget(scroll, 1)


def _grouped(knobs: Iterable[Knob]) -> list[tuple[str, list[Knob]]]:
    groups: dict[str, list[Knob]] = {}
    for knob in knobs:
        groups.setdefault(knob.group, []).append(knob)
    return list(groups.items())
