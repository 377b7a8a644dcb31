"""The bar at the top: the run's controls, its state in one sentence, and the menus for preset, device and export."""

from __future__ import annotations

from PySide6.QtCore import QRectF, QSize, Qt
from PySide6.QtGui import QFont, QFontMetrics, QPainter, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QHBoxLayout, QLabel, QMenu, QPushButton, QSizePolicy, QWidget

from gradstudio.gui.services.simulator_controller import SimulatorController
from gradstudio.gui.shell.speed_slider import SpeedSlider
from gradstudio.gui.theme import theme
from gradstudio.gui.widgets.change_watch import ChangeWatch
from gradstudio.gui.widgets.menu_arrow import ARROW
from gradstudio.gui.widgets.roles import set_role
from gradstudio.session.running.worker import UNLIMITED
from gradstudio.session.simulator import Simulator
from gradstudio.session.words.outcome_words import Tone

REWIND, REWIND_TO = "Rewind…", "Rewind to {:,}"
SEPARATOR = " · "  # between the parts of a state
SIZES = (1.0, 0.9, 0.8)  # of the state's text, the largest that fits
ROOMY = 1360  # px of the bar from which on there is room for the word "speed"
TIGHT = 1040  # px of the bar below which the device, and the name of the preset, give way to the state of the run
SHORTEST = 70  # px of a branch's name below which it is left out
LONGEST_TITLE = 26  # characters of a preset's title


class StatePill(QWidget):
    """The state of the run, with a dot in its colour: in one line where there is room, or else in two. What is still
    too long is left out or elided so that what is seen says nothing else than the whole, which the tooltip has."""

    def __init__(self) -> None:
        super().__init__()
        self._role, self._text = "dim", ""
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Preferred)
        self.setMinimumWidth(72)

    def show_state(self, tone: Tone, text: str) -> None:
        if (tone, text) != (self._role, self._text):
            self._role, self._text = tone, text
            self.setAccessibleName(text)
            self.setToolTip(text)
            self.update()

    def sizeHint(self) -> QSize:
        return QSize(380, 28)

    def paintEvent(self, event: QPaintEvent) -> None:
        with QPainter(self) as painter:
            painter.setRenderHint(QPainter.RenderHint.Antialiasing)
            room = self.width() - 44
            lines, font = self._laid_out(room)
            painter.setFont(font)
            metrics = painter.fontMetrics()
            told = "\n".join(shortened(line, metrics, room) for line in lines)
            width = max(metrics.horizontalAdvance(line) for line in told.split("\n")) + 44
            height = len(lines) * metrics.height() + (9 if len(lines) == 1 else 4)
            pill = QRectF((self.width() - width) / 2, (self.height() - height) / 2, width, height)
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(theme.color(self._role, 28))
            painter.drawRoundedRect(pill, height / 2, height / 2)
            painter.setBrush(theme.color(self._role))
            painter.drawEllipse(QRectF(pill.left() + 13, pill.center().y() - 4, 8, 8))
            painter.setPen(theme.color("text" if self._role == "dim" else self._role))
            painter.drawText(pill.adjusted(28, 0, -10, 0), Qt.AlignmentFlag.AlignVCenter, told)

    def _laid_out(self, room: int) -> tuple[list[str], QFont]:
        """Return the text in one line, or its first part in a line of its own, and its font."""
        fonts = [theme.font(size, QFont.Weight.DemiBold) for size in SIZES]
        for font in fonts:
            if QFontMetrics(font).horizontalAdvance(self._text) <= room:
                return [self._text], font
        first, _, rest = self._text.partition(SEPARATOR)
        if rest and QFontMetrics(fonts[-1]).horizontalAdvance(first) <= room:
            return [first, rest], fonts[-1]
        for mark, above, below in ((": ", ":", ""), (" since ", "", "since ")):
            what, found, more = first.partition(mark)
            if found:
                return [what + above, below + more], fonts[-1]
        return [first], fonts[-1]


