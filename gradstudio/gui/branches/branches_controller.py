"""Connects the page Branches, the simulator, the overlays of the plots and the library."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from PySide6.QtCore import QObject

from gradstudio.core.text import plural, storable
from gradstudio.gui.branches.branch_list import title
from gradstudio.gui.branches.branches_panel import BranchesPanel
from gradstudio.gui.drawing.overlay import MOST, Overlaid, Overlays
from gradstudio.gui.runs.run_overlay import overlaid
from gradstudio.gui.runs.runs_controller import RunsController
from gradstudio.gui.services.context import Context
from gradstudio.session.record import branches
from gradstudio.session.record.as_of import family_as_of
from gradstudio.session.record.branches import Family
from gradstudio.session.record.run import Run

FULL = f"{MOST} runs can be drawn over the plots; take one off first."


class BranchesController(QObject):
    def __init__(self, context: Context, panel: BranchesPanel, overlays: Overlays, runs: RunsController) -> None:
        super().__init__(panel)
        self._context, self._panel, self._overlays, self._runs = context, panel, overlays, runs
        self._places: dict[str, int] = {}  # latest slot of each run over the plots
        panel.look_asked.connect(self.refresh)
        panel.go_asked.connect(self.go)
        panel.colour_asked.connect(self.colour)
        panel.delete_asked.connect(self.delete)
        panel.undo_asked.connect(runs.deletions.undo)
        panel.model.ticked.connect(self.tick)
        panel.model.renamed.connect(self.rename)
        self._overlays.changed.connect(self._show)

    @property
    def _family(self) -> Family:
        return self._context.simulator.family

    def refresh(self) -> None:
        """Show the family in the tree and over the plots; cheap when nothing has changed."""
        self._draw()
        self._show()

    # ---- the user's requests

    def go(self, id: str) -> None:
        """Show a member in the plots."""
        simulator, run = self._context.simulator, self._family.members.get(id)
        left = simulator.run
        if run is None or run is left:
            self._context.message.show_news("This run is shown in the plots already.")
            return
        went = simulator.has_begun and not left.over
        self._context.controls.show(run)
        self._context.message.hide()
        if went and left.id in self._family.members:
            text = f"“{title(left)}” was stopped after {plural(len(left.history), 'step', 'steps')}."
            self._context.message.show_news(text, action=("Show it again", partial(self.go, left.id)))
        self._context.controls.refresh_asked.emit()
        self.refresh()

    def rename(self, id: str, name: str) -> None:
        """Name a member; without a name, it is named after its changes."""
        run = self._family.members.get(id)
        if run is None:
            return
        self._context.simulator.rename_run(run, storable(name))
        self.refresh()
        self._runs.rename(run)

    def tick(self, id: str, wanted: bool) -> None:
        """Draw a member over the plots, or remove it."""
        run, place = self._family.members.get(id), self._overlays.slots.get(id)
        if run is None:
            return
        hidden = place in self._overlays.hidden
        if run is self._context.simulator.run:
            self._context.message.show_news("This run is what the plots show.")
        elif place is None:
            if wanted:
                self._add(run, self._places.get(id))
        elif wanted == hidden and (wanted or place >= MOST):  # a parent or twin keeps its own slot
            self._overlays.toggle(place)
        elif not wanted:
            self._places[id] = place
            self._overlays.remove(id)

    def colour(self, id: str, place: int) -> None:
        """Draw a member with another slot over the plots."""
        run = self._family.members.get(id)
        if run is None or run is self._context.simulator.run or self._overlays.slots.get(id, 0) >= MOST:
            return
        if id not in self._overlays.slots and not self._add(run, place):
            return
        self._overlays.move(id, place)
        if place in self._overlays.hidden:
            self._overlays.toggle(place)

    def delete(self, id: str) -> None:
        """Delete a branch with its own branches; this can be undone for some minutes."""
        family, run = self._family, self._family.members.get(id)
        if run is None:
            return
        name, runs = title(run), self._context.simulator.remove(run)
        if not runs:
            self._context.message.show_error("The first run of the tree stays here; the page Runs can delete it.")
            return
        self._context.controls.knobs_changed.emit()
        self._overlays.remove(*(each.id for each in runs))
        kept = [each for each in runs if each.own]
        more = f", and {plural(len(kept) - 1, 'branch', 'branches')} of it" if len(kept) > 1 else ""
        text = f"Deleted: “{name}”{more}."

        def back() -> None:
            if self._family is family:
                for each in kept:
                    family.add(each)
                self.refresh()

        if kept:
            self._runs.deletions.delete_when_written([each.id for each in kept], text, back)
        else:
            self._context.message.show_news(f"“{name}” is gone; it had made no step yet.")
        self._context.controls.refresh_asked.emit()
        self.refresh()

    # ---- inside

    def _add(self, run: Run, place: int | None) -> bool:
        """Draw a run over the plots, in this slot if it is free; return whether there was room."""
        if self._overlays.full:
            self._context.message.show_error(FULL)
            return False
        if place is None or place in self._overlays.places:
            place = next(free for free in range(MOST) if free not in self._overlays.places)
        self._put(place, run)
        return True

    def _put(self, place: int, run: Run) -> None:
        self._places[run.id] = place
        self._overlays.put(place, replace(overlaid(run, self._parting(run)), title=self._name(run)))

    def _parting(self, run: Run) -> int:
        return branches.shared_rows(run, self._context.simulator.run)

    def _name(self, run: Run) -> str:
        return title(run) if run.id in self._family.members else run.title

    def _is_drawn(self, run: Run, drawn: Overlaid) -> bool:
        """Return whether this curve shows the run from its branch point to its end."""
        start, end = self._parting(run), len(run.history)
        steps, _ = drawn.columns["loss"]
        as_far = (steps[0], drawn.length) == (start, end) if len(steps) else start >= end
        return drawn.run is run and as_far and drawn.title == self._name(run)

    def _draw(self) -> None:
        """Clip each curve over the plots to where it differs from the run that they show, which has no curve over
        itself."""
        record = self._context.simulator.run
        for place, drawn in list(self._overlays.places.items()):
            if drawn.run is None or place >= MOST:
                continue
            run: Run = self._family.members.get(drawn.id) or drawn.run
            self._places[run.id] = place
            if run.id == record.id or self._overlays.slots[run.id] >= MOST:
                self._overlays.put(place, None)
            elif not self._is_drawn(run, drawn):
                self._put(place, run)

    def _show(self) -> None:
        if self._panel.isVisible():
            run = self._context.simulator.run
            step = self._context.looked.at(run)
            family, record = (self._family, run) if step is None else family_as_of(self._family, run, step)
            self._panel.take(family, record, self._overlays)
