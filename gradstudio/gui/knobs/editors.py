"""An editor for each kind of knob. The panel needs only its `value`, `set_value` and `changed`."""

from __future__ import annotations

import math
from collections.abc import Callable

from PySide6.QtCore import QObject, Qt, Signal
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QCheckBox, QLineEdit, QMenu, QPushButton, QWidget

from gradstudio.core.experiment import Experiment
from gradstudio.core.knobs import Knob, KnobError, Value, value_text
from gradstudio.core.studio_file import SECTION
from gradstudio.gui.knobs.knob_tooltip import knob_tooltip
from gradstudio.gui.widgets.menu_arrow import add_arrow
from gradstudio.gui.widgets.roles import set_styled
from gradstudio.gui.widgets.scroll_safe import SLIDER_STEPS, Combo, Slider
from gradstudio.gui.widgets.segments import Segments

FITTING = 6  # characters that fit into a line; one with more is wider
SEGMENTS = 4  # options that stand side by side
SHORT_NAMES = {"agc": "AGC"}


class Editor(QObject):
    """Shows and changes the value of one knob. `head` is beside the knob's label, `foot` below both."""

    changed = Signal(object)  # the new value, checked
    slid = Signal(object, bool)  # value of the slider, which other knobs may forbid; whether keys moved it
    wrong = Signal(str)  # why the text is not allowed; empty if it is
    head: QWidget
    foot: QWidget | None = None

    def __init__(self, knob: Knob) -> None:
        super().__init__()
        self.knob = knob
        self.value: Value = knob.default

    def set_value(self, value: Value) -> None:
        """Show a value; emit nothing."""
        raise NotImplementedError


class ChoiceEditor(Editor):
    def __init__(self, knob: Knob) -> None:
        super().__init__(knob)
        self.head = self._combo = Combo()
        for choice in knob.choices:
            self._combo.addItem(choice)
        self._combo.activated.connect(self._chosen)

    def set_value(self, value: Value) -> None:
        self.value = value
        self._combo.setCurrentText(str(value))

    def _chosen(self) -> None:
        if self._combo.currentText() != self.value:
            self.value = self._combo.currentText()
            self.changed.emit(self.value)


class SegmentsEditor(Editor):
    """A choice whose options are side by side, one press away."""

    def __init__(self, knob: Knob) -> None:
        super().__init__(knob)
        self.head = self._others = Combo()
        self._others.setPlaceholderText("others")
        self._others.addItems(knob.choices[SEGMENTS:])
        self._others.activated.connect(lambda: self._choose(self._others.currentText()))
        first = knob.choices[:SEGMENTS]
        buttons = [QPushButton(SHORT_NAMES.get(choice, choice)) for choice in first]
        self.foot = segments = Segments(*buttons, stretch=1)
        self._group = segments.group
        for choice, button in zip(first, buttons, strict=True):
            button.setFocusPolicy(Qt.FocusPolicy.TabFocus)  # so that Space still runs and pauses after a click
            button.setProperty("choice", choice)
            button.setAccessibleName(f"{knob.name} {choice}")
            button.setToolTip(f"{knob.name} = {choice}")
        self._group.buttonClicked.connect(lambda button: self._choose(button.property("choice")))

    def set_value(self, value: Value) -> None:
        self.value = value
        self._others.setCurrentIndex(self._others.findText(str(value)))
        self._group.setExclusive(False)  # where it is one of the others, no segment is chosen
        for button in self._group.buttons():
            button.setChecked(button.property("choice") == value)
        self._group.setExclusive(True)

    def _choose(self, value: str) -> None:
        if value != self.value:
            self.set_value(value)
            self.changed.emit(value)


class DeviceEditor(Editor):
    """A button that lists the devices; its menu is filled by the window, which knows them."""

    def __init__(self, knob: Knob) -> None:
        super().__init__(knob)
        self.automatic = ""  # the device that `auto` stands for, once known
        self.place = ""  # where it is, "" for here
        self.head = self.button = QPushButton()
        self.button.setMenu(QMenu(self.button))
        add_arrow(self.button)
        self.button.setFocusPolicy(Qt.FocusPolicy.TabFocus)

    def set_value(self, value: Value) -> None:
        self.value = value
        more = f" ({self.automatic})" if value == "auto" and self.automatic else ""
        self.button.setText(f"{value}{more}" + (f" on {self.place}" if self.place else ""))