def shortened(line: str, metrics: QFontMetrics, room: int) -> str:
    """Return what there is room for. Of several parts the first gives way: it is the name of a branch."""
    first, separator, rest = line.partition(SEPARATOR)
    left = room - metrics.horizontalAdvance(separator + rest)
    if metrics.horizontalAdvance(line) <= room:
        return line
    if rest and left >= SHORTEST * theme.zoom:
        return metrics.elidedText(first, Qt.TextElideMode.ElideRight, left) + separator + rest
    return metrics.elidedText(rest or first, Qt.TextElideMode.ElideMiddle, room)


class TopBar(QWidget):
    """Its buttons get their tooltips and what they do from the table of commands."""

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("top")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.play = QPushButton("Run")
        self.play.setProperty("role", "primary")
        self.step = QPushButton("Step")
        self.restart = QPushButton("Restart")
        self.rewind = QPushButton(REWIND)
        self.speed = SpeedSlider()
        self.speed.speed_changed.connect(self._show_speed)
        self.speed_label = QLabel()
        self._show_speed(self.speed.speed)
        self.speed_label.setMinimumWidth(44)
        self.pill = StatePill()
        self.preset, self.device, self.export = QPushButton(), QPushButton(), QPushButton(f"Export {ARROW}")
        for button, name in ((self.preset, "Preset"), (self.device, "Device"), (self.export, "Export")):
            button.setMenu(QMenu(button))
            button.setAccessibleName(name)
        self.preset.setToolTip("Lists the presets; a dot means that knobs differ from the loaded preset")
        self.device.setToolTip("Lists the devices that can train here; another one takes effect on restart")
        self.export.setToolTip("Writes the run as a report, a script, an experiment or a table")
        for button in (self.play, self.step, self.restart, self.rewind, self.preset, self.device, self.export):
            button.setFocusPolicy(
                Qt.FocusPolicy.TabFocus
            )  # so that Space after a click runs and pauses, whatever was clicked
        self._playing: bool | None = None
        self._rewinds_as = ""  # what the table of commands says of rewinding
        self._speed_is = ""  # what the window says of the speed
        self._alone = False  # whether only the state of the run is shown, and what goes on from there
        self._over = False  # whether the run on view is over
        self._title = self._mark = ""  # of the preset; the mark says that knobs differ from it
        self._watch = ChangeWatch()
        self._lay_out()
        theme.dress(self)
        self.keep_widths()
        theme.changed.connect(self._restyle)
        self._restyle()

    def refresh(self, simulator: Simulator, controls: SimulatorController) -> None:
        """Show the state of the run; cheap where nothing has changed."""
        run, going, healthy = simulator.run, simulator.going, controls.healthy_step
        if not self._watch.changed(
            run, run.status, going, going.status, simulator.started, simulator.requested, run.in_force,
            simulator.preset, healthy,
        ):  # fmt: skip
            return
        if controls.playing != self._playing:
            self._playing = controls.playing
            self.play.setText("Pause" if self._playing else "Run")
            self._restyle()
        self.play.setEnabled(controls.can_run)
        self.step.setEnabled(controls.can_step)
        self.restart.setEnabled(controls.started)
        waiting = sum(run.over or not simulator.requested.find_knob(name).live for name in simulator.waiting())
        self.restart.setText(f"Restart ({waiting})" if waiting else "Restart")
        self.rewind.setEnabled(controls.can_rewind)
        self._rewinds_as = self._rewinds_as or self.rewind.toolTip()
        self.rewind.setToolTip(controls.why_no_rewinding or self._rewinds_as)
        self.rewind.setText(REWIND if healthy is None or not run.over else REWIND_TO.format(healthy))
        over = self.restart if healthy is None else self.rewind
        self._make_primary((self.play if not run.over else over) if controls.can_run or controls.led_here else None)
        self._over = run.over
        self._show_controls()
        self.device.setEnabled(controls.led_here)
        self.speed.setEnabled(controls.led_here)
        self._speed_is = self._speed_is or self.speed.toolTip()
        self.speed.setToolTip(controls.why_no_speed or self._speed_is)
        self._show_preset(simulator)

    def _show_preset(self, simulator: Simulator) -> None:
        changed = simulator.requested != simulator.preset.experiment
        title = simulator.preset.title
        self._title = title if len(title) <= LONGEST_TITLE else title[: LONGEST_TITLE - 1] + "…"
        self._mark = " •" if changed else ""
        self._name_preset()

    def _name_preset(self) -> None:
        self.preset.setText(f"{'Preset' if self._is_tight else self._title}{self._mark} {ARROW}")

    def show_device(self, device: str, automatic: str) -> None:
        """Show the device that was asked for; `automatic` is the one that `auto` stands for, once that is known."""
        text = f"{device} ({automatic}) {ARROW}" if device == "auto" and automatic else f"{device} {ARROW}"
        if text != self.device.text():
            self.device.setText(text)

    def _show_speed(self, steps_per_second: float) -> None:
        self.speed_label.setText("max" if steps_per_second == UNLIMITED else f"{steps_per_second:.0f}/s")

    def _lay_out(self) -> None:
        row = QHBoxLayout(self)
        row.setContentsMargins(12, 8, 12, 8)
        row.setSpacing(8)
        for button in (self.play, self.step, self.restart, self.rewind):
            row.addWidget(button)
        self._speed_title = label = QLabel("speed")
        label.setProperty("role", "dim")
        label.setBuddy(self.speed)
        row.addSpacing(8)
        row.addWidget(label)
        row.addWidget(self.speed)
        row.addWidget(self.speed_label)
        row.addWidget(self.pill, 1)
        for button in (self.preset, self.device, self.export):
            row.addWidget(button)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._make_room()

    def show_state_alone(self, alone: bool) -> None:
        """Show only the state of the run and the buttons that go on from there, or everything."""
        self._alone = alone
        for part in (self.step, self.speed, self.speed_label, self.preset, self.device, self.export):
            part.setVisible(not alone)
        self._show_controls()
        self._make_room()

    def _show_controls(self) -> None:
        """Show the buttons that lead the run. Where only its state is shown, a run that is over can be rewound or begun
        again, and any other can be run."""
        for button, shown in ((self.play, not self._over), (self.restart, self._over), (self.rewind, self._over)):
            button.setVisible(shown or not self._alone)

    @property
    def _is_tight(self) -> bool:
        return self.width() < TIGHT * theme.zoom

    def _make_room(self) -> None:
        """Leave the room to the state of the run where there is little. The menus have what is not shown then."""
        self._speed_title.setVisible(self.width() >= ROOMY * theme.zoom and not self._alone)
        self.device.setVisible(not self._is_tight and not self._alone)
        self._name_preset()

    def keep_widths(self) -> None:
        """Keep room for the longest text, so that nothing moves when it changes."""
        for button, longest in (
            (self.play, "Pause"),
            (self.restart, "Restart (9)"),
            (self.rewind, REWIND_TO.format(9999)),
        ):
            now = button.text()
            button.setText(longest)
            button.setFixedWidth(button.sizeHint().width() + (24 if button.icon().isNull() else 4))  # and an icon
            button.setText(now)
        self._make_room()

    def _make_primary(self, button: QPushButton | None) -> None:
        for other in (self.play, self.restart, self.rewind):
            if set_role(other, "primary" if other is button else ""):
                self._restyle()

    def _restyle(self) -> None:
        def role(button: QPushButton) -> str:
            return "on_accent" if button.property("role") == "primary" else "text"

        self.play.setIcon(theme.icon("pause" if self._playing else "play", role(self.play)))
        self.step.setIcon(theme.icon("step"))
        self.restart.setIcon(theme.icon("restart", role(self.restart)))
        self.rewind.setIcon(theme.icon("rewind", role(self.rewind)))
        self.pill.update()
