"""Connects the page Map to the simulator: maps are made in separate processes, and their cells open as runs."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from PySide6.QtCore import QObject

from gradstudio.core.knobs import KnobError
from gradstudio.core.presets import LONGEST_TITLE
from gradstudio.core.text import plural, shorten
from gradstudio.gui.map import map_files
from gradstudio.gui.map.map_panel import MapPanel
from gradstudio.gui.map.plan_dialog import PlanDialog
from gradstudio.gui.services import file_choice
from gradstudio.gui.services.context import Context
from gradstudio.gui.services.jobs import Task
from gradstudio.gui.widgets import popups
from gradstudio.gui.widgets.change_watch import ChangeWatch
from gradstudio.session import own_model
from gradstudio.session.map import time_needed
from gradstudio.session.map.journal import JournalContent
from gradstudio.session.map.map_plan import Job, Plan, Spot
from gradstudio.session.map.map_texts import progress_in_words
from gradstudio.session.map.mapper import Mapper
from gradstudio.session.map.place import differing_knobs, knobs_place, place_in_words, spot_of
from gradstudio.session.map.proposal import done_with_proposal
from gradstudio.session.map.time_needed import Cost
from gradstudio.session.map.view import View, view_of
from gradstudio.session.record.run import Run

NO_RUN = "There is no run to report yet: press Run first, or click a cell."
LOOK_AGAIN = 0.5  # seconds between two pictures of a map in progress
ENOUGH, LATEST = 20, 200  # steps of a run for estimating its duration: at least, and for the median
MEASURED = "How long it takes is being measured…"
NOT_MEASURED = "How long it takes could not be measured."
NOT_AGREED = "You have not agreed to run the studio file yet, so it is not known how long the map takes."
GOING = "A map is being made: one is made at a time."
WATCHED = "This run was watched in another program, which alone has its model: only a run of the studio can be mapped."


class MapController(QObject):
    """Has one map at a time: one that is being made, or one that was opened."""

    def __init__(self, context: Context, panel: MapPanel) -> None:
        super().__init__(panel)
        self._context, self._panel = context, panel
        self._mapper: Mapper | None = None
        self._path: Path | None = None
        self._stored: JournalContent | None = None  # of the map that was opened
        self._view: View | None = None
        self._drawing: Task | None = None
        self._drawn: tuple[Plan, int] | None = None  # the plan, and the number of results, of the latest drawing
        self._drawn_at = 0.0
        self._cross, self._told = ChangeWatch(), ""
        self._measuring: Task | None = None  # how long a run of a cell takes, while a map is planned
        panel.seen_changed.connect(self.refresh)
        panel.new_asked.connect(self._ask_plan)
        panel.open_asked.connect(self._ask_file)
        panel.pause_asked.connect(self._pause)
        panel.go_on_asked.connect(self._go_on)
        panel.cancel_asked.connect(self._cancel)
        panel.export_asked.connect(self._export)
        panel.picture.pointed.connect(self._point)
        panel.picture.chosen.connect(self._open_cell)
        panel.picture.moved.connect(self._move)

    @property
    def going(self) -> bool:
        """Whether a map is being made."""
        return self._mapper is not None

    def refresh(self) -> None:
        """Show the progress of the map, and its picture if the page is visible."""
        mapper = self._mapper
        if mapper is not None and not mapper.is_alive():
            self._finish(mapper)
        if not self._panel.in_sight:
            return
        self._draw()
        why_not = GOING if self._mapper is not None else WATCHED if self._context.simulator.run.watched else ""
        self._panel.show_new(why_not)
        self._show_work(why_not)
        self._show_place()

    def done_with_proposal(self, run: Run) -> frozenset[str]:
        """Return what was done with the map that the run's preset proposes: it was made, and a cell of it opened."""
        view = self._view
        return done_with_proposal(view.stored, run) if view is not None and view.whole else frozenset()

    def make(self, plan: Plan) -> None:
        """Start a map in a file of its own."""
        begin = partial(self._begin, plan, map_files.new_file(plan), resume=False)
        self._context.controls.if_agreed(begin, *plan.of_panels)

    def open(self, path: Path) -> None:
        """Show an existing map; the message bar reports if it cannot be read."""
        if self._mapper is None:
            self._context.files.read(path, map_files.load, partial(self._take, path))
        else:
            self._context.message.show_error("A map is being made: cancel it before another one is opened.")

    def stop(self) -> None:
        """End the work; the map can be resumed."""
        if self._mapper is not None:
            self._context.jobs.leave(self._mapper)

    # ---- the user's requests

    def _ask_plan(self) -> None:
        if self._context.simulator.run.watched:
            self._context.message.show_error(WATCHED)
        else:
            dialog = PlanDialog(self._context, self.make)
            self._measure_cost(dialog.take_cost)
            dialog.open()

    def _measure_cost(self, tell: Callable[[Cost | str], object]) -> None:
        """Report how long a run of a cell takes, or why that is unknown: from the run on view, or from a trial that
        starts now. A studio file is not run for that before the user has agreed to it."""
        run, experiment = self._context.simulator.run, self._context.simulator.requested
        place = self._context.simulator.next_place
        if place is not None:
            tell(f"Its cells train at {place.name}: how long that takes is not known here.")
        elif len(run.history) >= ENOUGH and run.in_force.model == experiment.model:
            latest = run.history.column("step_seconds")[-LATEST:]
            tell(Cost(0.0, statistics.median(latest.tolist())))
        elif own_model.needs_agreement(experiment):
            tell(NOT_AGREED)
        else:
            tell(MEASURED)
            if self._measuring is not None:
                self._measuring.cancel()
            self._measuring = self._context.jobs.start(
                "", lambda task: time_needed.measure_cost(experiment, lambda: task.cancelled),
                lambda cost: tell(cost or NOT_MEASURED), lambda _: tell(NOT_MEASURED),
            )  # fmt: skip

    def _ask_file(self) -> None:
        folder = map_files.folder()
        dialog = popups.file_dialog(
            self._context.parent, "Open map", str(folder) if folder.is_dir() else file_choice.folder(),
            "Maps (*.map);;All files (*)",
        )  # fmt: skip
        dialog.fileSelected.connect(lambda path: self.open(Path(path)))
        dialog.open()

    def _pause(self) -> None:
        if self._mapper is not None:
            self._mapper.pause()
        self.refresh()

    def _go_on(self) -> None:
        if self._mapper is not None:
            self._mapper.go_on()
            self.refresh()
        elif self._stored is not None and self._path is not None:
            plan = self._stored.plan
            begin = partial(self._begin, plan, self._path, resume=True)
            self._context.controls.if_agreed(begin, *plan.of_panels)

    def _cancel(self) -> None:
        if self._mapper is not None:
            self._mapper.stop()
        self.refresh()

    def _open_cell(self, spot: Spot) -> None:
        if self._view is None:
            return
        try:
            preset = self._view.stored.plan.preset_of(Job(spot, 0))
        except KnobError as fault:
            self._context.message.show_error(str(fault))
        else:
            self._context.controls.run_again(preset)

    def _move(self, spot: Spot) -> None:
        if self._view is not None:
            self._context.controls.set_together(self._view.stored.plan.values_at(spot))
        self.refresh()

    def _point(self, spot: Spot | None) -> None:
        self._panel.show_cell(self._view.about(spot) if self._view is not None and spot is not None else "")

    def _export(self, kind: str) -> None:
        view, run, context = self._view, self._context.simulator.run, self._context
        if view is None:
            return
        if kind == "report" and not len(run.history):
            context.message.show_error(NO_RUN)
            return
        name, content = map_files.to_export(kind, view.stored, run)
        file_choice.ask_where(context, f"Export {name}", name, partial(context.files.draw, content))

    # ---- inside

    def _begin(self, plan: Plan, path: Path, *, resume: bool) -> None:
        if not resume:
            self._stored = None
        self._path = path
        simulator = self._context.simulator
        there = simulator.cells_at(simulator.next_place)
        self._mapper = Mapper(plan, path, resume=resume, there=there, yielding=True)
        self._mapper.start()
        self._told = ""
        self._context.controls.file_opened.emit(str(path))
        self.refresh()

    def _finish(self, mapper: Mapper) -> None:
        """Release a map whose making has ended, and report its outcome."""
        self._mapper, self._told = None, ""
        self._stored = self._content(mapper)
        title = shorten(mapper.plan.preset.title, LONGEST_TITLE)
        if mapper.status == "failed":
            self._told = f"The map was not made: {mapper.message}"
            self._context.message.show_error(self._told, mapper.failure)
        elif mapper.status == "finished":
            self._context.message.show_news(f"The map of {title} is finished.")

    def _take(self, path: Path, stored: JournalContent) -> None:
        """Show a map that was read."""
        if self._mapper is None:
            self._context.controls.file_opened.emit(str(path))
            self._path, self._stored, self._told = path, stored, ""
            self._drawn = None  # a plan that is equal, but another object
            self.refresh()

    def _draw(self) -> None:
        """Have the picture recomputed if more is known."""
        if self._drawing is not None:
            return
        mapper, stored, now = self._mapper, self._stored, time.monotonic()
        plan = mapper.plan if mapper else stored.plan if stored else None
        if plan is None:
            return
        count = max(len(mapper.results) if mapper else 0, len(stored.results) if stored else 0)
        if self._drawn == (plan, count) or (mapper and count and now < self._drawn_at + LOOK_AGAIN):
            return
        self._drawn, self._drawn_at = (plan, count), now
        known = self._content(mapper) if mapper else stored
        assert known is not None
        self._drawing = self._context.jobs.start("", lambda _: view_of(known), self._show_view, self._show_none)

    def _content(self, mapper: Mapper) -> JournalContent:
        """Return what is known of a map in progress: until the mapper has read the file that it resumes, the earlier
        contents."""
        results, before = list(mapper.results), self._stored
        if before is not None and len(before.results) > len(results):
            return before
        return JournalContent(mapper.plan, dict(results))

    def _show_none(self, task: Task) -> None:
        self._drawing = None
        self._context.jobs.tell(task)

    def _show_view(self, view: View) -> None:
        self._drawing, self._view = None, view
        self._panel.picture.show_map(view.drawing)
        self._panel.show_words(view.words)

    def _show_work(self, why_not: str) -> None:
        mapper, stored = self._mapper, self._stored
        plan = mapper.plan if mapper else stored.plan if stored else None
        if plan is None:
            self._panel.show_work("", why_not, share=None)
            return
        title, share, state = shorten(plan.preset.title, LONGEST_TITLE), None, self._told
        unfinished = mapper is None and not (self._view and self._view.stored.plan is plan and self._view.whole)
        if mapper is not None:
            now, paused = mapper.progress, mapper.status == "paused"
            share, state = (now.done / now.of if now.of else 0.0), progress_in_words(now, paused=paused)
        elif not state and stored is not None:
            runs = plural(len(stored.results), "run", "runs")
            state = f"{runs}, and not all that it needs." if unfinished else f"Whole: {runs}."
        self._panel.show_work(title, state, share=share, role="error" if self._told else "dim")
        self._panel.show_buttons(
            going=mapper is not None, paused=mapper is not None and mapper.status == "paused", unfinished=unfinished
        )

    def _show_place(self) -> None:
        """Show the cross at the requested knobs, and the position of the run that is shown."""
        simulator, view = self._context.simulator, self._view
        requested, run = simulator.requested, simulator.run
        if view is None or not self._cross.has_changed(view, requested, run, run.status):
            return
        plan = view.stored.plan
        others = differing_knobs(plan, requested)
        self._panel.picture.show_cross(spot_of(plan, requested), dashed=bool(others))
        if run.watched:
            self._panel.show_place("")
        elif run.over and len(run.history) and not differing_knobs(plan, run.experiment):
            self._panel.show_place(place_in_words(run, view.stored))
        else:
            self._panel.show_place(knobs_place(plan, requested))
