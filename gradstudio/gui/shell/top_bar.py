"""The bar at the top: the run's controls, its state in one line, and the menus for preset and export."""

from __future__ import annotations

from collections.abc import Mapping

from PySide6.QtCore import QSize, Qt
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QLabel, QMenu, QPushButton, QWidget

from gradstudio.core.experiment import find_knob
from gradstudio.core.knobs import Value, value_text
from gradstudio.gui.knobs.essentials import short_label
from gradstudio.gui.services.possible_actions import PossibleActions
from gradstudio.gui.shell.speed_slider import SpeedSlider
from gradstudio.gui.shell.state_pill import StatePill
from gradstudio.gui.theme import theme
from gradstudio.gui.widgets.change_watch import ChangeWatch
from gradstudio.gui.widgets.menu_arrow import add_arrow
from gradstudio.gui.widgets.roles import set_role
from gradstudio.gui.widgets.rows import in_row
from gradstudio.session.running.worker_commands import UNLIMITED
from gradstudio.session.simulator import MORE_STEPS, Simulator

REWIND, REWIND_TO, REWIND_WITHOUT = "Rewind…", "Rewind to {:,}", "Rewind without {}"
ROOMY = 1360  # px of the bar from which there is room for the word "speed"
CRAMPED = 900  # px of the bar below which the speed and the menus give way too
ICON = 16  # px at normal text
TIGHT = 1200  # px of the bar below which the name of the preset gives way to the state of the run
LONGEST_TITLE = 26  # characters of a preset's title
MARK = " •"  # after the name of a preset from which knobs differ
LONGEST_CHANGE = 10  # characters of a change on the button


