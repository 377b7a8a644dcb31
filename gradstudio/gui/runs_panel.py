"""The runs of the library: found, read about, noted down, opened again, drawn over the plots, compared, deleted.

It asks the library only while it is shown, and then only for what has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from PySide6.QtCore import QEvent, QItemSelectionModel, QObject, QPoint, Qt, QTimer, Signal
from PySide6.QtGui import QAction, QHideEvent, QKeyEvent, QKeySequence, QShortcut, QShowEvent
from PySide6.QtWidgets import QAbstractItemView, QComboBox, QHBoxLayout, QLabel, QLineEdit, QListView, QMenu, QPushButton, QVBoxLayout, QWidget

from gradstudio.core.text import plural
from gradstudio.gui import run_words
from gradstudio.gui.run_list import SORTS, RunList, Wanted
from gradstudio.gui.run_notes import RunNotes
from gradstudio.gui.run_rows import RunRows
from gradstudio.gui.theme import theme
from gradstudio.session.library.store import Entry

LOOK_EVERY = 2000  # ms between two looks at the library
EMPTY = "Every run is kept here as it goes: its knobs, its curves, what was found, and how it ended.\n\nPress Run, and the first one appears."
NO_MATCH = "No run goes with this search and these filters."
ANY_PRESET, ANY_OUTCOME = "All presets", "All outcomes"


class RunsPanel(QWidget):
    look_asked = Signal()  # whether anything has changed
    open_asked, again_asked = Signal(str), Signal(str)
    compare_asked, delete_asked = Signal(list), Signal(list)
    undo_asked = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.model, self.rows = RunList(), RunRows()
        self.search = QLineEdit()
        self.search.setPlaceholderText("Find runs")
        self.search.setClearButtonEnabled(True)
        self.search.setAccessibleName("Find runs")
        self.search.setToolTip("Words in the title, preset, outcome, note or tags of a run: all of them must be there")
        self.sort, self.preset, self.outcome = QComboBox(), QComboBox(), QComboBox()
        self.list, self.empty, self.count = QListView(), QLabel(EMPTY), QLabel()
        self.notes = RunNotes()
        self.open, self.again = QPushButton("Open"), QPushButton("Run again")
        self.compare, self.delete = QPushButton("Compare"), QPushButton("Delete")
        self._build_choices()
        self._build_list()
        self._build_buttons()
        self._lay_out()
        self._timer = QTimer(self)
        self._timer.setInterval(LOOK_EVERY)
        self._timer.timeout.connect(self.look_asked)
        self._say()
        theme.changed.connect(self._restyle)

    # ---- what is shown

    def take(self, entries: Sequence[Entry]) -> None:
        """These are the runs there are."""
        self.model.take(entries)
        self._offer(self.preset, ANY_PRESET, {entry.preset for entry in entries})
        self._offer(self.outcome, ANY_OUTCOME, {run_words.outcome(entry)[0] for entry in entries})
        self._say()

    @property
    def chosen(self) -> list[Entry]:
        """The runs that are selected, from top to bottom."""
        indexes = sorted(self.list.selectionModel().selectedIndexes(), key=lambda index: index.row())
        return [index.data(RunList.ENTRY) for index in indexes]

    def choose(self, run: str) -> None:
        """Select a run, if it is listed."""
        row = self.model.row_of(run)
        if row >= 0:
            index = self.model.index(row)
            self.list.selectionModel().setCurrentIndex(index, QItemSelectionModel.SelectionFlag.ClearAndSelect)

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self.look_asked.emit()
        self._timer.start()

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        self._timer.stop()
        self.notes.save()

    # ---- what a person does

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        pressed = event.key() if isinstance(event, QKeyEvent) and event.type() == QEvent.Type.KeyPress else None
        if watched is self.search and pressed == Qt.Key.Key_Down:
            self.list.setFocus()
            if not self.list.currentIndex().isValid():
                self.list.setCurrentIndex(self.model.index(0))
            return True
        if watched is self.list and event.type() == QEvent.Type.Resize:
            self._place_empty()
        return watched is self.list and own_keys(event, self.undo_asked.emit)

    def _open(self) -> None:
        if len(self.chosen) == 1:
            self.open_asked.emit(self.chosen[0].id)

    def _again(self) -> None:
        if len(self.chosen) == 1:
            self.again_asked.emit(self.chosen[0].id)

    def _compare(self) -> None:
        if len(self.chosen) > 1:
            self.compare_asked.emit([entry.id for entry in self.chosen])

    def _delete(self) -> None:
        if self.chosen:
            self.delete_asked.emit([entry.id for entry in self.chosen])

    def _tick(self) -> None:
        index = self.list.currentIndex()
        if index.isValid():
            self.rows._toggle(self.model, index)

    def _wish(self) -> None:
        """Show what the search and the choices ask for."""
        self.model.want(Wanted(self.search.text(), self.sort.currentData(), self.preset.currentData() or "", self.outcome.currentData() or ""))
        self._say()

    def _say(self) -> None:
        """Bring into line what goes with the list and with what is chosen in it."""
        chosen, shown, all_of_them = self.chosen, self.model.rowCount(), len(self.model.all)
        for button, fits in (
            (self.open, len(chosen) == 1),
            (self.again, len(chosen) == 1),
            (self.compare, len(chosen) > 1),
            (self.delete, bool(chosen)),
        ):
            button.setEnabled(fits)
        several = f", {len(chosen)} chosen" if len(chosen) > 1 else ""
        told = plural(all_of_them, "run", "runs") if shown == all_of_them else f"{shown:,} of {plural(all_of_them, 'run', 'runs')}"
        self.count.setText(f"{told}{several}" if all_of_them else "")
        self.notes.show_of(self.model.entry(chosen[0].id) if len(chosen) == 1 else None)
        self.empty.setText(NO_MATCH if all_of_them else EMPTY)
        self.empty.setVisible(not shown)
        self.foot.setVisible(bool(all_of_them))
        self._place_empty()

    # ---- inside

    def _offer(self, box: QComboBox, everything: str, names: set[str]) -> None:
        """The choices of a filter: what there is, and what is chosen."""
        wanted = sorted(names | ({box.currentData()} if box.currentData() else set()))
        if box.count() and [box.itemData(index) for index in range(1, box.count())] == wanted:
            return
        chosen = box.currentData()
        box.blockSignals(True)
        box.clear()
        box.addItem(everything, "")
        for name in wanted:
            box.addItem(name, name)
        box.setCurrentIndex(max(box.findData(chosen), 0))
        box.blockSignals(False)

    def _build_choices(self) -> None:
        for name, (text, _) in SORTS.items():
            self.sort.addItem(text, name)
        for box, name, about in (
            (self.sort, "Order of the runs", "In which order the runs are listed; the loss is that of the last step"),
            (self.preset, "Preset", "Only runs of this preset"),
            (self.outcome, "Outcome", "Only runs that ended so"),
        ):
            box.setObjectName("small")
            box.setAccessibleName(name)
            box.setToolTip(about)
            box.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)
            box.setMinimumContentsLength(2)
            box.currentIndexChanged.connect(self._wish)
        self._offer(self.preset, ANY_PRESET, set())
        self._offer(self.outcome, ANY_OUTCOME, set())
        self.search.textChanged.connect(self._wish)
        self.search.installEventFilter(self)
        escape = QShortcut(QKeySequence(Qt.Key.Key_Escape), self.search, self.search.clear)
        escape.setContext(Qt.ShortcutContext.WidgetShortcut)  # which as an argument goes unheard

    def _build_list(self) -> None:
        view = self.list
        view.setObjectName("runs")
        view.setModel(self.model)
        view.setItemDelegate(self.rows)
        view.setSelectionMode(QAbstractItemView.SelectionMode.ExtendedSelection)
        view.setVerticalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        view.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        view.setEditTriggers(QAbstractItemView.EditTrigger.NoEditTriggers)
        view.setMouseTracking(True)
        view.setAccessibleName("Runs")
        view.setAccessibleDescription("Space draws a run over the plots, Enter opens it, Delete deletes it")
        view.setContextMenuPolicy(Qt.ContextMenuPolicy.CustomContextMenu)
        view.customContextMenuRequested.connect(self._menu)
        view.doubleClicked.connect(lambda _: self._open())
        view.selectionModel().selectionChanged.connect(lambda *_: self._say())
        view.installEventFilter(self)
        self.empty.setParent(view)
        self.empty.setTextFormat(Qt.TextFormat.PlainText)
        self.empty.setWordWrap(True)
        self.empty.setProperty("role", "dim")
        self.empty.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        for text, key, call in (
            ("Open", Qt.Key.Key_Return, self._open),
            ("Open", Qt.Key.Key_Enter, self._open),
            ("Delete", Qt.Key.Key_Delete, self._delete),
        ):
            action = QAction(text, view)
            action.setShortcut(key)
            action.setShortcutContext(Qt.ShortcutContext.WidgetShortcut)
            action.triggered.connect(lambda _=False, call=call: call())
            view.addAction(action)

    def _build_buttons(self) -> None:
        for button, about, call in (
            (self.open, "Show the chosen run in the plots, with its knobs (Enter, double click)", self._open),
            (self.again, "Run the chosen run again, with its knobs and the changes that were made to it", self._again),
            (self.compare, "Two or more chosen runs in a table: which knobs differ, and what came of it", self._compare),
            (self.delete, "Take the chosen runs out of the library; it can be undone (Delete, then Ctrl+Z)", self._delete),
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
        current = self.list.currentIndex()
        if current.isValid() and self.chosen:
            over = current.data(RunList.SLOT) is not None
            menu.addAction("Take off the plots (Space)" if over else "Draw over the plots (Space)", self._tick)
            menu.addSeparator()
            for button, call in ((self.open, self._open), (self.again, self._again), (self.compare, self._compare), (self.delete, self._delete)):
                menu.addAction(button.text(), call).setEnabled(button.isEnabled())
            menu.addSeparator()
        menu.addAction("Undo the last deletion (Ctrl+Z)", self.undo_asked.emit)
        menu.popup(self.list.viewport().mapToGlobal(place))

    def _lay_out(self) -> None:
        choices, buttons, foot = QHBoxLayout(), QHBoxLayout(), QVBoxLayout()
        choices.setSpacing(0)
        for box in (self.sort, self.preset, self.outcome):
            choices.addWidget(box, 8 if box is self.sort else 10 if box is self.preset else 12)  # as long as their words
        buttons.setSpacing(6)
        for button in (self.open, self.again, self.compare, self.delete):
            buttons.addWidget(button, 1)
        self.count.setProperty("role", "dim")
        foot.setContentsMargins(12, 0, 12, 10)
        foot.setSpacing(6)
        foot.addWidget(self.count)
        foot.addWidget(self.notes)
        foot.addLayout(buttons)
        self.foot = QWidget()
        self.foot.setLayout(foot)
        head = QVBoxLayout()
        head.setContentsMargins(12, 4, 12, 0)
        head.setSpacing(6)
        head.addWidget(self.search)
        head.addLayout(choices)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(6)
        column.addLayout(head)
        column.addWidget(self.list, 1)
        column.addWidget(self.foot)

    def _place_empty(self) -> None:
        width = max(self.list.width() - 24, 0)
        self.empty.setGeometry(12, 12, width, self.empty.heightForWidth(width))

    def _restyle(self) -> None:
        self.rows.restyle()
        self.notes.fit()
        self.list.scheduleDelayedItemsLayout()
        self._place_empty()


def own_keys(event: QEvent, undo: Callable[[], object]) -> bool:
    """Keys that the window's menus have too: in a list Ctrl+Z brings back what was deleted, and Home goes to the first row."""
    if not isinstance(event, QKeyEvent):
        return False
    undoes = event.matches(QKeySequence.StandardKey.Undo)
    if event.type() == QEvent.Type.ShortcutOverride and (undoes or event.key() == Qt.Key.Key_Home):
        event.accept()  # as a key, then, and not as the menu's
        return True
    if event.type() == QEvent.Type.KeyPress and undoes:
        undo()
        return True
    return False
