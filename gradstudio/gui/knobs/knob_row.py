"""One knob of the form: its label, its editor, and a note below."""

from __future__ import annotations

from PySide6.QtCore import QPoint, Qt, Signal
from PySide6.QtWidgets import QApplication, QHBoxLayout, QLabel, QPushButton, QWidget

from gradstudio.core import mistakes
from gradstudio.core.knobs import Knob, Value, format_value, value_text
from gradstudio.gui.knobs.editors import editor_for
from gradstudio.gui.knobs.essentials import TYPED, label
from gradstudio.gui.knobs.knob_tooltip import knob_tooltip
from gradstudio.gui.theme import theme
from gradstudio.gui.widgets import popups
from gradstudio.gui.widgets.roles import role_label, set_role
from gradstudio.gui.widgets.rows import in_column, in_row
from gradstudio.gui.widgets.scroll_safe import Slider
from gradstudio.session.simulator import Simulator
from gradstudio.session.words.knob_hints import Hint, hint, why_not

MARK = 11  # px of the symbol of a knob that takes effect on restart


class KnobRow(QWidget):
    """One knob: a dot if it differs from the preset, its label, its editor, and a line for a note."""

    asked = Signal(str, object)
    slid = Signal(str, object, bool)

    def __init__(self, knob: Knob) -> None:
        super().__init__()
        self.knob = knob
        self._preset_value: Value = knob.default
        self.editor = editor_for(knob)
        self.editor.setParent(self)  # its slots refer to this row, which would refer back to them forever
        self.editor.changed.connect(lambda value: self.asked.emit(knob.name, value))
        self.editor.slid.connect(lambda value, by_keys: self.slid.emit(knob.name, value, by_keys))
        self.editor.wrong.connect(self._show_error)
        self.dot = QPushButton("●")
        self.dot.setFixedWidth(12)
        self.dot.setProperty("role", "dot")
        self.dot.clicked.connect(lambda: self.asked.emit(knob.name, self._preset_value))
        self.dot.setAccessibleName(f"Reset {knob.name} to the preset's value")
        keep = self.dot.sizePolicy()
        keep.setRetainSizeWhenHidden(True)
        self.dot.setSizePolicy(keep)
        self.label = QLabel(knob.label)
        self._mark: QLabel | None = None  # when it takes effect, if the header does not say it
        self.label.setToolTip(knob_tooltip(knob))
        self.label.setBuddy(self.editor.head)
        self.note = role_label("", "note")
        self.note.setWordWrap(True)
        self.note.setTextFormat(Qt.TextFormat.PlainText)
        self._error = ""
        self._hint, self._waiting = Hint(), False
        self._before: Value | None = None
        self._lay_out()
        self.setContextMenuPolicy(Qt.ContextMenuPolicy.CustomContextMenu)
        self.customContextMenuRequested.connect(self._menu)

    def show_in_section(self, *, mixed: bool) -> None:
        """Use the name within the section, which says when its knobs take effect unless they are `mixed`."""
        self.label.setText(self.knob.label)
        self._show_slider(True)
        marked = mixed and not self.knob.live
        if marked:
            self._mark_label().clear()
            self._color_mark()
        if self._mark is not None:
            self._mark.setVisible(marked)

    def show_as_essential(self) -> None:
        """Use the name of an essential knob, which says when it takes effect."""
        self.label.setText(label(self.knob))
        self._mark_label().setText("live" if self.knob.live else "restart")
        self._mark_label().show()
        self._show_slider(self.knob.name not in TYPED)

    def _show_slider(self, shown: bool) -> None:
        if isinstance(self.editor.foot, Slider):
            self.editor.foot.setVisible(shown)

    def _mark_label(self) -> QLabel:
        if self._mark is None:
            self._mark = role_label("", "note")
            self._mark.setToolTip("acts at the next step" if self.knob.live else "acts on restart")
            self._head.insertWidget(2, self._mark)
            theme.changed.connect(self._color_mark)
        return self._mark

    def _color_mark(self) -> None:
        """Draw the symbol in the colour of the theme, if it is not a word."""
        if self._mark is not None and not self._mark.text():
            self._mark.setPixmap(theme.icon("restart", "dim").pixmap(MARK, MARK))

    def show_state(self, simulator: Simulator, *, waiting: bool, before: Value | None = None) -> None:
        """Show the requested value, the one in force, and whether the knob has an effect. `before`: the value that held
        until the run's current step."""
        name, requested = self.knob.name, simulator.requested
        if self.editor.value != requested[name]:
            self.editor.set_value(requested[name])
        self._preset_value = simulator.preset.experiment[name]
        self.dot.setVisible(requested[name] != self._preset_value)
        self.dot.setToolTip(f"Resets the knob to the preset's value, {value_text(self._preset_value)}")
        applies = requested.applies(name)
        self.setEnabled(applies)
        fixed = simulator.has_begun and not simulator.run.over and not self.knob.live
        set_role(self.label, "fixed" if fixed or not applies else "")
        self._waiting, self._before = waiting, before
        self._write(*self._note(simulator, applies))
        if self.knob.section == "mistakes":
            self.label.setToolTip(knob_tooltip(self.knob, mistakes.note(name, requested)))

    def _note(self, simulator: Simulator, applies: bool) -> tuple[str, str]:
        """Return the note below the knob and its role: the first that applies of an error, a reason why the knob has no
        effect, a value that is not in force, and a hint."""
        name, requested, run = self.knob.name, simulator.requested, simulator.run
        text, grave = self._hint = hint(name, requested, run)
        in_force = value_text(run.in_force[name])
        if self._error:
            return self._error, "error"
        if not applies:
            return why_not(self.knob, requested), "note"
        if self._waiting:
            when = "applies on restart" if not self.knob.live or run.over else "waits for the next step"
            if self.knob.live and run.over and simulator.steps_to_go:
                when = "applies as the run goes on, or on restart"
            return f"{when}; in force: {in_force}", "waiting"
        if simulator.has_begun and run.in_force[name] != requested[name]:
            text = f"set to {in_force} by the timeline"
        elif self._before is not None:
            return f"set at this step; {value_text(self._before)} before it", "waiting"
        return text, "waiting" if grave else "note"

    def show_hint(self, simulator: Simulator) -> None:
        """Update the hint for the latest steps of the run."""
        if hint(self.knob.name, simulator.requested, simulator.run) != self._hint:
            self.show_state(simulator, waiting=self._waiting, before=self._before)

    def add_button(self, button: QPushButton) -> None:
        """Put a button left of the value."""
        self._head.insertWidget(self._head.count() - 1, button)

    def _lay_out(self) -> None:
        head = self._head = QHBoxLayout()
        head.setContentsMargins(0, 0, 0, 0)
        head.setSpacing(4)
        head.addWidget(self.dot)
        head.addWidget(self.label)
        head.addStretch(1)
        head.addWidget(self.editor.head)
        layout = in_column(head, of=self, margins=(6, 2, 12, 2), spacing=1)
        for part in (self.editor.foot, self.note):
            if part is not None:
                row = in_row(part, margins=(16, 0, 0, 2 if part is self.editor.foot else 0))
                layout.addLayout(row)
        self.note.hide()
        if self.editor.foot is not None:
            self.label.setBuddy(self.editor.foot)

    def _write(self, text: str, role: str) -> None:
        text = text.replace(" %", "\u00a0%")  # so that it is never alone in a line
        if self.note.text() != text:
            self.note.setText(text)
            self.note.setVisible(bool(text))
        set_role(self.note, role)

    def _show_error(self, text: str) -> None:
        self._error = text
        self._write(text, "error" if text else "note")

    def _menu(self, position: QPoint) -> None:
        menu = popups.context_menu(self)
        knob = self.knob
        menu.addAction(
            f"Preset's value: {value_text(self._preset_value)}", lambda: self.asked.emit(knob.name, self._preset_value)
        )
        menu.addAction(f"Default: {value_text(knob.default)}", lambda: self.asked.emit(knob.name, knob.default))
        menu.addSeparator()
        text = f"{knob.name}={format_value(self.editor.value)}"
        menu.addAction(f"Copy “{text}”", lambda: QApplication.clipboard().setText(text))
        menu.popup(self.mapToGlobal(position))
