"""The clip microscope: a vector to drag, and the gradient of the next step along two of its entries, each before and
after norm, value and adaptive clipping."""

from __future__ import annotations

import math

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QComboBox, QFrame, QLabel, QPushButton

from gradstudio.core.clip_plane import Limits, Vector, angle, clip
from gradstudio.core.gauge_samples import CLIPPED_BY, ClippedGradient
from gradstudio.core.sections.loop_knobs import Clipping
from gradstudio.core.text import number, short_name
from gradstudio.gui.gauges.clip_plane_picture import NAMES, ClipPlanePicture, Plane, reach_of
from gradstudio.gui.widgets.change_watch import ChangeWatch
from gradstudio.gui.widgets.rows import in_column, in_row
from gradstudio.gui.widgets.scroll_safe import Combo
from gradstudio.gui.widgets.segments import Segments
from gradstudio.session.words import gauge_readings

UNITS = (100.0, 25.0)  # norms of the weights of the two units that a dragged vector belongs to
LONGEST_NAME = 26  # letters
FIRST = (1.6, 0.7)  # initial position of the draggable vector, times the largest limit


class ClipCard(QFrame):
    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("card")
        self.setToolTip("Shows what clipping does to the length and to the direction of a gradient")
        self.title, self.when, self.text = QLabel("Clip microscope"), QLabel(), QLabel()
        self.title.setProperty("role", "title")
        self.when.setProperty("role", "dim")
        self.text.setWordWrap(True)
        self.text.setTextFormat(Qt.TextFormat.PlainText)
        self.text.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.drag, self.live = QPushButton("Drag a vector"), QPushButton("Live gradient")
        self.across, self.up = Combo(), Combo()
        self.picture = ClipPlanePicture()
        self._vector: Vector | None = None
        self._clipping = Clipping()
        self._found: ClippedGradient | None = None
        self._step, self._problem = 0, ""
        self._watch = ChangeWatch()
        self._lay_out()
        self.drag.clicked.connect(self._show)
        self.live.clicked.connect(self._show)
        self.across.activated.connect(self._show)
        self.up.activated.connect(self._show)
        self.picture.dragged.connect(self._drag)

    def refresh(self, clipping: Clipping, sample: tuple[int, ClippedGradient] | None, problem: str) -> None:
        """Show the limits in force, and the latest gradient; `problem`: why there is none."""
        if not self._watch.has_changed(clipping, sample, problem):
            return
        self._clipping, self._problem = clipping, problem
        if sample is not None:
            self._step, self._found = sample
            self._offer(sample[1])
        else:
            self._found = None
        self._show()

    # ---- inside

    def _drag(self, x: float, y: float) -> None:
        self._vector = x, y
        self._show()

    def _show(self) -> None:
        live = self.live.isChecked()
        self.picture.draggable = not live
        for each in (self.across, self.up):
            each.setVisible(live and self._found is not None)
        self.picture.setVisible(not live or (self._found is not None and not self._problem))
        self.when.setText(f"step {self._step:,}" if live and self._found else "")
        if live:
            self._show_live()
        else:
            self._show_dragged()
        self.setAccessibleName(f"{self.title.text()}. {self.text.text()}")
        self.picture.setAccessibleDescription(self.text.text())

    def _show_dragged(self) -> None:
        knobs = self._clipping
        limits = Limits(knobs.max_norm, knobs.clip_value, (knobs.agc_factor * UNITS[0], knobs.agc_factor * UNITS[1]))
        largest = max(limits.max_norm, limits.clip_value) or 1.0
        vector = self._vector or (FIRST[0] * largest, FIRST[1] * largest)
        vectors = {"before": vector, **{kind: clip(vector, kind, limits) for kind in CLIPPED_BY}}
        self.picture.show_plane(Plane(vectors, limits, 2 * largest))
        texts = [f"Gradient ({number(vector[0])}, {number(vector[1])}), {number(math.hypot(*vector))} long."]
        texts += [
            f"{NAMES[kind][0].upper()}{NAMES[kind][1:]}: "
            f"{gauge_readings.cut_in_words(math.hypot(*vector), math.hypot(*cut), angle(vector, cut))}."
            for kind, cut in vectors.items()
            if kind != "before"
        ]
        weights = f"AGC takes the entries for two units whose weights have norms of {UNITS[0]:g} and {UNITS[1]:g}."
        self.text.setText(" ".join([*texts, weights]))

    def _show_live(self) -> None:
        clipped_gradient = self._found
        if self._problem or clipped_gradient is None:
            self.text.setText(self._problem or "Measured at the next step of the run.")
            return
        one, other = max(self.across.currentIndex(), 0), max(self.up.currentIndex(), 0)
        vectors: dict[str, Vector] = {"before": (clipped_gradient.entries[one], clipped_gradient.entries[other])}
        for kind, cut in clipped_gradient.cuts.items():
            vectors[kind] = cut.entries[one], cut.entries[other]
        limits = Limits(
            math.inf, clipped_gradient.clip_value, (math.inf, math.inf)
        )  # the others are no lines of this plane
        self.picture.show_plane(Plane(vectors, limits, reach_of(vectors)))
        here = angle(vectors["before"], vectors["value"])
        text = "" if math.isnan(here) else f" In this plane value clipping turns it by {gauge_readings.degrees(here)}."
        self.text.setText(gauge_readings.clipping_effects(clipped_gradient) + text)

    def _offer(self, clipped: ClippedGradient) -> None:
        """List the entries that the user can choose, and keep the choice."""
        names = [
            f"{_rank(rank, clipped.size)}: {number(entry)}, {short_name(name, LONGEST_NAME)}"
            for rank, entry, name in zip(clipped.ranks, clipped.entries, clipped.names, strict=True)
        ]
        for box, first in ((self.across, 0), (self.up, min(1, len(names) - 1))):
            chosen = box.currentIndex() if box.count() == len(names) else first
            box.clear()
            box.addItems(names)
            box.setCurrentIndex(chosen)

    def _lay_out(self) -> None:
        segments = Segments(self.drag, self.live)
        self.drag.setToolTip("Drag the gradient in the picture, or move it with the arrow keys")
        self.live.setToolTip("Shows the gradient of the next step along two of its entries")
        self.drag.setChecked(True)
        head = in_row(self.title, 1, self.when)
        column = in_column(head, segments, of=self, margins=(12, 9, 12, 10), spacing=6)
        for name, box in (("Entry to the right", self.across), ("Entry upwards", self.up)):
            box.setAccessibleName(name)
            box.setAccessibleDescription(f"{name}: its rank by size, its value and its place")
            box.setToolTip(f"{name} of the picture: its rank by size, its value and its place")
            box.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)
            column.addWidget(box)
        column.addWidget(self.picture)
        column.addWidget(self.text)


def _rank(rank: int, size: int) -> str:
    if rank == 1:
        return "Largest"
    return "Smallest" if rank == size else f"No. {rank:,}"
