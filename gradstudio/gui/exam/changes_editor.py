"""Changes of knobs, chosen with each knob's own editor: what a try of an exam changes, and what heals the run."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import (
    QComboBox,
    QHBoxLayout,
    QLineEdit,
    QListWidget,
    QPushButton,
    QSizePolicy,
    QVBoxLayout,
    QWidget,
)

from gradstudio.core.knobs import Knob, KnobError, Value, format_value
from gradstudio.gui.knobs.editors import Editor, editor_for

CHANGES = 64  # px of the list, at most


class ChangesEditor(QWidget):
    """A knob, the editor of its value, and the list of the knobs that are changed."""

    changed = Signal()
    wrong = Signal(str)  # why a change is not allowed; empty once it is

    def __init__(
        self, names: Iterable[str], knob_of: Callable[[str], Knob], begins_with: Callable[[str], Value],
        check: Callable[[list[str]], object],
    ) -> None:  # fmt: skip
        """`begins_with`: the value that the editor of a knob shows first. `check` raises KnobError for changes that
        are not allowed."""
        super().__init__()
        self._knob_of, self._begins_with, self._check = knob_of, begins_with, check
        self._values: dict[str, Value] = {}
        self.editor: Editor | None = None
        self.knob, self.list = QComboBox(), QListWidget()
        self.add, self.remove = QPushButton("Change it"), QPushButton("Take out")
        self._room = QWidget()
        self._place = QVBoxLayout(self._room)
        self._place.setContentsMargins(0, 0, 0, 0)
        self._room.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Maximum)
        self.knob.addItems(list(names))
        self.knob.setCurrentText("optimizer.lr")
        self._lay_out()
        self.knob.currentTextChanged.connect(self._choose)
        self.add.clicked.connect(self._add)
        self.remove.clicked.connect(self._take_out)
        self._choose(self.knob.currentText())

    @property
    def texts(self) -> list[str]:
        """The changes, each as KNOB=VALUE."""
        return [f"{name}={format_value(value)}" for name, value in self._values.items()]

    def name_parts(self, knob: str, about: str, changes: str) -> None:
        """Say what the list of knobs and the list of changes are for."""
        for widget, name, told in ((self.knob, knob, about), (self.list, "Changes", changes)):
            widget.setAccessibleName(name)
            widget.setAccessibleDescription(told)
            widget.setToolTip(told)
        self.add.setToolTip("Adds this change to the list")
        self.remove.setToolTip("Takes the change that is chosen out of the list")

    def allow(self, allowed: bool) -> None:
        """Let a person change knobs, or not."""
        for part in (self.knob, self.add, self.remove, *self._parts()):
            part.setEnabled(allowed)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Add the change by Enter in the line of its value, and let no Enter accept the dialog."""
        if event.key() not in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            super().keyPressEvent(event)
        elif isinstance(self.focusWidget(), QLineEdit):
            self._add()

    # ---- inside

    def _parts(self) -> list[QWidget]:
        editor = self.editor
        found = [editor.head, editor.foot] if editor is not None else []
        return [part for part in found if part is not None and type(part) is not QWidget]  # which is an empty head

    def _choose(self, name: str) -> None:
        """Show the editor of a knob."""
        while item := self._place.takeAt(0):
            if widget := item.widget():
                widget.hide()  # until the event loop deletes it
                widget.deleteLater()
        knob = self._knob_of(name)
        self.editor = editor_for(knob)
        self.editor.setParent(self)
        self.editor.wrong.connect(self.wrong)
        self.editor.set_value(self._values.get(name, self._begins_with(name)))
        for part in self._parts():
            part.setEnabled(self.knob.isEnabled())
            part.setAccessibleName(f"Value of {name}")
            self._place.addWidget(part)

    def _add(self) -> None:
        assert self.editor is not None
        before, self._values = self._values, {**self._values, self.editor.knob.name: self.editor.value}
        try:
            self._check(self.texts)
        except KnobError as fault:
            self._values = before
            self.wrong.emit(str(fault))
            return
        self._show()

    def _take_out(self) -> None:
        if item := self.list.currentItem():
            self._values.pop(item.text().partition(" = ")[0], None)
            self._show()

    def _show(self) -> None:
        row = self.list.currentRow()
        self.list.clear()
        self.list.addItems([f"{name} = {format_value(value)}" for name, value in self._values.items()])
        self.list.setCurrentRow(min(row, self.list.count() - 1) if row >= 0 else self.list.count() - 1)
        self.wrong.emit("")
        self.changed.emit()

    def _lay_out(self) -> None:
        self.list.setMaximumHeight(CHANGES)
        self.list.setWordWrap(True)
        both = QHBoxLayout()
        for button in (self.add, self.remove):
            button.setAutoDefault(False)
            both.addWidget(button)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(6)
        column.addWidget(self.knob)
        column.addWidget(self._room)
        column.addLayout(both)
        column.addWidget(self.list)
