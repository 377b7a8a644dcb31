"""The run's controls, its state in one sentence, and what it runs: preset, device, export."""

from __future__ import annotations

import math

from PySide6.QtCore import QRectF, QSize, Qt, Signal
from PySide6.QtGui import QFont, QPainter, QPaintEvent
from PySide6.QtWidgets import QHBoxLayout, QLabel, QMenu, QPushButton, QSizePolicy, QWidget

from gradstudio.core.experiment import KNOBS
from gradstudio.gui.editors import SLIDER_STEPS, Slider
from gradstudio.gui.theme import theme
from gradstudio.gui.watch import Watch
from gradstudio.session.simulator import Simulator
from gradstudio.session.state import Tone
from gradstudio.session.worker import UNLIMITED

_TONES = {"idle": "dim", "busy": "dim", "good": "accent", "warning": "warning", "bad": "bad"}
AT_FIRST = 60.0  # steps a second: slow enough to watch, and to step in
FASTEST = 1000.0  # steps a second at the last position before unlimited
ARROW = "▾"
TOP_SHARE = 0.95  # of the slider's way; beyond it is unlimited


class Pill(QWidget):
    """The state in one line, with a dot in its colour; elided where there is no room."""

    def __init__(self) -> None:
        super().__init__()
        self._role, self._text = "dim", ""
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Preferred)
        self.setMinimumWidth(72)

    def show_state(self, tone: Tone, text: str) -> None:
        role = _TONES[tone]
        if (role, text) != (self._role, self._text):
            self._role, self._text = role, text
            self.setAccessibleName(text)
            self.setToolTip(text)
            self.update()

    def sizeHint(self) -> QSize:
        return QSize(380, 28)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        font = theme.font(1.0, QFont.Weight.DemiBold)
        painter.setFont(font)
        metrics = painter.fontMetrics()
        text = metrics.elidedText(self._text, Qt.TextElideMode.ElideRight, self.width() - 44)
        width, height = metrics.horizontalAdvance(text) + 44, metrics.height() + 9
        pill = QRectF((self.width() - width) / 2, (self.height() - height) / 2, width, height)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(theme.color(self._role, 28))
        painter.drawRoundedRect(pill, height / 2, height / 2)
        painter.setBrush(theme.color(self._role))
        painter.drawEllipse(QRectF(pill.left() + 13, pill.center().y() - 4, 8, 8))
        painter.setPen(theme.color("text" if self._role == "dim" else self._role))
        painter.drawText(pill.adjusted(28, 0, -10, 0), Qt.AlignmentFlag.AlignVCenter, text)
        painter.end()