class SwitchEditor(Editor):
    def __init__(self, knob: Knob) -> None:
        super().__init__(knob)
        self.head = self._box = QCheckBox()
        self._box.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self._box.clicked.connect(self._on_click)

    def set_value(self, value: Value) -> None:
        self.value = value
        self._box.setChecked(bool(value))

    def _on_click(self) -> None:
        self.value = self._box.isChecked()
        self.changed.emit(self.value)


class ValueLine(QLineEdit):
    """A line for one value: Enter or leaving it applies the text, Escape restores the value."""

    done = Signal()
    given_up = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.editingFinished.connect(self.done)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Escape:
            self.given_up.emit()
            return
        super().keyPressEvent(event)


class LineEditor(Editor):
    """A value as text, checked against the knob; a text that is not allowed stays in the line, marked."""

    def __init__(self, knob: Knob) -> None:
        super().__init__(knob)
        self.head = self._line = ValueLine()
        self._line.setObjectName("value")
        self._line.setAlignment(Qt.AlignmentFlag.AlignRight)
        self._line.done.connect(self._take)
        self._line.given_up.connect(lambda: self.set_value(self.value))

    def set_value(self, value: Value) -> None:
        self.value = value
        text = value_text(value)
        self._line.setText(text)
        self._line.setCursorPosition(0)
        set_styled(self._line, "long", "true" if len(text) > FITTING else None)
        self._mark(wrong=False)

    def _take(self) -> None:
        if not self._line.isModified():
            return
        text = self._line.text()
        try:
            value = self.knob.parse(text)
            if self.knob.section != SECTION:  # the knobs of a studio file are checked with its own experiment
                value = Experiment().with_value(self.knob.name, value)[self.knob.name]
        except KnobError:
            self._mark(wrong=True)
            point = " (with a decimal point, not a comma)" if "," in text else ""
            self.wrong.emit(f"allowed: {self.knob.accepted}{point}; still in force: {value_text(self.value)}")
            return
        before, self.value = self.value, value
        self.set_value(value)
        if value != before:
            self.changed.emit(value)

    def _mark(self, *, wrong: bool) -> None:
        self._line.setModified(False)
        if (self._line.property("wrong") == "true") != wrong:  # a line that was never wrong is not restyled
            set_styled(self._line, "wrong", "true" if wrong else "false")
        if not wrong:
            self.wrong.emit("")


class NumberEditor(LineEditor):
    """A line, and a slider if the knob has a range for one."""

    def __init__(self, knob: Knob) -> None:
        super().__init__(knob)
        self._range = knob.slider
        if knob.slider:
            self.foot = self._slider = Slider()
            self._slider.valueChanged.connect(self._slid)

    def set_value(self, value: Value) -> None:
        super().set_value(value)
        if self._range:
            self._slider.blockSignals(True)
            self._slider.setValue(round(self._position(float(value), *self._range) * SLIDER_STEPS))
            self._slider.blockSignals(False)

    def _position(self, value: float, low: float, high: float) -> float:
        """Return the position of a value on the slider, 0 to 1; one outside of its range is at the end."""
        value = min(max(value, low), high)
        if self.knob.logarithmic:
            return math.log(value / low) / math.log(high / low)
        return (value - low) / (high - low)

    def _slid(self, position: int) -> None:
        assert self._range
        low, high = self._range
        share = position / SLIDER_STEPS
        raw = low * (high / low) ** share if self.knob.logarithmic else low + share * (high - low)
        value = round(raw) if self.knob.kind == "int" else float(f"{raw:.{2 if self.knob.logarithmic else 3}g}")
        if value != self.value:
            self.value = value
            self._line.setText(value_text(value))
            self._mark(wrong=False)
            self.slid.emit(value, not self._slider.isSliderDown())


_EDITORS: dict[str, Callable[[Knob], Editor]] = {
    "choice": ChoiceEditor,
    "bool": SwitchEditor,
    "int": NumberEditor,
    "float": NumberEditor,
    "text": LineEditor,
}
_SPECIAL: dict[str, Callable[[Knob], Editor]] = {"clipping.kind": SegmentsEditor, "run.device": DeviceEditor}


def editor_for(knob: Knob) -> Editor:
    """Return the editor of a knob, with names and descriptions for screen readers."""
    editor = _SPECIAL.get(knob.name, _EDITORS[knob.kind])(knob)
    for part in (editor.head, editor.foot):
        if part is not None:
            part.setAccessibleName(knob.name)
            part.setAccessibleDescription(f"{knob.name}: {knob.help}" if isinstance(part, Combo) else knob.help)
            part.setToolTip(knob_tooltip(knob))
    editor.set_value(knob.default)
    return editor
