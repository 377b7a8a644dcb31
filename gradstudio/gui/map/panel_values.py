"""The values of a map's third knob: chosen if the knob is a choice, typed if it is a number."""

from __future__ import annotations

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QCheckBox, QGridLayout, QLineEdit, QWidget

from gradstudio.core.knobs import Knob, Value, format_value
from gradstudio.gui.widgets.rows import NO_MARGINS, in_column

COLUMNS = 2  # of boxes
ABOUT = "The values of the third knob, with commas between them"


class PanelValues(QWidget):
    """A box for each choice, or a line for several numbers."""

    changed = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.line, self._choices = QLineEdit(), QWidget()
        self.boxes: list[QCheckBox] = []
        self._grid = QGridLayout(self._choices)
        self._grid.setContentsMargins(0, 4, 0, 0)
        in_column(self.line, self._choices, of=self, margins=NO_MARGINS)
        self.line.setAccessibleName(ABOUT)
        self.line.setToolTip(ABOUT)
        self.line.textChanged.connect(self.changed)
        self.show_knob(None, False)

    @property
    def text(self) -> str:
        """The values in the format of the command: VALUE,VALUE."""
        if self._choices.isVisibleTo(self):
            return ",".join(box.text() for box in self.boxes if box.isChecked())
        return self.line.text().strip()

    def show_knob(self, knob: Knob | None, now: Value, values: str = "") -> None:
        """Offer the values of a knob, with its current value `now`, or none. `values`: the initial selection; by
        default all choices, or no number."""
        choices = () if knob is None else knob.choices or (("false", "true") if isinstance(knob.default, bool) else ())
        for box in self.boxes:
            box.hide()  # until the event loop deletes it
            box.deleteLater()
        self.boxes = []
        for place, choice in enumerate(choices):
            box = QCheckBox(choice)
            box.setChecked(not values or choice in values.split(","))
            box.setToolTip(f"Whether the map has a panel for {choice}")
            box.setAccessibleName(f"{knob.name if knob else ''} = {choice}")
            box.toggled.connect(self.changed)
            self._grid.addWidget(box, place // COLUMNS, place % COLUMNS)
            self.boxes.append(box)
        self._choices.setVisible(bool(choices))
        self.line.setVisible(not choices)
        self.line.setEnabled(knob is not None)
        self.line.setText("" if choices else values)
        self.line.setPlaceholderText("" if knob is None else f"{format_value(now)},…")