class TopBar(QWidget):
    speed_changed = Signal(float)

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("top")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.play = QPushButton("Run")
        self.play.setProperty("role", "primary")
        self.step = QPushButton("Step")
        self.restart = QPushButton("Restart")
        self.rewind = QPushButton("Go back…")
        self.play.setToolTip("Run, or pause (Space)")
        self.step.setToolTip("One optimizer step, then pause (F10)")
        self.restart.setToolTip("Begin again from step 0 with the knobs as they are set (Ctrl+R)")
        self.rewind.setToolTip("Back to a step of this run, or to the last healthy one where it broke; dragging the timeline does it too (Ctrl+G)")
        self.speed = Slider()
        self.speed.setFixedWidth(86)
        self.speed.setValue(round(SLIDER_STEPS * TOP_SHARE * math.log(AT_FIRST) / math.log(FASTEST)))
        self.speed.setAccessibleName("Speed")
        self.speed.setToolTip("From one step a second to as fast as it goes (Ctrl+Up, Ctrl+Down)")
        self.speed.valueChanged.connect(self._speed_moved)
        self.speed_label = QLabel(f"{AT_FIRST:.0f}/s")
        self.speed_label.setMinimumWidth(44)
        self.pill = Pill()
        self.preset, self.device, self.export = QPushButton(), QPushButton(), QPushButton(f"Export {ARROW}")
        for button, name in ((self.preset, "Preset"), (self.device, "Device"), (self.export, "Export")):
            button.setMenu(QMenu(button))
            button.setAccessibleName(name)
        self.preset.setToolTip("The configuration that is loaded; a dot means that knobs were changed")
        self.device.setToolTip("Where it trains")
        self.export.setToolTip("Report, experiment and measurements as files")
        for button in (self.play, self.step, self.restart, self.rewind, self.preset, self.device, self.export):
            button.setFocusPolicy(Qt.FocusPolicy.TabFocus)  # so that Space after a click runs and pauses, whatever was clicked
        self._playing: bool | None = None
        self._watch = Watch()
        self._lay_out()
        self.keep_widths()
        theme.changed.connect(self._restyle)
        self._restyle()

    def refresh(self, simulator: Simulator, healthy: int | None) -> None:
        """Show the state of the run; `healthy` is the last step before it broke."""
        run, going = simulator.run, simulator.going
        if not self._watch.changed(
            run, run.status, going, going.status, simulator.started, simulator.requested, run.in_force, simulator.preset, healthy
        ):
            return
        playing = going.status in ("running", "starting") and simulator.started
        if playing != self._playing:
            self._playing = playing
            self.play.setText("Pause" if playing else "Run")
            self._restyle()
        self.play.setEnabled(not going.over or simulator.can_resume)
        self.step.setEnabled(not going.over)
        self.restart.setEnabled(simulator.started)
        waiting = sum(run.over or not KNOBS[name].live for name in simulator.waiting())
        self.restart.setText(f"Restart ({waiting})" if waiting else "Restart")
        self.rewind.setEnabled(simulator.started)
        self.rewind.setText("Go back…" if healthy is None or not run.over else f"Back to {healthy:,}")
        self._make_primary(self.play if not run.over else self.restart if healthy is None else self.rewind)
        changed = simulator.requested != simulator.preset.experiment
        title = simulator.preset.title if len(simulator.preset.title) <= 26 else simulator.preset.title[:25] + "…"
        self.preset.setText(f"{title}{' •' if changed else ''} {ARROW}")

    def show_device(self, device: str, automatic: str) -> None:
        """Show what was asked for; `automatic` is what auto comes to, as far as that is known."""
        text = f"{device} ({automatic}) {ARROW}" if device == "auto" and automatic else f"{device} {ARROW}"
        if text != self.device.text():
            self.device.setText(text)

    def show_speed(self, steps_per_second: float) -> None:
        self.speed_label.setText("max" if steps_per_second == UNLIMITED else f"{steps_per_second:.0f}/s")

    def _lay_out(self) -> None:
        row = QHBoxLayout(self)
        row.setContentsMargins(12, 8, 12, 8)
        row.setSpacing(8)
        for button in (self.play, self.step, self.restart, self.rewind):
            row.addWidget(button)
        label = QLabel("speed")
        label.setProperty("role", "dim")
        label.setBuddy(self.speed)
        row.addSpacing(8)
        row.addWidget(label)
        row.addWidget(self.speed)
        row.addWidget(self.speed_label)
        row.addWidget(self.pill, 1)
        for button in (self.preset, self.device, self.export):
            row.addWidget(button)

    def keep_widths(self) -> None:
        """Room for the longest text, so that nothing moves when it changes."""
        for button, longest in ((self.play, "Pause"), (self.restart, "Restart (9)"), (self.rewind, "Back to 9,999")):
            now = button.text()
            button.setText(longest)
            button.setFixedWidth(button.sizeHint().width() + (24 if button.icon().isNull() else 4))  # and an icon
            button.setText(now)

    def _speed_moved(self, position: int) -> None:
        share = position / SLIDER_STEPS / TOP_SHARE
        speed = UNLIMITED if share > 1 else float(round(FASTEST**share))
        self.show_speed(speed)
        self.speed_changed.emit(speed)

    def _make_primary(self, button: QPushButton) -> None:
        for other in (self.play, self.restart, self.rewind):
            role = "primary" if other is button else ""
            if other.property("role") != role:
                other.setProperty("role", role)
                other.style().unpolish(other)
                other.style().polish(other)
                self._restyle()

    def _restyle(self) -> None:
        def role(button: QPushButton) -> str:
            return "on_accent" if button.property("role") == "primary" else "text"

        self.play.setIcon(theme.icon("pause" if self._playing else "play", role(self.play)))
        self.step.setIcon(theme.icon("step"))
        self.restart.setIcon(theme.icon("restart", role(self.restart)))
        self.rewind.setIcon(theme.icon("rewind", role(self.rewind)))
        self.pill.update()
