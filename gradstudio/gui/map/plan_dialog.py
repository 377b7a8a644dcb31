"""The dialog that plans a map: its two knobs and their ranges, perhaps a third, and the resolution."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

from PySide6.QtCore import Qt
from PySide6.QtWidgets import (
    QCheckBox,
    QComboBox,
    QDialogButtonBox,
    QFormLayout,
    QHBoxLayout,
    QLabel,
    QLineEdit,
    QSpinBox,
    QWidget,
)
from shiboken6 import isValid

from gradstudio.core.knobs import KnobError
from gradstudio.core.presets import MOST_CELLS, Preset
from gradstudio.core.text import plural
from gradstudio.gui.map.panel_values import PanelValues
from gradstudio.gui.services.context import Context
from gradstudio.gui.widgets.popups import TemporaryDialog
from gradstudio.gui.widgets.rows import NO_MARGINS, in_column, in_row
from gradstudio.session.map import time_needed, workers
from gradstudio.session.map.axis import SEED
from gradstudio.session.map.map_plan import MOST_SEEDS, Plan, read_plan
from gradstudio.session.map.proposal import axes, axis_text, proposal
from gradstudio.session.map.time_needed import Cost, Size

ABOUT = (
    "Each cell of the map is a real run of the knobs as they are set now, with these two changed. The map begins "
    "coarse, over the whole area and round the cross first, and grows finer where neighbours differ."
)
NO_THIRD = "no third knob"
LONGEST_RUN = 1_000_000  # steps


class AxisFields(QWidget):
    """A knob and its range."""

    def __init__(self, name: str, text: str, knobs: list[str], proposed: Callable[[str], str]) -> None:
        super().__init__()
        self.knob, self.low, self.high = QComboBox(), QLineEdit(), QLineEdit()
        self.log = QCheckBox("log")
        self._proposed = proposed
        self.knob.addItems(knobs)
        for widget, about in (
            (self.knob, f"The knob that changes along {name}"), (self.low, f"The smallest value along {name}"),
            (self.high, f"The largest value along {name}"),
            (self.log, f"Whether equal steps along {name} multiply the value, which suits rates and norms"),
        ):  # fmt: skip
            widget.setAccessibleName(about)
            widget.setToolTip(about)
        row = in_row((self.knob, 2), of=self, margins=NO_MARGINS)
        for part in (QLabel("from"), self.low, QLabel("to"), self.high):
            row.addWidget(part, 1 if isinstance(part, QLineEdit) else 0)
        row.addWidget(self.log)
        self.show_text(text)
        self.knob.currentTextChanged.connect(self._propose)

    @property
    def text(self) -> str:
        """The range in the format of the command: KNOB=FROM:TO:log."""
        ends = f"{self.knob.currentText()}={self.low.text().strip()}:{self.high.text().strip()}"
        return f"{ends}:log" if self.log.isChecked() else ends

    def show_text(self, text: str) -> None:
        knob, _, ends = text.partition("=")
        low, high, *log = ends.split(":")
        self.knob.setCurrentText(knob)
        self.low.setText(low)
        self.high.setText(high)
        self.log.setChecked(log == ["log"])

    def _propose(self, knob: str) -> None:
        self.show_text(self._proposed(knob))


class PlanDialog(TemporaryDialog):
    """Stays open until there is a valid plan, and shows errors."""

    def __init__(self, context: Context, made: Callable[[Plan], object]) -> None:
        super().__init__(context.parent, "New map")
        simulator = context.simulator
        self._cost: Cost | None = None  # of a run of a cell
        self._proposed = True
        self._experiment, self._made = simulator.requested, made
        self._preset: Preset = simulator.preset.model_copy(update={"experiment": self._experiment})
        first = proposal(simulator.preset, self._experiment)
        knobs = axes(self._experiment)
        for text in (first.x, first.y):  # a preset's proposal may have an effect only with the third knob
            knobs = list(dict.fromkeys([*knobs, text.partition("=")[0]]))
        self.across, self.up = (
            AxisFields(name, text, knobs, partial(axis_text, self._experiment))
            for name, text in (("x", first.x), ("y", first.y))
        )
        third, _, values = first.by.partition("=")
        self.third, self.values = QComboBox(), PanelValues()
        self.third.addItems([NO_THIRD, *(knob.name for knob, _ in self._experiment.items() if knob.name != SEED)])
        self.third.setCurrentText(third or NO_THIRD)
        self.cells, self.seeds = _number(first.cells, 2, MOST_CELLS), _number(1, 1, MOST_SEEDS)
        self.steps = _number(first.steps or self._experiment.run.steps, 1, LONGEST_RUN)
        self.full = QCheckBox("Train every cell")
        self.told, self.time, self.problem = QLabel(), QLabel(), QLabel()
        self._lay_out()
        self.third.currentTextChanged.connect(self._show_third)
        for number in (self.cells, self.seeds, self.steps):
            number.valueChanged.connect(self._keep_size)
        self.full.toggled.connect(self._show_size)
        for axis in (self.across, self.up):
            axis.knob.currentTextChanged.connect(self._show_size)
            axis.log.toggled.connect(self._show_size)
            for end in (axis.low, axis.high):
                end.textChanged.connect(self._show_size)
        self.values.changed.connect(self._show_size)
        self._show_third(self.third.currentText(), values)

    def accept(self) -> None:
        try:
            self._made(self._plan())
        except KnobError as fault:
            self.problem.setText(str(fault))
        else:
            super().accept()

    def take_cost(self, cost: Cost | str) -> None:
        """Receive the cost of a run of a cell, and propose a size with which the map takes about a minute; or why that
        is unknown, as a sentence."""
        if not isValid(self):
            return  # it was closed meanwhile
        if isinstance(cost, str):
            self.time.setText(cost)
            return
        self._cost = cost
        if self._proposed:
            asked = Size(self.cells.value(), self.steps.value())
            size = time_needed.fit_size(asked, self._panels, cost, workers.cores())
            self.cells.setValue(size.cells)
            self.steps.setValue(size.steps)
        self._show_size()

    # ---- inside

    def _plan(self) -> Plan:
        preset = self._preset.model_copy(
            update={"experiment": self._experiment.with_value("run.steps", self.steps.value())}
        )
        name = self.third.currentText()
        by = "" if name == NO_THIRD else f"{name}={self.values.text}"
        return read_plan(
            preset, self.across.text, self.up.text, self.cells.value(), by, self.seeds.value(),
            full=self.full.isChecked(), before="",
        )  # fmt: skip

    def _show_third(self, name: str, values: str = "") -> None:
        if name == NO_THIRD:
            self.values.show_knob(None, False)
        else:
            self.values.show_knob(self._experiment.find_knob(name), self._experiment[name], values)
        self._show_size()

    def _keep_size(self) -> None:
        """Keep the size chosen by the user."""
        self._proposed = False
        self._show_size()

    @property
    def _panels(self) -> int:
        return 1 if self.third.currentText() == NO_THIRD else max(len(self.values.text.split(",")), 1)

    def _show_size(self) -> None:
        try:
            shape = self._plan().shape  # an axis of whole numbers may have fewer than requested
        except KnobError:  # which is shown when the user requests the map
            shape = self._panels, self.cells.value(), self.cells.value()
        steps, seeds = self.steps.value(), self.seeds.value()
        each = plural(seeds, "run", "runs")
        self.told.setText(f"{math.prod(shape):,} cells, each {each} of {plural(steps, 'step', 'steps')}.")
        if self._cost is not None:
            count = time_needed.runs(shape, seeds, full=self.full.isChecked())
            self.time.setText(time_needed.in_words(count, self._cost, steps, workers.cores()))
        self.problem.setText("")

    def _lay_out(self) -> None:
        about = QLabel(ABOUT)
        for label, role in ((about, "dim"), (self.told, "dim"), (self.time, "title"), (self.problem, "error")):
            label.setWordWrap(True)
            label.setProperty("role", role)
        for widget, text in (
            (self.third, "A third knob: the map has a panel for each of its values"),
            (self.cells, "The number of cells of each axis"),
            (self.steps, "The number of steps of each run"),
            (self.seeds, "The number of seeds with which each cell is trained"),
            (self.full, "Whether every cell is trained, not only those where neighbours differ"),
        ):  # fmt: skip
            widget.setAccessibleName(text)
            widget.setToolTip(text)
        third, counts = QHBoxLayout(), QHBoxLayout()
        third.addWidget(self.third, 2, Qt.AlignmentFlag.AlignTop)
        third.addWidget(self.values, 3)
        for name, number in (("Cells of an axis", self.cells), ("Steps", self.steps), ("Seeds", self.seeds)):
            counts.addWidget(QLabel(name))
            counts.addWidget(number)
        counts.addStretch(1)
        form = QFormLayout()
        form.addRow("To the right", self.across)
        form.addRow("Upwards", self.up)
        form.addRow("Panels", third)
        buttons = QDialogButtonBox(QDialogButtonBox.StandardButton.Ok | QDialogButtonBox.StandardButton.Cancel)
        buttons.button(QDialogButtonBox.StandardButton.Ok).setText("Make map")
        buttons.accepted.connect(self.accept)
        buttons.rejected.connect(self.reject)
        in_column(about, form, counts, self.full, self.told, self.time, self.problem, buttons, of=self)
        self.setMinimumWidth(560)


def _number(value: int, least: int, most: int) -> QSpinBox:
    box = QSpinBox()
    box.setRange(least, most)
    box.setValue(min(max(value, least), most))
    return box
