"""Changes of knobs, chosen with each knob's own editor: those of a try in an exam, or those that fix a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QComboBox, QCompleter, QLabel, QPushButton, QSizePolicy, QWidget

from gradstudio.core.knobs import Knob, KnobError, Value, format_value
from gradstudio.gui.knobs.editors import editor_for
from gradstudio.gui.knobs.knob_tooltip import knob_tooltip
from gradstudio.gui.widgets.rows import NO_MARGINS, in_column, in_row

SHOWN = 20  # knobs visible in the list at once


class ChangesEditor(QWidget):
    """A row for each changed knob, with its editor, and a list to choose another one from."""

    changed = Signal()
    wrong = Signal(str)  # why a change is not allowed; empty if it is

    def __init__(
        self, names: Iterable[str], knob_of: Callable[[str], Knob], begins_with: Callable[[str], Value],
        check: Callable[[list[str]], object],
    ) -> None:  # fmt: skip
        """`begins_with`: the initial value in the editor of a knob. `check` raises KnobError for changes that are not
        allowed."""
        super().__init__()
        self._knob_of, self._begins_with, self._check = knob_of, begins_with, check
        self.rows: dict[str, ChangeRow] = {}
        self.knob = _KnobBox(names)
        self._column = in_column(self.knob, of=self, margins=NO_MARGINS, spacing=6)
        self.knob.textActivated.connect(self._choose)

    @property
    def texts(self) -> list[str]:
        """The changes, each as KNOB=VALUE."""
        return _texts({name: row.value for name, row in self.rows.items()})

    def name_parts(self, knob: str, about: str) -> None:
        """Set the labels of the list of knobs."""
        line = self.knob.lineEdit()
        for widget in (self.knob, *([line] if line else [])):
            widget.setAccessibleName(knob)
            widget.setAccessibleDescription(f"{knob}: {about}")
            widget.setToolTip(about)

    def add(self, name: str) -> None:
        """Change another knob."""
        if name in self.rows:
            self.rows[name].take_focus()
            return
        value = self._begins_with(name)
        if not self._accepts({**self._values(), name: value}):
            return
        row = self.rows[name] = ChangeRow(self._knob_of(name), value)
        row.asked.connect(lambda value: self._set(name, value))
        row.left_out.connect(lambda: self.remove(name))
        row.wrong.connect(self.wrong)
        self._column.insertWidget(self._column.count() - 1, row)
        row.take_focus()
        self.changed.emit()

    def remove(self, name: str) -> None:
        """Leave a knob unchanged."""
        row = self.rows.pop(name)
        row.hide()  # until the event loop deletes it
        row.deleteLater()
        self.knob.setFocus()
        self.wrong.emit("")
        self.changed.emit()

    def clear(self) -> None:
        for name in list(self.rows):
            self.remove(name)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Keep Enter, which accepts a knob or a value, from accepting the dialog."""
        if event.key() not in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            super().keyPressEvent(event)

    # ---- inside

    def _values(self) -> dict[str, Value]:
        return {name: row.value for name, row in self.rows.items()}

    def _choose(self, name: str) -> None:
        self.knob.forget()
        self.add(name)

    def _set(self, name: str, value: Value) -> None:
        row = self.rows[name]
        if self._accepts({**self._values(), name: value}):
            row.value = value
            self.changed.emit()
        else:
            row.show_value()

    def _accepts(self, values: dict[str, Value]) -> bool:
        try:
            self._check(_texts(values))
        except KnobError as fault:
            self.wrong.emit(str(fault))
            return False
        self.wrong.emit("")
        return True


class ChangeRow(QWidget):
    """One changed knob. `value`: its new value."""

    asked = Signal(object)  # another value, not yet allowed
    left_out = Signal()
    wrong = Signal(str)

    def __init__(self, knob: Knob, value: Value) -> None:
        super().__init__()
        self.value = value
        self.editor = editor_for(knob)
        self.editor.setParent(self)
        self.editor.changed.connect(self.asked)
        self.editor.slid.connect(lambda value, _: self.asked.emit(value))
        self.editor.wrong.connect(self.wrong)
        self.show_value()
        label, out = QLabel(knob.name), QPushButton("Leave")
        label.setToolTip(knob_tooltip(knob))
        out.setProperty("role", "flat")
        out.setAccessibleName(f"Leave {knob.name} as it is")
        out.setToolTip(f"Leaves {knob.name} as it is in this run")
        out.setAutoDefault(False)
        out.clicked.connect(self.left_out)
        line = in_row((label, 1), margins=NO_MARGINS)
        column = in_column(line, of=self, margins=NO_MARGINS, spacing=3)
        for part in self._parts():
            part.setAccessibleName(f"Value of {knob.name}")
        line.addWidget(self.editor.head)
        line.addWidget(out)
        if self.editor.foot is not None:
            column.addWidget(self.editor.foot)
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Maximum)

    def show_value(self) -> None:
        self.editor.set_value(self.value)

    def take_focus(self) -> None:
        self._parts()[0].setFocus(Qt.FocusReason.TabFocusReason)

    def _parts(self) -> list[QWidget]:
        widgets = [self.editor.head, self.editor.foot]
        return [part for part in widgets if part is not None and type(part) is not QWidget]  # which is an empty item


class _KnobBox(QComboBox):
    """A list of knobs to choose from, or to search by a part of the name."""

    def __init__(self, names: Iterable[str]) -> None:
        super().__init__()
        self.setEditable(True)
        self.setInsertPolicy(QComboBox.InsertPolicy.NoInsert)
        self.setMaxVisibleItems(SHOWN)
        self.addItems(list(names))
        line, completer = self.lineEdit(), self.completer()
        assert line is not None and completer is not None  # an editable one has both
        line.setPlaceholderText("Choose a knob…")
        completer.setCompletionMode(QCompleter.CompletionMode.PopupCompletion)
        completer.setFilterMode(Qt.MatchFlag.MatchContains)
        self.forget()

    def forget(self) -> None:
        """Clear the chosen knob."""
        self.setCurrentIndex(-1)
        self.clearEditText()


def _texts(values: dict[str, Value]) -> list[str]:
    return [f"{name}={format_value(value)}" for name, value in values.items()]
