"""What is done with the branches of a run: between the panel that lists them, the simulator, the plots and the library."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject

from gradstudio.core.text import plural
from gradstudio.gui.branch_list import title
from gradstudio.gui.plots.overlay import MOST, Overlaid
from gradstudio.gui.runs_desk import overlaid
from gradstudio.session import branches
from gradstudio.session.branches import Family
from gradstudio.session.run import Run

if TYPE_CHECKING:
    from gradstudio.gui.window import Window

LEFT_STAYS = 20_000  # ms that a run which was left is offered
FULL = f"{MOST} runs can be drawn over the plots; take one off first."


class BranchesDesk(QObject):
    def __init__(self, window: Window) -> None:
        super().__init__(window)
        self._window, self._panel, self._overlays = window, window.side.branches, window.plots.overlays
        self._places: dict[str, int] = {}  # over the plots, that each had at last
        panel = self._panel
        panel.look_asked.connect(self.refresh)
        panel.go_asked.connect(self.go)
        panel.colour_asked.connect(self.colour)
        panel.delete_asked.connect(self.delete)
        panel.undo_asked.connect(window.desk.undo)
        panel.model.ticked.connect(self.tick)
        panel.model.renamed.connect(self.rename)
        self._overlays.changed.connect(self._show)

    @property
    def _family(self) -> Family:
        return self._window.simulator.family

    def refresh(self) -> None:
        """Bring the tree and the curves over the plots into line with the family; nearly nothing where nothing has changed."""
        self._draw()
        self._show()

    # ---- what a person asks for

    def go(self, id: str) -> None:
        """Show a member in the plots."""
        simulator, run = self._window.simulator, self._family.members.get(id)
        left = simulator.run
        if run is None or run is left:
            self._window.message.show_news("This run is shown in the plots already.")
            return
        went = simulator.started and not left.over
        simulator.show(run)
        self._window.knobs.forget()
        self._window.message.hide()
        if went and left.id in self._family.members:
            told = f"“{title(left)}” was stopped after {plural(len(left.history), 'step', 'steps')}."
            self._window.message.show_news(told, action=("Back to it", lambda: self.go(left.id)), stay=LEFT_STAYS)
        self._window.refresh()
        self.refresh()

    def rename(self, id: str, name: str) -> None:
        """Give a member a name, or none: it is then called by what changed."""
        run = self._family.members.get(id)
        if run is None:
            return
        run.name = name
        self.refresh()
        self._window.desk.rename(run)

    def tick(self, id: str, wanted: bool) -> None:
        """Draw a member over the plots, or do not any more."""
        run, place = self._family.members.get(id), self._overlays.slots.get(id)
        if run is None:
            return
        hidden = place in self._overlays.hidden
        if run is self._window.simulator.run:
            self._window.message.show_news("This run is what the plots show.")
        elif place is None:
            if wanted:
                self._add(run, self._places.get(id))
        elif wanted == hidden and (wanted or place >= MOST):  # what has a place of its own keeps it
            self._overlays.toggle(place)
        elif not wanted:
            self._places[id] = place
            self._overlays.remove(id)

    def colour(self, id: str, place: int) -> None:
        """Give a member another place over the plots; one that is not drawn there is."""
        run = self._family.members.get(id)
        if run is None or run is self._window.simulator.run or self._overlays.slots.get(id, 0) >= MOST:
            return
        if id not in self._overlays.slots and not self._add(run, place):
            return
        self._overlays.move(id, place)
        if place in self._overlays.hidden:
            self._overlays.toggle(place)

    def delete(self, id: str) -> None:
        """Take a branch out, with all that came of it; for some minutes that can be undone."""
        family, run = self._family, self._family.members.get(id)
        if run is None:
            return
        name, gone = title(run), self._window.simulator.remove(run)
        if not gone:
            self._window.message.show_error("What everything branched from stays; the list of all runs can delete it.")
            return
        self._window.knobs.forget()
        self._overlays.remove(*(each.id for each in gone))
        kept = [each for each in gone if each.own]
        more = f", and {plural(len(kept) - 1, 'branch', 'branches')} of it" if len(kept) > 1 else ""
        told = f"Deleted: “{name}”{more}."

        def back() -> None:
            if self._family is family:
                for each in kept:
                    family.add(each)
                self.refresh()

        if kept:
            self._window.desk.delete_when_written([each.id for each in kept], told, back)
        else:
            self._window.message.show_news(f"“{name}” is gone; it had made no step yet.")
        self._window.refresh()
        self.refresh()

    # ---- inside

    def _add(self, run: Run, place: int | None) -> bool:
        """Draw it over the plots, in this place where it is free."""
        if self._overlays.full:
            self._window.message.show_error(FULL)
            return False
        if place is None or place in self._overlays.places:
            place = next(free for free in range(MOST) if free not in self._overlays.places)
        self._put(place, run)
        return True

    def _put(self, place: int, run: Run) -> None:
        self._places[run.id] = place
        self._overlays.put(place, replace(overlaid(run, self._parting(run)), title=self._name(run)))

    def _parting(self, run: Run) -> int:
        return branches.parting(run, self._window.simulator.run)

    def _name(self, run: Run) -> str:
        return title(run) if run.id in self._family.members else run.title

    def _is_drawn(self, run: Run, drawn: Overlaid) -> bool:
        """Whether this is its curve from where it parts to its end."""
        start, end = self._parting(run), len(run.history)
        steps, _ = drawn.columns["loss"]
        as_far = (steps[0], drawn.length) == (start, end) if len(steps) else start >= end
        return drawn.run is run and as_far and drawn.title == self._name(run)

    def _draw(self) -> None:
        """What is drawn over the plots parts from the run that they show elsewhere once they show another, which is not drawn over itself."""
        shown = self._window.simulator.run
        for place, drawn in list(self._overlays.places.items()):
            if drawn.run is None or place >= MOST:
                continue
            run: Run = self._family.members.get(drawn.id) or drawn.run
            self._places[run.id] = place
            if run.id == shown.id or self._overlays.slots[run.id] >= MOST:
                self._overlays.put(place, None)
            elif not self._is_drawn(run, drawn):
                self._put(place, run)

    def _show(self) -> None:
        if self._panel.isVisible():
            self._panel.take(self._family, self._window.simulator.run, self._overlays)
