"""The slider for the number of steps per second."""

from __future__ import annotations

import math

from PySide6.QtCore import Signal

from gradstudio.gui import user_settings
from gradstudio.gui.widgets.scroll_safe import SLIDER_STEPS, Slider
from gradstudio.session.running.worker_commands import UNLIMITED

AT_FIRST = 60.0  # steps a second: slow enough to watch
FASTEST = 1000.0  # steps a second at the last position before unlimited
TOP_SHARE = 0.95  # of the slider's way; beyond it the speed is unlimited
KEY_STEP = 50  # positions that a key moves it


class SpeedSlider(Slider):
    """Logarithmic, from one step a second to `FASTEST`, with unlimited speed at its end. Its initial position is that
    of the last window."""

    speed_changed = Signal(float)  # steps a second

    def __init__(self) -> None:
        super().__init__()
        self.setFixedWidth(86)
        left = user_settings.SPEED.get()
        first = SLIDER_STEPS * TOP_SHARE * math.log(AT_FIRST) / math.log(FASTEST)
        self.setValue(round(first if left is None else left))
        self.setAccessibleName("Speed")
        self.valueChanged.connect(lambda _: self.speed_changed.emit(self.speed))

    @property
    def speed(self) -> float:
        """Steps a second."""
        share = self.value() / SLIDER_STEPS / TOP_SHARE
        return UNLIMITED if share > 1 else float(round(FASTEST**share))

    def save(self) -> None:
        user_settings.SPEED.set(self.value())

    def slow_down(self) -> None:
        self._move(-KEY_STEP)

    def speed_up(self) -> None:
        self._move(KEY_STEP)

    def _move(self, positions: int) -> None:
        if self.isEnabled():  # the keys come here at all times
            self.setValue(self.value() + positions)