class TopBar(QWidget):
    """The bar at the top. Its buttons get their tooltips and actions from the table of commands."""

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
        self.pill = StatePill()
        self.preset, self.export = QPushButton(), QPushButton("Export")
        for button, name in ((self.preset, "Preset"), (self.export, "Export")):
            button.setMenu(QMenu(button))
            add_arrow(button)
            button.setAccessibleName(name)
        self.preset.setToolTip("Lists the presets; a dot means that knobs differ from the loaded preset")
        self.export.setToolTip("Writes the run as a report, a script, an experiment or a table")
        for button in (self.play, self.step, self.restart, self.rewind, self.preset, self.export):
            button.setFocusPolicy(
                Qt.FocusPolicy.TabFocus
            )  # so that Space after a click runs and pauses, whatever was clicked
        self._playing: bool | None = None
        self._told: dict[QWidget, str] = {}  # the text of each button in the table of commands
        self._alone = False  # whether only the state of the run is shown, and what continues from there
        self._begun = False  # whether there is something to restart, to rewind and to export
        for button in (self.restart, self.rewind, self.export):  # nothing moves when they are shown
            policy = button.sizePolicy()
            policy.setRetainSizeWhenHidden(True)
            button.setSizePolicy(policy)
        self._over = False  # whether the run on view is over
        self._title = self._mark = ""  # of the preset; the mark means that knobs differ from it
        self._named: tuple = ()  # the text of its button, and its width
        self._watch = ChangeWatch()
        self._lay_out()
        theme.apply_style(self)
        self.keep_widths()
        theme.changed.connect(self._restyle)
        self._restyle()

    def refresh(self, simulator: Simulator, possible: PossibleActions) -> None:
        """Show the state of the run; cheap when nothing has changed."""
        run, going, healthy = simulator.run, simulator.going, possible.healthy_step
        if not self._watch.has_changed(
            run, run.status, going, going.status, simulator.has_begun, simulator.requested, run.in_force,
            simulator.preset, healthy,
        ):  # fmt: skip
            return
        if possible.playing != self._playing:
            self._playing = possible.playing
            self._restyle()
        waiting = sum(run.over or not simulator.requested.find_knob(name).live for name in simulator.waiting())
        step, changes = possible.last_changes
        self.play.setText(possible.next_steps)
        self.restart.setText(f"Restart ({waiting})" if waiting else "Restart")
        self.rewind.setText(REWIND if healthy is None or not run.over else _rewinding(healthy, changes))
        over = self.play if possible.can_run else self.restart if healthy is None else self.rewind
        self._make_primary(
            (self.play if not run.over else over) if possible.can_run or possible.is_trained_here else None
        )
        without = f"Rewinds to step {step:,} and takes the change that was made there back" if changes else ""
        for button, able, why, does in (
            (self.play, possible.can_run, possible.why_no_run, possible.about_continuing),
            (self.step, possible.can_step, possible.why_no_step, ""),
            (self.restart, possible.has_begun, possible.why_no_restart, ""),
            (self.rewind, possible.can_rewind, possible.why_no_rewinding, without if run.over else ""),
            (self.speed, possible.is_trained_here, possible.why_no_speed, ""),
        ):
            button.setEnabled(able)
            self._tell(button, does if able else why)
        self._begun, self._over = simulator.has_begun, run.over
        self._show_controls()
        self._mark = MARK if simulator.requested != simulator.preset.experiment else ""
        self._name_preset()

    def _tell(self, button: QWidget, instead: str) -> None:
        """Give a button its help, or why it is grey, or its current effect."""
        usual = self._told.setdefault(button, button.toolTip())
        text = instead or usual
        if text != button.toolTip():
            button.setToolTip(text)
            button.setAccessibleDescription(text)

    def show_title(self, title: str) -> None:
        """Show the title of the preset."""
        self._title = title if len(title) <= LONGEST_TITLE else title[: LONGEST_TITLE - 1] + "…"
        self._name_preset()

    def _name_preset(self) -> None:
        name = "Preset" if self._is_tight else self._title
        named = name, self._mark, theme.zoom, self.preset.sizeHint().width()
        if named == self._named:
            return
        self.preset.setText(f"{name}{MARK}")
        self.preset.setMinimumWidth(self.preset.sizeHint().width())  # so that nothing moves when the mark comes
        self.preset.setText(f"{name}{self._mark}")
        self._named = name, self._mark, theme.zoom, self.preset.sizeHint().width()

    def _show_speed(self, steps_per_second: float) -> None:
        self.speed_label.setText("max" if steps_per_second == UNLIMITED else f"{steps_per_second:.0f}/s")

    def _lay_out(self) -> None:
        row = in_row(self.play, self.step, self.restart, self.rewind, of=self, margins=(12, 8, 12, 8), spacing=8)
        self._speed_title = label = QLabel("speed")
        label.setProperty("role", "dim")
        label.setBuddy(self.speed)
        row.addSpacing(8)
        row.addWidget(label)
        row.addWidget(self.speed)
        row.addWidget(self.speed_label)
        row.addWidget(self.pill, 1)
        for button in (self.preset, self.export):
            row.addWidget(button)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._make_room()

    def show_state_alone(self, alone: bool) -> None:
        """Show only the state of the run and the buttons that continue from there, or everything."""
        self._alone = alone
        self.step.setVisible(not alone)
        self._make_room()

    def _show_controls(self) -> None:
        """Show the buttons that control the run. If only its state is shown, a finished run can be rewound or
        restarted, and any other can be run."""
        for button, shown in (
            (self.play, self.play.isEnabled()),
            (self.restart, self._over),
            (self.rewind, self._over),
        ):
            button.setVisible(shown if self._alone else self._begun or button is self.play)
        self.export.setVisible(self._begun and not self._alone and not self._is_cramped)
        policy = self.export.sizePolicy()
        policy.setRetainSizeWhenHidden(not self._is_cramped)
        self.export.setSizePolicy(policy)

    @property
    def _is_tight(self) -> bool:
        return self.width() < TIGHT * theme.zoom

    @property
    def _is_cramped(self) -> bool:
        return self.width() < CRAMPED * theme.zoom

    def _make_room(self) -> None:
        """Leave the room to the state of the run if there is little. Hidden commands are then in the menus."""
        self._speed_title.setVisible(self.width() >= ROOMY * theme.zoom and not self._alone)
        self.speed_label.setMinimumWidth(round(44 * theme.zoom))
        for part in (self.speed, self.speed_label, self.preset):
            part.setVisible(not self._is_cramped and not self._alone)
        self._show_controls()
        self._name_preset()

    def keep_widths(self) -> None:
        """Keep room for the longest text, so that nothing moves when it changes."""
        for button, longest in (
            (self.play, f"{MORE_STEPS} more steps"),
            (self.restart, "Restart (9)"),
            (self.rewind, REWIND_WITHOUT.format("lr = 30")),
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

        size = round(ICON * theme.zoom)
        for button in (self.play, self.step, self.restart, self.rewind):
            button.setIconSize(QSize(size, size))
        self.play.setIcon(theme.icon("pause" if self._playing else "play", role(self.play)))
        self.step.setIcon(theme.icon("step"))
        self.restart.setIcon(theme.icon("restart", role(self.restart)))
        self.rewind.setIcon(theme.icon("rewind", role(self.rewind)))
        self.pill.update()


def _rewinding(healthy: int, changes: Mapping[str, tuple[Value, Value]]) -> str:
    """Return the label for rewinding a run that diverged: without its last change if that came right before."""
    if not changes:
        return REWIND_TO.format(healthy)
    (name, (_, value)), *others = changes.items()
    called = short_label(find_knob(name))
    told = (f"{called} = {value_text(value)}", called) if not others else ()
    return REWIND_WITHOUT.format(next((each for each in told if len(each) <= LONGEST_CHANGE), "change"))
