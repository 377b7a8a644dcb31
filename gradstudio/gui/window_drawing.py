"""The window's drawing: the simulator's state, shown about 30 times a second, a part at a time."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING

from gradstudio.core import jit, presets
from gradstudio.gui.frame_budget import Every
from gradstudio.gui.theme import theme
from gradstudio.gui.widgets.change_watch import ChangeWatch
from gradstudio.session.record.run import Run
from gradstudio.session.words.run_state import describe

if TYPE_CHECKING:
    from gradstudio.gui.window import Window

TURN = 0.01  # seconds of a beat after which the rest waits for the next one


class WindowDrawing:
    """Shows in a window the state of its simulator."""

    def __init__(self, window: Window) -> None:
        self._window = window
        # The run behind the gallery, whether it is running, and its rows: a short one is over before it is seen.
        self._gallery_over: tuple[Run, bool, int] = (window.simulator.run, False, 0)
        self._about_library = ""  # the latest one shown in the message bar
        self._reported = ""  # id of the latest run whose failure the message bar has shown
        self._state, self._asked, self._set = ChangeWatch(), ChangeWatch(), ChangeWatch()
        self._broke, self._unseen = ChangeWatch(), False  # the run that broke, and whether that is yet to be seen
        self._page = ChangeWatch()  # at the side: a page that was hidden is outdated
        self._shown: Run | None = None
        self.page_preset = window.simulator.preset.id  # whose page was shown when it was opened
        self._figures_due, self._texts_due = Every(0.2), Every(1.0)
        self._devices_shown = False
        self._left: Iterator[None] | None = None  # to refresh, after a beat that took long

    def show_first_part(self) -> None:
        """Show the state in what the window opens with."""
        window, run = self._window, self._window.simulator.run
        window.top.refresh(window.simulator, window.controls.possible)
        state = describe(run)
        window.top.pill.show_state(state.tone, state.headline)
        window.figures.refresh(run)
        window.knobs.refresh(window.simulator)

    def gallery_opened(self) -> None:
        """Remember the run behind the gallery, which is left for any other."""
        run, controls = self._window.simulator.run, self._window.controls
        self._gallery_over = run, controls.possible.playing, len(run.history)

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
        window = self._window
        before, went, rows = self._gallery_over
        self._gallery_over = run, window.controls.possible.playing, len(run.history)
        if run is not before or (not went and (window.controls.possible.playing or len(run.history) > rows)):
            window.show_plots()

    def beat(self) -> None:
        """Hand over what the jobs have done, and draw for the time that a beat has."""
        self._window.jobs.hand_over()
        if theme.is_settled:  # otherwise nothing is painted
            self.refresh(within=TURN)

    def _refreshing(self, *, whole: bool = False) -> Iterator[None]:
        """Refresh a part in each iteration."""
        window = self._window
        run, now = window.simulator.run, time.monotonic()
        if window.gallery_page.isVisible():
            self._leave_gallery_for_a_run(run)
        drawable = not jit.busy()  # the window does not wait for a function that is being compiled
        new = self._state.has_changed(run, run.status, len(run.findings)) or whole
        turned = self._page.has_changed(
            window.side.page if window.side.isVisible() else None, window.columns.middle.page
        )
        if self._set.has_changed(window.simulator.requested):
            window.looked.leave()  # a knob acts on what happens now
        window.looked.follow(run)
        moved = window.past.refresh(run)
        if (
            new
            or turned
            or moved
            or window.knobs.stale
            or self._asked.has_changed(run.in_force, window.simulator.requested)
            or self._figures_due.at(now)
        ):
            self._figures_due.restart(now)
            yield from self._refresh_figures(run)
            if drawable:
                window.parent_twin_overlay.refresh(window.simulator, window.fixes.future)
                yield
        if drawable:
            yield from window.plots.refreshing(window.simulator)
        run = window.simulator.run  # another one may have begun in the meantime
        if new or turned or moved or self._texts_due.at(now):
            self._texts_due.restart(now)
            self._refresh_texts(run)
        if run is not self._shown:
            if run.preset.id != self.page_preset:
                self._turn_to(run.preset)
            self._shown = run
            window.runs.mark()

    def _refresh_figures(self, run: Run) -> Iterator[None]:
        window = self._window
        window.figures.refresh(run, window.looked.at(run))
        window.top.refresh(window.simulator, window.controls.possible)
        self._refresh_knobs()
        yield
        window.side.code.refresh(window.simulator)
        window.fixes.refresh()
        window.layer.refresh()
        window.cliff.refresh()
        window.time_steps.refresh()
        window.memory.refresh()
        window.map.refresh()
        self._show_news()

    def _refresh_knobs(self) -> None:
        window = self._window
        view = window.past.view
        if view is None:
            window.knobs.refresh(window.simulator)
        else:
            locked = f"As of step {len(view.history) - 1:,}: End goes back to now"
            window.knobs.refresh(window.simulator.as_of(view), locked)

    def _refresh_texts(self, run: Run) -> None:
        window = self._window
        view = window.past.view
        if view is None:
            state = describe(run, window.simulator.family.parent(run))
            window.top.pill.show_state(state.tone, state.headline)
            window.findings.refresh(run, state, window.controls.possible.healthy_step)
        else:
            state = window.past.state(run)
            window.top.pill.show_state(state.tone, window.looked.words)
            window.findings.refresh(view, state, None, f"step {len(view.history) - 1:,}")
        window.lesson.refresh(run, window.simulator.requested, window.map.done_with_proposal)
        self._sign(run)
        window.show_title()
        window.branches.refresh()
        window.gauges.refresh()

    def _sign(self, run: Run) -> None:
        """Show at the tabs that something is to be done or seen. When a run breaks, the lesson is replaced by the
        diagnosis, unless the user is doing the lesson."""
        window = self._window
        progress, tabs, page = window.lesson.progress, window.side.tabs.buttons, window.side.page
        to_do = progress is not None and bool(progress.steps) and not progress.whole
        tabs["lesson"].show_sign("accent" if to_do else "", "not done yet" if to_do else "")
        broke = run.first_nonfinite_step is not None or any(
            finding.severity == "critical" for finding in list(run.findings.values())
        )
        if self._broke.has_changed(run.id, broke) and broke:
            self._unseen = True
            if page == "lesson" and not (progress is not None and progress.has_begun):
                window.columns.show_page("diagnosis")
                page = "diagnosis"
        self._unseen = self._unseen and broke and page != "diagnosis"
        tabs["diagnosis"].show_sign("bad" if self._unseen else "", "with news" if self._unseen else "")

    def _turn_to(self, preset: presets.Preset) -> None:
        """Show the plots, and the text about a preset that was opened."""
        window = self._window
        self.page_preset = preset.id
        window.close_large()
        window.columns.show_page("lesson" if preset.lesson and not window.simulator.has_begun else "diagnosis")
        window.diagnosis.to_the_top()

    def _show_news(self) -> None:
        """Show the news in the message bar: a failed run, a written file, a full disk, the devices that were found."""
        window = self._window
        window.simulator.abandon_stuck()
        run = window.simulator.run
        if run.status == "failed" and run.id != self._reported:
            self._reported = run.id
            window.message.show_error(
                run.message,
                window.simulator.failure,
                action=window.memory.way_out(run) or window.runs.places.way_out(run),
            )
        for refusal in window.simulator.refusals():
            window.message.show_error(refusal)
        for notice in window.simulator.notices():
            window.message.show_news(notice)
        window.figures.show_tasks(window.jobs)
        about_library = window.simulator.library_problem or window.simulator.library_notice
        if about_library != self._about_library:
            self._about_library = about_library
            if about_library:
                window.message.show_error(about_library)
        if window.machine.ready and not self._devices_shown:
            self._devices_shown = True
            window.heartbeat.settle()  # torch is loaded
            if window.machine.problem:
                window.message.show_error(window.machine.problem)
        ranks, place = window.simulator.requested.distributed.ranks, window.simulator.next_place
        window.knobs.show_device("" if place else window.machine.automatic(ranks), place.name if place else "")
