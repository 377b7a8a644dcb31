"""The overlays as chips over the plots, each with its letter, its line and its title. A click on one hides the overlay
or shows it again; its cross removes it."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QFrame, QPushButton, QWidget

from gradstudio.gui.drawing.overlay import NAMES, SAMPLE, Overlaid, Overlays, sample
from gradstudio.gui.theme import theme
from gradstudio.gui.widgets.roles import role_label
from gradstudio.gui.widgets.rows import in_row

LONGEST = 190  # px of a title, at most
AROUND = 88  # px of a chip besides its title: name, line, cross


class Chip(QFrame):
    """The chip of one overlay."""

    def __init__(self, overlays: Overlays, place: int, overlaid: Overlaid) -> None:
        super().__init__()
        self.setObjectName("chip")
        self.place, self.overlaid = place, overlaid
        self.toggle, self.remove = QPushButton(), QPushButton("×")
        row = in_row(of=self, margins=(4, 0, 2, 0), spacing=0)
        for button in (self.toggle, self.remove):
            button.setProperty("role", "chip")
            button.setFocusPolicy(Qt.FocusPolicy.TabFocus)
            row.addWidget(button)
        self.toggle.setCheckable(True)
        self.toggle.setIconSize(SAMPLE)
        self.toggle.setToolTip(f"{overlaid.tip}<p>Click: hide this overlay or show it again</p>")
        self.remove.setToolTip("Remove this overlay from the plots")
        self.remove.setAccessibleName(f"Remove {NAMES[place]}, {overlaid.title}, from the plots")
        self.toggle.clicked.connect(lambda: overlays.toggle(place))
        self.remove.clicked.connect(lambda: overlays.remove(overlaid.id))

    @property
    def full_width(self) -> float:
        """Width of the whole title in px, at most LONGEST."""
        return min(self.toggle.fontMetrics().horizontalAdvance(self.overlaid.title) + 4, LONGEST * theme.zoom)

    def show_as(self, shown: bool, room: float) -> None:
        """Draw the chip with `room` px for its title."""
        self.toggle.setChecked(shown)
        self.toggle.setIcon(sample(self.place, shown))
        title = self.toggle.fontMetrics().elidedText(self.overlaid.title, Qt.TextElideMode.ElideRight, round(room))
        self.toggle.setText(f" {NAMES[self.place]}  {title}".replace("&", "&&"))
        self.toggle.setAccessibleName(f"{NAMES[self.place]}, {self.overlaid.title}, {'shown' if shown else 'hidden'}")


class Chips(QWidget):
    """A line of chips over the plots, shown only while there are overlays."""

    compare_asked = Signal()

    def __init__(self, overlays: Overlays) -> None:
        super().__init__()
        self._overlays = overlays
        self.chips: dict[int, Chip] = {}
        self.compare, self.clear = QPushButton("Compare…"), QPushButton("Clear")
        self.compare.setToolTip("Compare the knobs and results of these runs in a table")
        self.clear.setToolTip("Remove all overlays from the plots")
        self.compare.clicked.connect(self.compare_asked)
        self.clear.clicked.connect(lambda: overlays.remove(*overlays.slots))
        label = role_label("Overlays", "dim")
        label.setToolTip("Runs and curves drawn over the run of the plots")
        self._row = in_row(label, 1, of=self, margins=(2, 0, 2, 0), spacing=6)
        for button in (self.compare, self.clear):
            button.setProperty("role", "small")
            button.setFocusPolicy(Qt.FocusPolicy.TabFocus)
            self._row.addWidget(button)
        overlays.changed.connect(self._renew)
        theme.changed.connect(self._dress)
        self.hide()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._dress()

    def _renew(self) -> None:
        places = self._overlays.places
        for place in [place for place, chip in self.chips.items() if places.get(place) is not chip.overlaid]:
            chip = self.chips.pop(place)
            chip.hide()
            self._row.removeWidget(chip)
            chip.deleteLater()
        for place, overlaid in sorted(places.items()):
            if place not in self.chips:
                self.chips[place] = Chip(self._overlays, place, overlaid)
                self._row.insertWidget(1 + sum(other < place for other in self.chips), self.chips[place])
        self.compare.setVisible(any(overlaid.run is not None for overlaid in places.values()))
        self.setVisible(bool(places))
        self._dress()

    def _dress(self) -> None:
        """Divide the room among the titles; the others get what a short one leaves."""
        taken = 78 * theme.zoom + self.compare.sizeHint().width() + self.clear.sizeHint().width()
        room, left = self.width() - taken - len(self.chips) * AROUND * theme.zoom, len(self.chips)
        for place, chip in sorted(self.chips.items(), key=lambda placed: placed[1].full_width):
            own = max(min(chip.full_width, room / left), 0)
            chip.show_as(self._overlays.shows(place), own)
            room, left = room - own, left - 1
