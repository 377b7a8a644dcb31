"""The buttons beside the timeline: replay the run, rewind to the viewed step, and view the newest."""

from __future__ import annotations

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtWidgets import QComboBox, QPushButton, QWidget

from gradstudio.gui.plots.playback import PACE, SLOW, SPEEDS, Playback
from gradstudio.gui.theme import theme
from gradstudio.gui.widgets.rows import NO_MARGINS, in_row
from gradstudio.gui.widgets.viewed_step import ViewedStep

PLAY = f"Plays the run again, slowly over the last {SLOW} steps before a NaN; nothing is trained (F6)"
SPEED = f"Speed of the replay: 1x is {PACE:.0f} steps a second (Shift+F6)"
REWIND = "Sets the run back to the start of this step; a changed knob then starts a branch (Ctrl+Shift+H)"
NOW = "Looks at the newest step again (End, Esc)"


class PlaybackBar(QWidget):
    rewind_asked = Signal()

    def __init__(self, replay: Playback, looked: ViewedStep) -> None:
        super().__init__()
        self._replay, self._looked = replay, looked
        self.play, self.rewind, self.now = QPushButton(), QPushButton("Rewind here"), QPushButton("Now")
        self.speed = QComboBox()
        for speed in SPEEDS:
            self.speed.addItem(f"{speed}x", speed)
        self.speed.setObjectName("small")
        for widget, name, tip in (
            (self.play, "Play the run again", PLAY),
            (self.speed, "Speed of the replay", SPEED),
            (self.rewind, "Rewind here", REWIND),
            (self.now, "Back to newest step", NOW),
        ):
            widget.setAccessibleName(name)
            widget.setAccessibleDescription(tip)
            widget.setToolTip(tip)
        for button in (self.play, self.rewind, self.now):
            button.setProperty("role", "small")
            button.setFocusPolicy(Qt.FocusPolicy.TabFocus)  # so that Space still runs after a click
        self.play.clicked.connect(replay.toggle)
        self.speed.activated.connect(lambda: replay.choose_speed(self.speed.currentData()))
        self.rewind.clicked.connect(self.rewind_asked)
        self.now.clicked.connect(looked.leave)
        row = in_row(of=self, margins=NO_MARGINS, spacing=6)
        for widget in (self.rewind, self.now, self.play, self.speed):  # the last two stay in place
            row.addWidget(widget)
        replay.changed.connect(self._show_replay)
        looked.changed.connect(self._show_look)
        self._can_rewind = False
        self._show_look()
        self._show_replay()

    def allow_rewinding(self, allowed: bool) -> None:
        """Set whether the run that is shown can be rewound."""
        if allowed != self._can_rewind:
            self._can_rewind = allowed
            self._show_look()

    def restyle(self) -> None:
        size = round(12 * theme.zoom)
        self.play.setIconSize(QSize(size, size))
        self._show_replay()

    def _show_look(self) -> None:
        looking = self._looked.step is not None
        if not looking and (self.rewind.hasFocus() or self.now.hasFocus()):
            self.play.setFocus()
        self.rewind.setVisible(looking and self._can_rewind)
        self.now.setVisible(looking)

    def _show_replay(self) -> None:
        self.play.setIcon(theme.icon("pause" if self._replay.playing else "play", "accent"))
        self.speed.setCurrentIndex(SPEEDS.index(self._replay.speed))
