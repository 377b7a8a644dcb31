"""The page Branches: the branches of a run as a small tree, to show, name, overlay in a colour, delete."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QIcon, QPainter, QPixmap, QShowEvent
from PySide6.QtWidgets import QAbstractItemView, QMenu, QWidget

from gradstudio.core.text import plural
from gradstudio.gui.branches.branch_list import BranchList, Member
from gradstudio.gui.drawing.overlay import LETTERS, MOST, Overlays, color
from gradstudio.gui.runs.list_panel import ListPanel
from gradstudio.gui.runs.run_list_view import list_button
from gradstudio.gui.widgets import popups
from gradstudio.gui.widgets.flow_layout import FlowLayout
from gradstudio.gui.widgets.list_keys import key
from gradstudio.gui.widgets.menu_arrow import add_arrow
from gradstudio.session.record.branches import Family
from gradstudio.session.record.run import Run

SWATCH = 16  # px
EMPTY = (
    "A branch is the run that continues from one of its steps with a change. There is none yet.\n\n"
    "Drag the timeline back and press “Rewind here”, or click a plot. Change a knob, and press Run: "
    "the new branch is drawn over the run that it came from, and both are listed here."
)
WATCHED = (
    "A branch is the run that continues from one of its steps with a change. It has no meaning for this run, which a "
    "script trained: begin that script again with the change, and compare the two runs on the page Runs."
)
ABOUT_KEYS = (
    f"{key('open')} goes to a branch, {key('rename')} renames it, {key('draw')} draws it over the plots, "
    f"{key('delete')} deletes it with its own branches"
)


class BranchesPanel(ListPanel):
    look_asked = Signal()
    go_asked, delete_asked = Signal(str), Signal(str)
    colour_asked = Signal(str, int)

    def __init__(self) -> None:
        self.model = BranchList()
        super().__init__(self.model, "Branches", ABOUT_KEYS, EMPTY)
        self._places: dict[int, str] = {}  # titles of the overlays, by slot
        self._current = ""
        self._why_empty = EMPTY
        self.list.setSelectionMode(QAbstractItemView.SelectionMode.SingleSelection)
        self._add_keys({"open": self._go, "rename": self._rename, "delete": self._delete})
        self._lay_out(self._buttons())
        self._show_state()

    # ---- content

    def take(self, family: Family, run: Run, overlays: Overlays) -> None:
        """List this family, with `run` in the plots and these runs over it."""
        if not self.model.take(family if len(family.members) > 1 else Family([]), run, overlays):
            return
        self._places = {place: overlaid.title for place, overlaid in overlays.places.items()}
        self._why_empty = WATCHED if run.watched is not None else EMPTY
        moved, self._current = run.id != self._current, run.id
        if self.list.state() != QAbstractItemView.State.EditingState and (moved or self.chosen is None):
            self.choose(run.id)
        self._show_state()

    @property
    def chosen(self) -> Member | None:
        """Selected run."""
        indexes = self.list.selectionModel().selectedIndexes()
        return indexes[0].data(BranchList.ROW) if indexes else None

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self.look_asked.emit()

    # ---- the user's actions

    def _go(self) -> None:
        if (member := self.chosen) is not None:
            self.go_asked.emit(member.id)

    def _rename(self) -> None:
        if self.chosen is not None:
            self.list.edit(self.list.currentIndex())

    def _tick(self) -> None:
        if self.chosen is not None:
            self.list.tick_current()

    def _delete(self) -> None:
        if (member := self.chosen) is not None and member.depth:
            self.delete_asked.emit(member.id)

    def _offer_colours(self) -> None:
        if (member := self.chosen) is not None:
            menu = popups.context_menu(self.colour)
            self._fill_colours(menu, member)
            menu.popup(self.colour.mapToGlobal(self.colour.rect().bottomLeft()))

    def _fill_colours(self, menu: QMenu, member: Member) -> None:
        """List the slots over the plots, each with its colour, its letter and its run."""
        for place in range(MOST):
            who = "this one" if place == member.slot else self._places.get(place, "")[:40]
            action = menu.addAction(_swatch(place), f"{LETTERS[place]}   {who}".rstrip().replace("&", "&&"))
            action.triggered.connect(lambda _=False, place=place: self.colour_asked.emit(member.id, place))

    # ---- inside

    def _show_state(self) -> None:
        """Show the count and the possible commands for the chosen run."""
        member, branches = self.chosen, sum(bool(listed.depth) for listed in self.model.rows)
        elsewhere = member is not None and not member.current
        own_place = member is not None and (member.slot is None or member.slot < MOST)
        for button, fits in (
            (self.go, elsewhere),
            (self.rename, member is not None),
            (self.show_over, elsewhere),
            (self.colour, elsewhere and own_place),
            (self.delete, member is not None and member.depth > 0),
        ):
            button.setEnabled(fits)
        self.show_over.setText("Hide" if member is not None and member.shown else "Show")
        self.count.setText(
            plural(branches, "branch", "branches") if branches else plural(len(self.model.rows), "run", "runs")
        )
        self.list.show_empty(not self.model.rows, self._why_empty)
        self.foot.setVisible(bool(self.model.rows))

    def _buttons(self) -> QWidget:
        self.go = list_button(
            "Go to",
            f"Shows the chosen branch in the plots and stops a run that is training ({key('open')}, double click)",
            self._go,
        )
        self.rename = list_button("Rename", f"Gives the chosen branch a name ({key('rename')})", self._rename)
        self.show_over = list_button(
            "Show", f"Draws the chosen branch over the plots, or takes it off ({key('draw')})", self._tick
        )
        self.colour = list_button(
            "Colour", "Chooses the colour, letter and dash of the branch over the plots", self._offer_colours
        )
        add_arrow(self.colour)
        self.delete = list_button(
            "Delete",
            f"Deletes the chosen branch with its own branches ({key('delete')}); {key('undo')} undoes it",
            self._delete,
        )
        buttons = QWidget()
        row = FlowLayout(buttons)
        for button in (self.go, self.rename, self.show_over, self.colour, self.delete):
            row.addWidget(button)
        return buttons

    def _fill_menu(self, menu: QMenu) -> None:
        if (member := self.chosen) is None:
            return
        menu.addAction(f"Go to ({key('open')})", self._go).setEnabled(self.go.isEnabled())
        menu.addAction(f"Rename ({key('rename')})", self._rename)
        draw = "Take off plots" if member.shown else "Draw over plots"
        menu.addAction(f"{draw} ({key('draw')})", self._tick).setEnabled(self.show_over.isEnabled())
        colours = menu.addMenu("Colour")
        self._fill_colours(colours, member)
        colours.setEnabled(self.colour.isEnabled())
        menu.addAction(f"Delete ({key('delete')})", self._delete).setEnabled(self.delete.isEnabled())
        menu.addSeparator()


def _swatch(place: int) -> QIcon:
    """Return the colour of a slot over the plots."""
    drawn = QPixmap(2 * SWATCH, 2 * SWATCH)
    drawn.setDevicePixelRatio(2)
    drawn.fill(Qt.GlobalColor.transparent)
    with QPainter(drawn) as painter:
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(color(place))
        painter.drawRoundedRect(1, 1, SWATCH - 2, SWATCH - 2, 4, 4)
    return QIcon(drawn)
