"""The window: it creates the panels and their controllers, and connects them; drawn_window.py draws into it.

It comes in two parts, so that it appears soon: top bar, knobs and menus at once; plots and pages, which take long to
load, when the first part is visible (`furnishing`). Only app.py knows the window."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from PySide6.QtCore import QCoreApplication, QEvent, QSize, Qt
from PySide6.QtGui import QCloseEvent, QKeyEvent
from PySide6.QtWidgets import QStackedWidget, QWidget

from gradstudio.core import files, presets
from gradstudio.gui import user_settings
from gradstudio.gui.branches import rewind_dialogs
from gradstudio.gui.commands import command_table
from gradstudio.gui.export import file_dialogs
from gradstudio.gui.gallery.gallery_controller import GalleryController
from gradstudio.gui.gallery.gallery_page import GalleryPage
from gradstudio.gui.heartbeat import Heartbeat
from gradstudio.gui.knobs.knob_panel import KnobPanel
from gradstudio.gui.opening_window import OpeningWindow
from gradstudio.gui.services import recent
from gradstudio.gui.services.context import Context
from gradstudio.gui.services.file_jobs import FileJobs
from gradstudio.gui.services.jobs import Jobs
from gradstudio.gui.services.library_reader import LibraryReader
from gradstudio.gui.services.message_bar import MessageBar
from gradstudio.gui.services.past_run import PastRun
from gradstudio.gui.services.simulator_controller import SimulatorController
from gradstudio.gui.shell import menus
from gradstudio.gui.shell.agreement_dialog import AgreementDialog
from gradstudio.gui.shell.figures_bar import FiguresBar
from gradstudio.gui.shell.projector_view import ProjectorView
from gradstudio.gui.shell.top_bar import TopBar
from gradstudio.gui.shell.window_columns import Columns
from gradstudio.gui.theme import theme
from gradstudio.gui.widgets.rows import NO_MARGINS, in_column
from gradstudio.gui.widgets.viewed_step import ViewedStep
from gradstudio.session.machine.device_search import Machine
from gradstudio.session.own_model import Agreement
from gradstudio.session.remote.remote_backend import RemoteBackend, chosen
from gradstudio.session.simulator import Simulator

FIRST_SIZE = QSize(1440, 900)  # px, and more on a screen that has it
SHARE = 0.8  # of a large screen that the first window takes
FRAME = QSize(16, 40)  # largest frame of a desktop around a window; its actual size is known only when it is shown
CLOSING = 1.5  # seconds allowed for all threads to end, together
LAST = 0.3  # at least this many of them for those besides the run's own


class Window(OpeningWindow):
    def __init__(self, preset: presets.Preset, *, gallery: bool = False) -> None:
        """`gallery`: whether the gallery is shown first, instead of the run of the preset."""
        super().__init__(preset)
        library = files.user_library()
        backend = chosen()
        self.simulator = Simulator(preset, library, backend)
        self.simulator.snapshots.resize(rewind_dialogs.budget())
        self.machine = Machine(backend.hello if isinstance(backend, RemoteBackend) else None)
        self.message = MessageBar()
        self.controls = SimulatorController(self.simulator, self.message)
        self.jobs = Jobs(self.message)
        self.files = FileJobs(self.jobs, self.message)
        self.looked = ViewedStep()
        self.past = PastRun(self.looked)
        self.context = Context(
            self, self.simulator, self.controls, self.message, self.jobs, self.files,
            LibraryReader(library, self.jobs, self.message), self.show_large, self.close_large, self.looked,
        )  # fmt: skip
        self.top, self.figures = TopBar(), FiguresBar()
        self.simulator.set_speed(self.top.speed.speed)
        with theme.together():
            self.knobs, self.gallery_page = KnobPanel(), GalleryPage(at_first=gallery)
        self.columns = Columns(self.knobs)
        self.projector = ProjectorView(self, self.top, self.columns, self.figures)
        self.gallery = GalleryController(self.context, self.gallery_page)
        self._gallery_first = gallery
        self._remember_run_behind_gallery()
        self.commands = command_table.table(
            self.context, machine=self.machine, columns=self.columns, speed=self.top.speed, knobs=self.knobs,
            plots=lambda: self.plots, toggle_gallery=self.toggle_gallery, in_gallery=self.gallery_page.isVisible,
            show_plots=self.show_plots, projector=self.projector,
        )  # fmt: skip
        self.message.leave_written(self.figures.show_written)
        self.furnished = False
        self._lay_out()
        self._connect_first_part()
        self._restore()
        self._show_first_part()

    def furnish(self) -> None:
        """Add the plots and the pages at once. The program does it in turns (shell/staged_opening.py)."""
        for _ in self.furnishing():
            pass

    def furnishing(self) -> Iterator[None]:
        """Add the plots and the pages, a part in each iteration. None takes 0.1 s, and all appear together. Before the
        end the window cannot be used."""
        from gradstudio.gui import late_imports

        if self._gallery_first:
            yield from self.gallery_page.create_cards()
        self.plots = late_imports.PlotStack(self.looked)
        yield from theme.each_together(self.plots.furnishing())
        self.side = late_imports.SidePanel()
        yield from theme.each_together(self.side.furnishing(self.jobs))
        self.diagnosis = self.side.diagnosis
        self.findings, self.lesson = self.diagnosis.findings, self.side.lesson_page.lesson
        self.projector.furnish(self.plots, self.lesson)
        # The least important: the key of the picture.
        self.message.lay_over(self.plots.layer_card, self.gallery_page, self.columns.middle.frame)
        self._make_controllers()
        self._connect_second_part()
        yield
        self.columns.setUpdatesEnabled(False)  # what follows appears together
        self.columns.fill(self.plots, self.side)  # whoever is notified that a page is shown listens now
        if self.simulator.preset.lesson and self.side.page == "diagnosis":
            self.columns.show_page("lesson")
        self.heartbeat = Heartbeat(self._beat, self)
        self.plots.setFocusProxy(self.plots.loss.widget)
        self.plots.setFocus()  # so that Space runs
        yield
        self.furnished = True
        if self._gallery_first:
            self.show_gallery()
        self.refresh()
        QCoreApplication.sendPostedEvents(None, QEvent.Type.LayoutRequest)
        self.columns.setUpdatesEnabled(True)
        if problem := user_settings.problem():
            self.message.show_error(problem)

    def _make_controllers(self) -> None:
        """Connect each panel to the simulator."""
        from gradstudio.gui import late_imports

        self.parent_twin_overlay = late_imports.ParentTwinOverlay(self.plots.overlays)
        self.runs = late_imports.RunsController(self.context, self.side.runs, self.plots.overlays)
        self.branches = late_imports.BranchesController(
            self.context, self.side.branches, self.plots.overlays, self.runs
        )  # fmt: skip
        self.gauges = late_imports.GaugesController(self.simulator, self.side.gauges)
        self.layer = late_imports.LayerController(self.context, self.plots)
        self.cliff = late_imports.CliffController(self.context, self.plots)
        self.time_steps = late_imports.TimeStepController(self.context, self.plots)
        self.memory = late_imports.MemoryController(self.context, self.side.memory)
        self.map = late_imports.MapController(self.context, self.side.map)
        self.game = late_imports.Game(self.context)
        self.fixes = late_imports.FixesController(
            self.context, self.diagnosis, lambda: self.lesson.progress
        )  # fmt: skip
        self.studio_file = late_imports.StudioFileWatch(self.simulator, self.controls, self.message)
        late_imports.plot_menu.attach(self.context, self.plots)

    def _measure_gauges(self) -> None:
        """Rewind to where every gauge can be measured: the last healthy step, or the last one."""
        healthy = self.controls.possible.healthy_step
        if self.controls.possible.can_rewind:
            self.controls.rewind(len(self.simulator.run.history) - 1 if healthy is None else healthy)
        else:
            self.message.show_news("This run cannot be rewound, and gauges need its model: press Restart.")

    # ---- inside

    def _lay_out(self) -> None:
        self.setAcceptDrops(True)
        self.setAnimated(False)  # nothing docks here; Qt would animate its one widget at every change of the layout
        self.setMinimumSize(1080, 620)
        body = QWidget()
        in_column(self.top, (self.columns, 1), self.figures, of=body, margins=NO_MARGINS, spacing=0)
        self.pages = QStackedWidget()
        self.pages.addWidget(body)
        self.pages.addWidget(self.gallery_page)
        self.pages.setCurrentIndex(int(self._gallery_first))
        self.pages.currentChanged.connect(self._show_title)
        self.setCentralWidget(self.pages)
        self._show_title()
        theme.apply_style(self.menuBar())

    def _connect_first_part(self) -> None:
        theme.changed.connect(self.top.keep_widths)
        theme.changed.connect(self.columns.fit)
        top, controls = self.top, self.controls
        menus.build(self, self.commands, {"preset": top.preset, "device": self.knobs.device, "export": top.export})
        for button, command in (
            (top.play, "run"), (top.step, "step"), (top.restart, "restart"), (top.rewind, "rewind_to_healthy"),
            (self.knobs.compare, "compare"),
        ):  # fmt: skip
            self.commands.attach(button, command)
        keys = self.commands.keys("faster", "slower")
        top.speed.setToolTip(f"Sets the speed, from one step a second to unlimited ({keys})")
        top.speed.speed_changed.connect(self.simulator.set_speed)
        controls.title_changed.connect(self._show_title)
        controls.agreement_asked.connect(self._ask_agreement)
        controls.file_asked.connect(self.open_file)
        controls.file_opened.connect(recent.remember_file)
        controls.knobs_changed.connect(self.knobs.forget)
        self.knobs.asked.connect(controls.set_own)
        self.knobs.slid.connect(controls.slide_knob)

    def _start_over(self) -> None:
        """Show the beginning of the form, and the lesson or the state of the run, for a preset that was opened."""
        self._page_preset = self.simulator.preset.id
        self.knobs.show_top()
        self.columns.middle.show_plots()
        self.columns.show_page("lesson" if self.simulator.preset.lesson else "diagnosis")
        self.plots.setFocus()  # and not in a field of the form, where Space would not run

    def _ask_agreement(self, asked: Agreement, agreed: Callable[[], object]) -> None:
        AgreementDialog(self, asked, agreed).open()

    def _connect_second_part(self) -> None:
        controls = self.controls
        controls.refresh_asked.connect(self.refresh)
        controls.preset_opened.connect(self._start_over)
        self.lesson.finished.connect(self.gallery.finish)
        self.lesson.predicted.connect(self.plots.setFocus)  # so that Space runs
        self.gallery.left.connect(self.show_plots)
        self.game.changed.connect(self.gallery_page.game.show_state)
        self.gallery_page.game.clicked.connect(self.game.press)
        self.gallery_page.number_asked.connect(self.game.offer)
        self.game.tell()
        controls.open_asked.connect(self.runs.open)
        controls.baseline_asked.connect(self.runs.baseline.pin)
        self.runs.member_asked.connect(self.branches.go)
        self.runs.member_ticked.connect(self.branches.tick)
        self.plots.chips.compare_asked.connect(self.runs.compare_drawn)
        self.plots.rewind_asked.connect(controls.rewind)
        self.plots.gradient_norm.max_norm_moved.connect(controls.set_max_norm)
        self.plots.layer_card.cliff.picture.max_norm_moved.connect(controls.set_max_norm)
        self.findings.step_chosen.connect(controls.rewind)
        self.findings.remedy_chosen.connect(controls.apply_remedy)
        self.side.code.save_asked.connect(lambda: file_dialogs.save_code(self.context, self.side.code.text))
        self.side.gauges.measure_asked.connect(self._measure_gauges)
        for page, button in self.side.tabs.buttons.items():
            self.commands.explain(button, f"page_{page}")

    def _restore(self) -> None:
        geometry = user_settings.GEOMETRY.get()
        if geometry is None or not self.restoreGeometry(geometry):
            self.resize(first_size(self.screen().availableSize()))
        self.columns.restore()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Space and self.pages.currentIndex() == 0:
            self.controls.run_or_pause()
            return
        # no widget on it has handled the key
        if event.key() == Qt.Key.Key_Escape and self.columns.middle.page is not None:
            self.close_large()
            return
        if self.furnished and self.pages.currentIndex() == 0 and self.looked.press(event.key()):
            return
        super().keyPressEvent(event)

    def closeEvent(self, event: QCloseEvent) -> None:
        self.projector.leave()
        user_settings.GEOMETRY.set(self.saveGeometry())
        if not self.furnished:  # nothing has begun
            event.accept()
            return
        if self.top.isHidden():
            self.close_large()  # it ends its runs, and the columns are saved as they were before it
        self.columns.save()
        self.top.speed.save()
        self.hide()
        end = time.monotonic() + CLOSING
        for each in (
            self.game, self.fixes, self.layer, self.cliff, self.time_steps, self.memory, self.map, self.runs
        ):  # fmt: skip
            each.stop()  # their work ends while the run does
        ended = self.simulator.close(CLOSING)
        ended = self.jobs.close(max(end - time.monotonic(), LAST)) and ended
        self.heartbeat.stop(alone=ended and not self.machine.busy)
        event.accept()


def first_size(room: QSize) -> QSize:
    """Return the initial size of a window, on a screen with this much room."""
    return FIRST_SIZE.expandedTo(room * SHARE).boundedTo(room - FRAME)
