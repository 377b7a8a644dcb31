"""What the window draws: the state of its simulator, about 30 times a second, a part at a time."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING

from PySide6.QtWidgets import QMainWindow, QStackedWidget

from gradstudio.core import jit, presets
from gradstudio.gui.frame_budget import Every
from gradstudio.gui.gallery.gallery_page import GalleryPage
from gradstudio.gui.heartbeat import Heartbeat
from gradstudio.gui.knobs.knob_panel import KnobPanel
from gradstudio.gui.services.jobs import Jobs
from gradstudio.gui.services.message_bar import MessageBar
from gradstudio.gui.services.past_run import PastRun
from gradstudio.gui.services.simulator_controller import SimulatorController
from gradstudio.gui.shell.figures_bar import FiguresBar
from gradstudio.gui.shell.top_bar import TopBar
from gradstudio.gui.shell.window_columns import Columns
from gradstudio.gui.theme import theme
from gradstudio.gui.widgets.change_watch import ChangeWatch
from gradstudio.gui.widgets.viewed_step import ViewedStep
from gradstudio.session.course.lesson_progress import Progress
from gradstudio.session.machine.device_search import Machine
from gradstudio.session.record.run import Run
from gradstudio.session.record.run_outcome import is_critical
from gradstudio.session.simulator import Simulator
from gradstudio.session.words.run_state import describe

if TYPE_CHECKING:
    from gradstudio.gui import late_imports
    from gradstudio.gui.diagnosis.diagnosis_panel import DiagnosisPanel
    from gradstudio.gui.diagnosis.findings_panel import FindingsPanel
    from gradstudio.gui.diagnosis.lesson_panel import LessonPanel

TURN = 0.01  # seconds of a beat after which the rest waits for the next one


class DrawnWindow(QMainWindow):
    """A window that shows the state of its simulator; its subclass creates the parts."""

    simulator: Simulator
    machine: Machine
    message: MessageBar
    controls: SimulatorController
    jobs: Jobs
    looked: ViewedStep
    past: PastRun
    top: TopBar
    figures: FiguresBar
    knobs: KnobPanel
    pages: QStackedWidget  # the runs, or the gallery
    gallery_page: GalleryPage
    furnished: bool
    columns: Columns
    heartbeat: Heartbeat
    plots: late_imports.PlotStack
    side: late_imports.SidePanel
    diagnosis: DiagnosisPanel
    findings: FindingsPanel
    lesson: LessonPanel
    parent_twin_overlay: late_imports.ParentTwinOverlay
    runs: late_imports.RunsController
    branches: late_imports.BranchesController
    gauges: late_imports.GaugesController
    layer: late_imports.LayerController
    cliff: late_imports.CliffController
    time_steps: late_imports.TimeStepController
    memory: late_imports.MemoryController
    map: late_imports.MapController
    fixes: late_imports.FixesController

    def __init__(self, preset: presets.Preset) -> None:
        super().__init__()
        self._about_library = ""  # the latest one shown in the message bar
        self._reported = ""  # id of the latest run whose failure the message bar has shown
        self._state, self._asked, self._set = ChangeWatch(), ChangeWatch(), ChangeWatch()
        self._broke, self._unseen = ChangeWatch(), False  # the run that broke, and whether that is yet to be seen
        self._page = ChangeWatch()  # at the side: a page that was hidden is outdated
        self._shown: Run | None = None
        self._page_preset = preset.id  # whose page was shown when it was opened
        self._figures_due, self._texts_due = Every(0.2), Every(1.0)
        self._devices_shown = False
        self._left: Iterator[None] | None = None  # to refresh, after a beat that took long

    def show_plots(self) -> bool:
        """Leave the gallery, or a page that is shown alone; return whether one was shown."""
        gallery, alone = self.pages.currentWidget() is self.gallery_page, self.top.isHidden()
        if gallery:
            self.pages.setCurrentIndex(0)
            self.plots.setFocus()
        if alone:
            self.columns.middle.show_plots()
        return gallery or alone

    def close_large(self) -> None:
        """Show the plots in place of a large page."""
        self.columns.middle.show_plots()

    def _show_title(self) -> None:
        """Show the visible content in the title of the window, and the preset if its name answers no question of the
        lesson."""
        preset, progress = self.simulator.preset, self.lesson.progress if self.furnished else None
        if progress is None or progress.preset.lesson != preset.lesson:
            progress = Progress(preset)
        shown = "Lesson" if progress.hides_title else preset.title
        self.top.show_title(shown)
        if self.pages.currentWidget() is self.gallery_page:
            shown = "Gallery"
        elif self.top.isHidden():
            shown = self.columns.middle.frame.title.text()  # of a page that is shown alone
        self.setWindowTitle(f"{shown} — GradStudio")

    def _show_first_part(self) -> None:
        """Show the state in what the window opens with."""
        run = self.simulator.run
        self.top.refresh(self.simulator, self.controls.possible)
        state = describe(run)
        self.top.pill.show_state(state.tone, state.headline)
        self.figures.refresh(run)
        self.knobs.refresh(self.simulator)

    def _remember_run_behind_gallery(self) -> None:
        """Remember it, whether it is running, and its rows: a short run is over before it is seen running."""
        run = self.simulator.run
        self._gallery_over = run, self.controls.possible.playing, len(run.history)

    def refresh(self, *, whole: bool = False, within: float = math.inf) -> None:
        """Show the simulator's current state: plots at each call; figures five times and texts once a second, so that
        they can be read, or as soon as something was done. `whole`: everything now. `within`: seconds after which the
        rest is left to the next call."""
        began = time.thread_time()
        left = (None if whole else self._left) or iter(())
        if self._left is None or within == math.inf:  # what a beat has left is older than what was done just now
            left = chain(left, self._refreshing(whole=whole))
        self._left = left
        for _ in left:
            if time.thread_time() - began > within:
                return
        self._left = None

    def _leave_gallery_for_a_run(self, run: Run) -> None:
        """Show the plots once another run is behind the gallery, or the one behind it starts to train."""
        before, went, rows = self._gallery_over
        self._remember_run_behind_gallery()
        if run is not before or (not went and (self.controls.possible.playing or len(run.history) > rows)):
            self.show_plots()

    def _beat(self) -> None:
        """Hand over what the jobs have done, and draw for the time that a beat has."""
        self.jobs.hand_over()
        if theme.is_settled:  # otherwise nothing is painted
            self.refresh(within=TURN)

    def _refreshing(self, *, whole: bool) -> Iterator[None]:
        """Refresh a part in each iteration."""
        run, now = self.simulator.run, time.monotonic()
        if self.gallery_page.isVisible():
            self._leave_gallery_for_a_run(run)
        drawable = not jit.busy()  # the window does not wait for a function that is being compiled
        new = self._state.has_changed(run, run.status, len(run.findings)) or whole
        turned = self._page.has_changed(self.side.page if self.side.isVisible() else None, self.columns.middle.page)
        if self._set.has_changed(self.simulator.requested):
            self.looked.leave()  # a knob acts on what happens now
        self.looked.follow(run)
        moved = self.past.refresh(run)
        if (
            new
            or turned
            or moved
            or self.knobs.stale
            or self._asked.has_changed(run.in_force, self.simulator.requested)
            or self._figures_due.at(now)
        ):
            self._figures_due.restart(now)
            yield from self._refresh_figures(run)
            if drawable:
                self.parent_twin_overlay.refresh(self.simulator, self.fixes.future)
                yield
        if drawable:
            yield from self.plots.refreshing(self.simulator)
        run = self.simulator.run  # another one may have begun in the meantime
        if new or turned or moved or self._texts_due.at(now):
            self._texts_due.restart(now)
            self._refresh_texts(run)
        if run is not self._shown:
            if run.preset.id != self._page_preset:
                self._turn_to(run.preset)
            self._shown = run
            self.runs.mark()

    def _refresh_figures(self, run: Run) -> Iterator[None]:
        self.figures.refresh(run, self.looked.at(run))
        self.top.refresh(self.simulator, self.controls.possible)
        self._refresh_knobs()
        yield
        self.side.code.refresh(self.simulator)
        self.fixes.refresh()
        self.layer.refresh()
        self.cliff.refresh()
        self.time_steps.refresh()
        self.memory.refresh()
        self.map.refresh()
        self._show_news()

    def _refresh_knobs(self) -> None:
        view = self.past.view
        if view is None:
            self.knobs.refresh(self.simulator)
        else:
            locked = f"As of step {len(view.history) - 1:,}: End goes back to now"
            self.knobs.refresh(self.simulator.as_of(view), locked)

    def _refresh_texts(self, run: Run) -> None:
        view = self.past.view
        if view is None:
            state = describe(run, self.simulator.family.parent(run))
            self.top.pill.show_state(state.tone, state.headline)
            self.findings.refresh(run, state, self.controls.possible.healthy_step)
        else:
            state = self.past.state(run)
            self.top.pill.show_state(state.tone, self.looked.words)
            self.findings.refresh(view, state, None, f"step {len(view.history) - 1:,}")
        self.lesson.refresh(run, self.simulator.requested, self.map.done_with_proposal)
        self._sign(run)
        self._show_title()
        self.branches.refresh()
        self.gauges.refresh()

    def _sign(self, run: Run) -> None:
        """Show at the tabs that something is to be done or seen. When a run breaks, the lesson is replaced by the
        diagnosis, unless the user is doing the lesson."""
        progress, tabs, page = self.lesson.progress, self.side.tabs.buttons, self.side.page
        to_do = progress is not None and bool(progress.steps) and not progress.whole
        tabs["lesson"].show_sign("accent" if to_do else "", "not done yet" if to_do else "")
        broke = run.first_nonfinite_step is not None or is_critical(run)
        if self._broke.has_changed(run.id, broke) and broke:
            self._unseen = True
            if page == "lesson" and not (progress is not None and progress.has_begun):
                self.columns.show_page("diagnosis")
                page = "diagnosis"
        self._unseen = self._unseen and broke and page != "diagnosis"
        tabs["diagnosis"].show_sign("bad" if self._unseen else "", "with news" if self._unseen else "")

    def _turn_to(self, preset: presets.Preset) -> None:
        """Show the plots, and the text about a preset that was opened."""
        self._page_preset = preset.id
        self.close_large()
        self.columns.show_page("lesson" if preset.lesson and not self.simulator.has_begun else "diagnosis")
        self.diagnosis.to_the_top()

    def _show_news(self) -> None:
        """Show the news in the message bar: a failed run, a written file, a full disk, the devices that were found."""
        self.simulator.abandon_stuck()
        run = self.simulator.run
        if run.status == "failed" and run.id != self._reported:
            self._reported = run.id
            self.message.show_error(
                run.message, self.simulator.failure, action=self.memory.way_out(run) or self.runs.places.way_out(run)
            )
        for refusal in self.simulator.refusals():
            self.message.show_error(refusal)
        for notice in self.simulator.notices():
            self.message.show_news(notice)
        self.figures.show_tasks(self.jobs)
        about_library = self.simulator.library_problem or self.simulator.library_notice
        if about_library != self._about_library:
            self._about_library = about_library
            if about_library:
                self.message.show_error(about_library)
        if self.machine.ready and not self._devices_shown:
            self._devices_shown = True
            self.heartbeat.settle()  # torch is loaded
            if self.machine.problem:
                self.message.show_error(self.machine.problem)
        ranks, place = self.simulator.requested.distributed.ranks, self.simulator.next_place
        self.knobs.show_device("" if place else self.machine.automatic(ranks), place.name if place else "")
