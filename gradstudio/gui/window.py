"""The window: panels around a simulator. It draws what the simulator holds and hands on what a person asks for.

It comes in two parts, so that it is soon there: top bar, knobs and menus at once, and plots and pages, which take as long to load, when
a person sees the first (`furnish`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from PySide6.QtCore import QByteArray, QCoreApplication, QEvent, QSettings, QSize, Qt
from PySide6.QtGui import QCloseEvent, QDragEnterEvent, QDropEvent, QKeyEvent
from PySide6.QtWidgets import QMainWindow, QVBoxLayout, QWidget

from gradstudio.core import compiled, files, presets
from gradstudio.core.experiment import parse_assignment
from gradstudio.core.knobs import KnobError, Value, format_value
from gradstudio.core.text import plural
from gradstudio.gui import about, file_dialogs, menus, rewinding
from gradstudio.gui.errands import Errands
from gradstudio.gui.figures_bar import FiguresBar
from gradstudio.gui.heartbeat import Heartbeat
from gradstudio.gui.knob_panel import KnobPanel
from gradstudio.gui.sides import Sides
from gradstudio.gui.theme import theme
from gradstudio.gui.top_bar import AT_FIRST, TopBar
from gradstudio.gui.watch import Watch
from gradstudio.session.branches import last_healthy_step
from gradstudio.session.machine import Machine
from gradstudio.session.run import Run
from gradstudio.session.simulator import Simulator
from gradstudio.session.state import describe

FIRST_SIZE = QSize(1440, 900)
FRAME = QSize(16, 40)  # that a desktop puts around a window, at most; it is known only once the window is shown
CLOSING = 1.5  # seconds that a training thread gets to end
DESK_CLOSING = 0.4  # seconds that what is asked of the library gets to end
FIGURES_EVERY, WORDS_EVERY = 0.2, 1.0  # seconds
LEFT_STAYS = 20_000  # ms that a run which was left is offered


class Window(QMainWindow):
    def __init__(self, preset: presets.Preset) -> None:
        super().__init__()
        self._library = files.user_library()
        self.simulator = Simulator(preset, self._library)
        self.simulator.set_speed(AT_FIRST)
        self.simulator.snapshots.resize(rewinding.budget())
        self.machine = Machine()
        self.top, self.knobs, self.figures = TopBar(), KnobPanel(), FiguresBar()
        self.sides = Sides(self.knobs)
        self.errands = Errands()
        self._library_problem = ""  # that was told
        self._reported: Run | None = None  # the run whose failure was told
        self._healthy: tuple[Run | None, int | None, int | None] = (None, None, None)  # of which run, which broke where
        self._state, self._asked, self._shown = Watch(), Watch(), None
        self._figures_due = self._words_due = 0.0
        self._devices_shown = False
        self.furnished = False
        self._lay_out()
        theme.changed.connect(self.top.keep_widths)
        theme.changed.connect(self.sides.fit)
        menus.build(self)
        self._restore()
        self.top.refresh(self.simulator, None)
        self.top.show_device(str(preset.experiment.run.device), "")
        state = describe(self.simulator.run)
        self.top.pill.show_state(state.tone, state.headline)
        self.figures.refresh(self.simulator.run)
        self.knobs.refresh(self.simulator)

    def furnish(self) -> None:
        """Put in the plots and the pages. Before it is done the window cannot be used: app.py keeps from it what a person does."""
        # pyqtgraph comes with these, for which the first paint does not wait.
        from gradstudio.gui import plot_menu
        from gradstudio.gui.branches_desk import BranchesDesk
        from gradstudio.gui.companions import Companions
        from gradstudio.gui.fixes_desk import FixesDesk
        from gradstudio.gui.gauges_desk import GaugesDesk
        from gradstudio.gui.librarian import Librarian
        from gradstudio.gui.message_bar import MessageBar
        from gradstudio.gui.plots.stack import PlotStack
        from gradstudio.gui.runs_desk import RunsDesk
        from gradstudio.gui.side_panel import SidePanel

        self.plots, self.side = PlotStack(), SidePanel()
        self.message = MessageBar(self.plots.scale_and_rate)  # of all the plots the one that is missed least
        self.words = self.side.words
        self.happening, self.lesson = self.words.happening, self.words.lesson
        self.companions = Companions(self.plots.overlays)
        self.desk = RunsDesk(self, Librarian(self._library))
        self.branches = BranchesDesk(self)
        self.gauges = GaugesDesk(self)
        self.fixes = FixesDesk(self)
        plot_menu.attach(self)
        self._connect()
        self.sides.fill(self.plots, self.side)  # whoever is told that a page is shown listens now
        self.heartbeat = Heartbeat(self.refresh, self)
        self.plots.loss.widget.setFocus()  # so that Space runs
        self.furnished = True
        self.refresh()
        QCoreApplication.sendPostedEvents(None, QEvent.Type.LayoutRequest)
        self.words.balance()  # now that its texts know how wide they are

    # ---- what a person asks for

    def toggle(self) -> None:
        """Run, or pause."""
        going = self.simulator.going
        if going.status in ("running", "starting") and self.simulator.started:
            self.simulator.pause()
        elif not going.over or self.simulator.can_resume:
            self.simulator.play()

    def rewind(self, step: int) -> None:
        """Go back to before a step, or forth to one that was made already."""
        try:
            self.simulator.rewind(step)
        except KnobError as fault:
            self.message.show_error(str(fault))
        self.knobs.forget()

    def rewind_to_health(self) -> None:
        """Go back to the last step whose gradient norm was usual; where nothing broke, to a step that a person chooses."""
        step = self.healthy_step
        if step is None:
            rewinding.ask_step(self)
        else:
            self.rewind(step)

    @property
    def healthy_step(self) -> int | None:
        """The last healthy step of a run that broke."""
        run = self.simulator.run
        if self._healthy[:2] != (run, run.first_nonfinite_step):
            self._healthy = (run, run.first_nonfinite_step, last_healthy_step(run))
        return self._healthy[2]

    def undo(self) -> None:
        """Take the latest change of a knob back."""
        taken = self.simulator.undo()
        self.knobs.forget()
        if taken:
            self.message.show_news(f"Taken back: {' and '.join(f'{name} = {format_value(value)} again' for name, value in taken.items())}.")
        else:
            self.message.show_news("There is no change of a knob left to take back.")

    def step(self) -> None:
        if not self.simulator.going.over:
            self.simulator.step()

    def restart(self) -> None:
        self.message.hide()
        self.simulator.restart()

    def stop(self) -> None:
        self.simulator.stop()

    def ask(self, name: str, value: Value) -> None:
        """Set a knob; what is not allowed is said and changes nothing, and what had to change with it is said too."""
        try:
            others = self.simulator.set(name, value)
        except KnobError as fault:
            self.message.show_error(str(fault))
        else:
            if others:
                told = " and ".join(f"{other} = {format_value(new)}" for other, new in others.items())
                self.message.show_news(f"{name} = {format_value(value)} needs {told}, so {'that was' if len(others) == 1 else 'those were'} set too.")
        self.knobs.forget()

    def slide(self, name: str, value: Value, by_keys: bool) -> None:
        """Set a knob to where its slider came to, or to what is near it and goes with the other knobs."""
        self.ask(name, self.simulator.nearest(name, value, onwards=by_keys))

    def limit_norm(self, max_norm: float) -> None:
        """The line of the norm plot was dragged; where nothing is clipped yet, that begins it."""
        if self.simulator.requested.clipping.kind == "none":
            self.ask("clipping.kind", "norm")
        self.ask("clipping.max_norm", max_norm)

    def compare(self) -> None:
        """Hold the next step's accumulated gradient against that of one large batch."""
        if self.simulator.run.over:
            self.message.show_error("The run is over, so there is no next step to compare: press Restart first.")
        else:
            self.simulator.compare()

    def ask_remedy(self, remedy: str) -> None:
        for name, value in map(parse_assignment, remedy.split()):
            self.ask(name, value)

    def reset_knobs(self) -> None:
        self.simulator.reset()
        self.knobs.forget()

    def open_preset(self, source: str | Path) -> None:
        """Load a preset; one that cannot be read is said and changes nothing."""
        try:
            preset = presets.load(source)
        except presets.PresetError as fault:
            self.message.show_error(str(fault))
            return
        if preset == self.simulator.preset and self.simulator.started:
            self.message.hide()  # it is there, with its run
        else:
            self.take_up(preset)

    def take_up(self, preset: presets.Preset) -> None:
        """Load a preset that was read. A run that goes is stopped, and said to be kept."""
        self._leave(lambda: self.simulator.load(preset))

    def show_run(self, run: Run, relatives: Sequence[Run] = ()) -> None:
        """Show a run of the library that is over, with its knobs asked for, and others of its family."""
        self._leave(lambda: self.simulator.open(run, relatives))

    def save_preset_as(self, title: str) -> None:
        """Save the knobs as they are set as a preset of the user's, and take it up."""
        old = self.simulator.preset  # whose lesson and promise are about other knobs
        preset = presets.Preset(id=old.id, title=title.strip(), experiment=self.simulator.requested, timeline=old.timeline, path=old.path)
        try:
            path = presets.save_user_preset(preset)
            self.simulator.rename(presets.read(path))
        except presets.PresetError as fault:
            self.message.show_error(str(fault))
            return
        self.setWindowTitle(f"{preset.title} — GradStudio")
        self.knobs.forget()
        self.message.show_news(f"Saved as {path}")

    def find_knob(self) -> None:
        self.knobs.show()
        self.knobs.search.setFocus()
        self.knobs.search.selectAll()

    def toggle_full_screen(self) -> None:
        self.showNormal() if self.isFullScreen() else self.showFullScreen()

    def show_keys(self) -> None:
        about.show_keys(self)

    def show_about(self) -> None:
        about.show_about(self)

    # ---- drawn about 30 times a second

    def refresh(self, *, whole: bool = False) -> None:
        """Show everything as it stands: the plots at every call, words once a second and figures and all else five times, so that they
        can be read, or when something was done; or, `whole`, everything now."""
        run, now = self.simulator.run, time.monotonic()
        drawable = not compiled.busy()  # for what is compiled nobody waits here
        new = self._state.changed(run, run.status, len(run.findings)) or whole
        if new or self.knobs.stale or self._asked.changed(run.in_force, self.simulator.requested) or now >= self._figures_due:
            self._figures_due = now + FIGURES_EVERY
            self.figures.refresh(run)
            if drawable:
                self.companions.refresh(self.simulator)
            self.top.refresh(self.simulator, self.healthy_step)
            self.knobs.refresh(self.simulator)
            self.side.code.refresh(self.simulator)
            self.fixes.refresh()
            self._tell()
        if drawable:
            self.plots.refresh(self.simulator)
        if new or now >= self._words_due:
            self._words_due = now + WORDS_EVERY
            state = describe(run, self.simulator.family.parent(run))
            self.top.pill.show_state(state.tone, state.headline)
            self.happening.refresh(run, state, self.healthy_step)
            self.lesson.refresh(run, self.simulator.requested)
            (self.words.balance if new else self.words.balance_soon)()
            self.branches.refresh()
            self.gauges.refresh()
        if run is not self._shown:
            self._shown = run
            self.desk.mark()

    def start_twins(self, name: str, value: Value) -> None:
        """Begin again, with a twin beside the run that has this value; KnobError where it cannot."""
        self._leave(lambda: self.simulator.start_twins(name, value))

    def _tell(self) -> None:
        """News that need a line of their own: a failed run, a file written, what torch has found."""
        run = self.simulator.run
        if run.status == "failed" and run is not self._reported:
            self._reported = run
            self.message.show_error(run.message, self.simulator.failure)
        for refusal in self.simulator.refusals():
            self.message.show_error(refusal)
        self.errands.tell(self.message)
        if self.simulator.library_problem != self._library_problem:
            self._library_problem = self.simulator.library_problem
            if self._library_problem:
                self.message.show_error(self._library_problem)
        if self.machine.ready and not self._devices_shown:
            self._devices_shown = True
            self.heartbeat.settle()  # with torch
            if self.machine.problem:
                self.message.show_error(self.machine.problem)
        self.top.show_device(str(self.simulator.requested.run.device), self.machine.automatic)

    # ---- inside

    def _leave(self, load: Callable[[], object]) -> None:
        """Have the simulator take up something else; the run that went until now can be had back from the library."""
        left = self.simulator.run if self.simulator.started and not self.simulator.run.over else None
        self.message.hide()
        load()
        self.setWindowTitle(f"{self.simulator.preset.title} — GradStudio")
        self.knobs.forget()
        if left is not None and not self.simulator.library_problem:
            told = f"{left.title} was stopped after {plural(len(left.history), 'step', 'steps')} and is kept in the library."
            self.message.show_news(told, action=("Open it again", lambda: self.desk.open(left.id)), stay=LEFT_STAYS)

    def _lay_out(self) -> None:
        self.setWindowTitle(f"{self.simulator.preset.title} — GradStudio")
        self.setAcceptDrops(True)
        self.setMinimumSize(1080, 620)
        body = QWidget()
        rows = QVBoxLayout(body)
        rows.setContentsMargins(0, 0, 0, 0)
        rows.setSpacing(0)
        rows.addWidget(self.top)
        rows.addWidget(self.sides, 1)
        rows.addWidget(self.figures)
        self.setCentralWidget(body)

    def _connect(self) -> None:
        self.top.play.clicked.connect(self.toggle)
        self.top.step.clicked.connect(self.step)
        self.top.rewind.clicked.connect(self.rewind_to_health)
        self.plots.rewind_asked.connect(self.rewind)
        self.happening.step_chosen.connect(self.rewind)
        self.top.restart.clicked.connect(self.restart)
        self.top.speed_changed.connect(self.simulator.set_speed)
        self.knobs.asked.connect(self.ask)
        self.knobs.slid.connect(self.slide)
        self.knobs.compare_asked.connect(self.compare)
        self.side.code.save_asked.connect(lambda: file_dialogs.save_code(self))
        self.happening.remedy_chosen.connect(self.ask_remedy)
        self.plots.gradient_norm.max_norm_moved.connect(self.limit_norm)

    def _restore(self) -> None:
        settings = QSettings()
        geometry = settings.value("geometry")
        if not (isinstance(geometry, QByteArray) and self.restoreGeometry(geometry)):
            self.resize(first_size(self.screen().availableSize()))
        self.sides.restore(settings)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Space:
            self.toggle()
            return
        super().keyPressEvent(event)

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        if event.mimeData().hasUrls():
            event.acceptProposedAction()

    def dropEvent(self, event: QDropEvent) -> None:
        paths = [Path(url.toLocalFile()) for url in event.mimeData().urls() if url.isLocalFile()]
        if len(paths) == 1 and paths[0].suffix == ".toml":
            self.open_preset(paths[0])
        else:
            self.message.show_error("Only a single preset, a file that ends in .toml, can be dropped here.")

    def closeEvent(self, event: QCloseEvent) -> None:
        settings = QSettings()
        settings.setValue("geometry", self.saveGeometry())
        if not self.furnished:  # nothing has begun
            event.accept()
            return
        self.sides.save(settings)
        self.hide()
        self.fixes.stop()  # the trials end while the run does
        ended = self.simulator.close(CLOSING)
        ended = self.fixes.close(DESK_CLOSING) and ended
        ended = self.desk.close(DESK_CLOSING) and ended
        ended = self.errands.close() and ended
        self.heartbeat.stop(alone=ended and not self.machine.busy)
        event.accept()


def first_size(room: QSize) -> QSize:
    """The size of a window that was never opened before, on a screen with so much room."""
    return FIRST_SIZE.boundedTo(room - FRAME)
