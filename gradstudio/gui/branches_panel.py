"""The branches of a run as a small tree: gone to, named, drawn over the plots in a colour, deleted. It shows what it is given."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QItemSelectionModel, QObject, QPoint, Qt, Signal
from PySide6.QtGui import QAction, QIcon, QPainter, QPixmap, QShowEvent
from PySide6.QtWidgets import QAbstractItemView, QLabel, QListView, QMenu, QPushButton, QVBoxLayout, QWidget

from gradstudio.core.text import plural
from gradstudio.gui.branch_list import BranchList, Member
from gradstudio.gui.branch_rows import BranchRows
from gradstudio.gui.flow_layout import FlowLayout
from gradstudio.gui.plots.overlay import LETTERS, MOST, Overlays, color
from gradstudio.gui.runs_panel import own_keys
from gradstudio.gui.theme import theme
from gradstudio.gui.top_bar import ARROW
from gradstudio.session.branches import Family
from gradstudio.session.run import Run

SWATCH = 16  # px
EMPTY = (
    "A branch is the run once more from one of its steps on, with something changed. There is none yet.\n\n"
    "Drag the timeline back, or click a plot and then “Go back to step …”. Change a knob, and press Run: "
    "the new branch is drawn over the run that it came from, and both are listed here."
)


class BranchesPanel(QWidget):
    look_asked = Signal()
    go_asked, delete_asked = Signal(str), Signal(str)
    colour_asked = Signal(str, int)
    undo_asked = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.model, self.rows = BranchList(), BranchRows()
        self.list, self.empty, self.count = QListView(), QLabel(EMPTY), QLabel()
        self.go, self.rename, self.show_over = QPushButton("Go to"), QPushButton("Rename"), QPushButton("Show")
        self.colour, self.delete = QPushButton(f"Colour {ARROW}"), QPushButton("Delete")
        self.colours = QMenu(self.colour)
        self._places: dict[int, str] = {}  # what is drawn over the plots, by its place
        self._current = ""
        self._build_list()
        self._build_buttons()
        self._lay_out()
        self._say()
        theme.changed.connect(self._restyle)

    # ---- what is shown

    def take(self, family: Family, run: Run, overlays: Overlays) -> None:
        """The plots show this run of this family, and these over it."""
        if not self.model.take(family if len(family.members) > 1 else Family([]), run, overlays):
            return
        self._places = {place: overlaid.title for place, overlaid in overlays.places.items()}
        moved, self._current = run.id != self._current, run.id
        if self.list.state() != QAbstractItemView.State.EditingState and (moved or self.chosen is None):
            self.choose(run.id)
        self._say()

    @property
    def chosen(self) -> Member | None:
        """The run that is selected."""
        indexes = self.list.selectionModel().selectedIndexes()
        return indexes[0].data(BranchList.MEMBER) if indexes else None

    def choose(self, run: str) -> None:
        """Select a run, if it is listed."""
        row = self.model.row_of(run)
        if row >= 0:
            self.list.selectionModel().setCurrentIndex(self.model.index(row), QItemSelectionModel.SelectionFlag.ClearAndSelect)

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self.look_asked.emit()

    # ---- what a person does

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() == QEvent.Type.Resize:
            self._place_empty()
        return own_keys(event, self.undo_asked.emit)

    def _go(self) -> None:
        if (member := self.chosen) is not None:
            self.go_asked.emit(member.id)

    def _rename(self) -> None:
        if self.chosen is not None:
            self.list.edit(self.list.currentIndex())

    def _tick(self) -> None:
        if self.chosen is not None:
            self.rows._toggle(self.model, self.list.currentIndex())

    def _delete(self) -> None:
        if (member := self.chosen) is not None and member.depth:
            self.delete_asked.emit(member.id)

    def _offer_colours(self) -> None:
        self._fill_colours(self.colours)
        self.colours.popup(self.colour.mapToGlobal(self.colour.rect().bottomLeft()))

    def _fill_colours(self, menu: QMenu) -> None:
        """The places over the plots, each with its letter and its line, and what has it."""
        menu.clear()
        member = self.chosen
        if member is None:
            return
        for place in range(MOST):
            who = "this one" if place == member.slot else self._places.get(place, "")[:40]
            action = menu.addAction(_swatch(place), f"{LETTERS[place]}   {who}".rstrip().replace("&", "&&"))
            action.triggered.connect(lambda _=False, place=place: self.colour_asked.emit(member.id, place))

    # ---- inside

    def _say(self) -> None:
        """Bring into line what goes with the tree and with what is chosen in it."""
        member, branches = self.chosen, sum(bool(listed.depth) for listed in self.model.members)
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
        self.count.setText(plural(branches, "branch", "branches") if branches else plural(len(self.model.members), "run", "runs"))
        self.empty.setVisible(not self.model.members)
        self.foot.setVisible(bool(self.model.members))
        self._place_empty()

    def _build_list(self) -> None:
        view = self.list
        view.setObjectName("runs")
        view.setModel(self.model)
        view.setItemDelegate(self.rows)
        view.setSelectionMode(QAbstractItemView.SelectionMode.SingleSelection)
        view.setVerticalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        view.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        view.setEditTriggers(QAbstractItemView.EditTrigger.NoEditTriggers)
        view.setMouseTracking(True)
        view.setAccessibleName("Branches")
        view.setAccessibleDescription("Enter goes to a branch, F2 names it, Space draws it over the plots, Delete deletes it and what came of it")
        view.setContextMenuPolicy(Qt.ContextMenuPolicy.CustomContextMenu)
        view.customContextMenuRequested.connect(self._menu)
        view.doubleClicked.connect(lambda _: self._go())
        view.selectionModel().selectionChanged.connect(lambda *_: self._say())
        view.installEventFilter(self)
        self.empty.setParent(view)
        self.empty.setTextFormat(Qt.TextFormat.PlainText)
        self.empty.setWordWrap(True)
        self.empty.setProperty("role", "dim")
        self.empty.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        for text, key, call in (
            ("Go to", Qt.Key.Key_Return, self._go),
            ("Go to", Qt.Key.Key_Enter, self._go),
            ("Rename", Qt.Key.Key_F2, self._rename),
            ("Delete", Qt.Key.Key_Delete, self._delete),
        ):
            action = QAction(text, view)
            action.setShortcut(key)
            action.setShortcutContext(Qt.ShortcutContext.WidgetShortcut)
            action.triggered.connect(lambda _=False, call=call: call())
            view.addAction(action)

    def _build_buttons(self) -> None:
        for button, about, call in (
            (self.go, "Show the chosen branch in the plots; what goes is stopped (Enter, double click)", self._go),
            (self.rename, "Give the chosen branch a name (F2)", self._rename),
            (self.show_over, "Draw the chosen branch over the plots, or do not any more (Space)", self._tick),
            (self.colour, "The colour, letter and dash that the chosen branch has over the plots", self._offer_colours),
            (self.delete, "Delete the chosen branch and all that came of it; it can be undone (Delete, then Ctrl+Z)", self._delete),
        ):
            button.setProperty("role", "remedy")
            button.setFocusPolicy(Qt.FocusPolicy.TabFocus)
            button.setToolTip(about)
            button.setAccessibleDescription(about)
            button.clicked.connect(lambda _=False, call=call: call())

    def _menu(self, place: QPoint) -> None:
        """What can be done, at the pointer."""
        menu = QMenu(self.list)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        member = self.chosen
        if member is not None:
            menu.addAction("Go to (Enter)", self._go).setEnabled(self.go.isEnabled())
            menu.addAction("Rename (F2)", self._rename)
            over = "Take off the plots (Space)" if member.shown else "Draw over the plots (Space)"
            menu.addAction(over, self._tick).setEnabled(self.show_over.isEnabled())
            colours = menu.addMenu("Colour")
            self._fill_colours(colours)
            colours.setEnabled(self.colour.isEnabled())
            menu.addAction("Delete (Delete)", self._delete).setEnabled(self.delete.isEnabled())
            menu.addSeparator()
        menu.addAction("Undo the last deletion (Ctrl+Z)", self.undo_asked.emit)
        menu.popup(self.list.viewport().mapToGlobal(place))

    def _lay_out(self) -> None:
        buttons, foot = QWidget(), QVBoxLayout()
        row = FlowLayout(buttons)
        for button in (self.go, self.rename, self.show_over, self.colour, self.delete):
            row.addWidget(button)
        self.count.setProperty("role", "dim")
        foot.setContentsMargins(12, 0, 12, 10)
        foot.setSpacing(6)
        foot.addWidget(self.count)
        foot.addWidget(buttons)
        self.foot = QWidget()
        self.foot.setLayout(foot)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 4, 0, 0)
        column.setSpacing(6)
        column.addWidget(self.list, 1)
        column.addWidget(self.foot)

    def _place_empty(self) -> None:
        width = max(self.list.width() - 24, 0)
        self.empty.setGeometry(12, 12, width, self.empty.heightForWidth(width))

    def _restyle(self) -> None:
        self.rows.restyle()
        self.list.scheduleDelayedItemsLayout()
        self._place_empty()


def _swatch(place: int) -> QIcon:
    """The colour of a place over the plots."""
    drawn = QPixmap(2 * SWATCH, 2 * SWATCH)
    drawn.setDevicePixelRatio(2)
    drawn.fill(Qt.GlobalColor.transparent)
    painter = QPainter(drawn)
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    painter.setPen(Qt.PenStyle.NoPen)
    painter.setBrush(color(place))
    painter.drawRoundedRect(1, 1, SWATCH - 2, SWATCH - 2, 4, 4)
    painter.end()
    return QIcon(drawn)
