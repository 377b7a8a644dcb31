"""The page Runs: the runs of the library, to find, view, annotate, reopen, overlay, compare, delete.

It queries the library only while it is shown, and only for changes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from PySide6.QtCore import QEvent, QObject, Qt, QTimer, Signal
from PySide6.QtGui import QHideEvent, QKeyEvent, QShowEvent
from PySide6.QtWidgets import QAbstractItemView, QComboBox, QHBoxLayout, QMenu, QPushButton, QWidget

from gradstudio.core.text import plural
from gradstudio.gui.runs import run_search
from gradstudio.gui.runs.list_panel import ListPanel
from gradstudio.gui.runs.notes_editor import NotesEditor
from gradstudio.gui.runs.run_list import RunList
from gradstudio.gui.runs.run_list_view import list_button
from gradstudio.gui.runs.run_search import SORTS, RunSearch
from gradstudio.gui.widgets import popups
from gradstudio.gui.widgets.list_keys import key
from gradstudio.gui.widgets.menu_arrow import add_arrow
from gradstudio.gui.widgets.rows import in_column
from gradstudio.gui.widgets.search_line import SearchLine
from gradstudio.session.library.run_entries import Entry
from gradstudio.session.words import run_texts

LOOK_EVERY = 2000  # ms between two checks of the library
EMPTY = (
    "Every run is kept here: its knobs, its curves, its findings, and how it ended.\n\nPress Run, and the first one "
    "appears."
)
NO_MATCH = "No run matches this search and these filters."
ANY_PRESET, ANY_OUTCOME = "All presets", "All outcomes"
ABOUT_KEYS = f"{key('draw')} draws a run over the plots, {key('open')} opens it, {key('delete')} deletes it"


class RunsPanel(ListPanel):
    look_asked = Signal()  # whether the library has changed
    open_asked, again_asked = Signal(str), Signal(str)
    compare_asked, delete_asked = Signal(list), Signal(list)
    tags_asked, reports_asked, draw_asked = Signal(list), Signal(list), Signal(list)  # entries

    def __init__(self) -> None:
        self.model = RunList()
        super().__init__(self.model, "Runs", ABOUT_KEYS, EMPTY)
        self.search = SearchLine(
            "Find runs", "Lists the runs that have all these words in title, preset, outcome, note or tags"
        )
        self.sort, self.preset, self.outcome = QComboBox(), QComboBox(), QComboBox()
        self.notes = NotesEditor()
        self.saved = QPushButton("Saved")
        add_arrow(self.saved)
        self._build_choices()
        self.list.setSelectionMode(QAbstractItemView.SelectionMode.ExtendedSelection)
        self._add_keys({"open": self._open, "delete": self._delete})
        self._lay_out(self.notes, self._buttons(), above=self._head(), restyle=self.notes.fit)
        self.model.marked.connect(self._show_state)
        self._timer = QTimer(self, interval=LOOK_EVERY)
        self._timer.timeout.connect(self.look_asked)
        self._show_state()

    # ---- content

    def take(self, entries: Sequence[Entry]) -> None:
        """List these runs from now on."""
        self.model.take(entries)
        self._offer(self.preset, ANY_PRESET, {entry.preset for entry in entries})
        self._offer(self.outcome, ANY_OUTCOME, {run_texts.outcome(entry)[0] for entry in entries})
        self._show_state()

    @property
    def chosen(self) -> list[Entry]:
        """Selected runs, from top to bottom."""
        indexes = sorted(self.list.selectionModel().selectedIndexes(), key=lambda index: index.row())
        return [index.data(RunList.ROW) for index in indexes]

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self.look_asked.emit()
        self._timer.start()

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        self._timer.stop()
        self.notes.save()

    # ---- the user's actions

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        pressed = event.key() if isinstance(event, QKeyEvent) and event.type() == QEvent.Type.KeyPress else None
        if watched is self.search and pressed == Qt.Key.Key_Down:
            self.list.setFocus()
            if not self.list.currentIndex().isValid():
                self.list.setCurrentIndex(self.model.index(0))
            return True
        return False

    def _open(self) -> None:
        if len(self.chosen) == 1:
            self.open_asked.emit(self.chosen[0].id)

    def _again(self) -> None:
        if len(self.chosen) == 1:
            self.again_asked.emit(self.chosen[0].id)

    def _compare(self) -> None:
        if len(self.to_compare) > 1:
            self.compare_asked.emit(self.to_compare)

    @property
    def to_compare(self) -> list[str]:
        """Runs that are compared: the chosen rows if there are several, or else the run in the plots with the ticked
        ones."""
        chosen = [entry.id for entry in self.chosen]
        return chosen if len(chosen) > 1 else self.model.plotted_runs

    def _delete(self) -> None:
        if self.chosen:
            self.delete_asked.emit([entry.id for entry in self.chosen])

    def _search(self) -> None:
        """List the runs that match the search and the filters."""
        self.model.find(self._query)
        self._show_state()

    def apply(self, search: RunSearch) -> None:
        """Apply a saved search."""
        for box, value in ((self.preset, search.preset), (self.outcome, search.outcome)):
            if value and box.findData(value) < 0:
                box.addItem(value, value)
        self.search.setText(search.words)
        for box, value in ((self.sort, search.sort), (self.preset, search.preset), (self.outcome, search.outcome)):
            box.setCurrentIndex(max(box.findData(value), 0))

    @property
    def _query(self) -> RunSearch:
        return RunSearch(
            self.search.text(),
            self.sort.currentData(),
            self.preset.currentData() or "",
            self.outcome.currentData() or "",
        )

    def _show_saved(self) -> None:
        """Show the saved searches as a menu under their button."""
        menu, searches = popups.context_menu(self.saved), run_search.load_searches()
        for name, search in searches.items():
            menu.addAction(name.replace("&", "&&"), partial(self.apply, search))
        if searches:
            menu.addSeparator()
        menu.addAction("Save this search…", self._ask_name)
        for name in [name for name, search in searches.items() if search == self._query]:
            menu.addAction(f"Forget “{name}”".replace("&", "&&"), partial(self._forget, name))
        menu.popup(self.saved.mapToGlobal(self.saved.rect().bottomLeft()))

    def _ask_name(self) -> None:
        dialog = popups.input_dialog(self, "Save this search", "Its name")
        dialog.setTextValue(" · ".join(filter(None, (self._query.words, self._query.preset, self._query.outcome)))[:60])
        dialog.textValueSelected.connect(self.save_search)
        dialog.open()

    def save_search(self, name: str) -> None:
        """Save the current search under a name; an existing one with that name is replaced."""
        if name := " ".join(name.split())[: run_search.LONGEST]:
            run_search.keep_searches({**run_search.load_searches(), name: self._query})

    def _forget(self, name: str) -> None:
        run_search.keep_searches({each: search for each, search in run_search.load_searches().items() if each != name})

    def _show_state(self) -> None:
        """Show the count, the notes and the possible commands for the chosen runs."""
        chosen, shown, all_of_them = self.chosen, self.model.rowCount(), len(self.model.all)
        for button, fits in (
            (self.open, len(chosen) == 1),
            (self.again, len(chosen) == 1),
            (self.compare, len(self.to_compare) > 1),
            (self.delete, bool(chosen)),
        ):
            button.setEnabled(fits)
            button.setVisible(fits)  # no dead buttons there
        self.compare.setText(f"Compare {len(self.to_compare)}")
        self.notes.setVisible(len(chosen) == 1)
        several = f", {len(chosen)} chosen" if len(chosen) > 1 else ""
        text = (
            plural(all_of_them, "run", "runs")
            if shown == all_of_them
            else f"{shown:,} of {plural(all_of_them, 'run', 'runs')}"
        )
        self.count.setText(f"{text}{several}" if all_of_them else "")
        self.notes.show_notes(self.model.entry(chosen[0].id) if len(chosen) == 1 else None)
        self.list.show_empty(not shown, NO_MATCH if all_of_them else EMPTY)
        self.foot.setVisible(bool(all_of_them))

    # ---- inside

    def _offer(self, box: QComboBox, everything: str, names: set[str]) -> None:
        """Offer these names as the choices of a filter, including the current one."""
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
            (self.sort, "Order of the runs", "Sorts the runs; the loss is that of the last step"),
            (self.preset, "Preset", "Lists only the runs of this preset"),
            (self.outcome, "Outcome", "Lists only the runs that ended like this"),
        ):
            box.setObjectName("small")
            box.setAccessibleName(name)
            box.setAccessibleDescription(f"{name}: {about}")
            box.setToolTip(about)
            box.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)
            box.setMinimumContentsLength(2)
            box.currentIndexChanged.connect(self._search)
        self._offer(self.preset, ANY_PRESET, set())
        self._offer(self.outcome, ANY_OUTCOME, set())
        self.search.textChanged.connect(self._search)
        self.saved.setProperty("role", "remedy")
        self.saved.setAccessibleName("Saved searches")
        self.saved.setToolTip("Searches that you have saved, with their filters and order; saves this one")
        self.saved.setAccessibleDescription(self.saved.toolTip())
        self.saved.clicked.connect(self._show_saved)
        self.search.installEventFilter(self)  # Down moves to the list

    def _buttons(self) -> QHBoxLayout:
        self.open = list_button(
            "Open", f"Shows the chosen run in the plots, with its knobs ({key('open')}, double click)", self._open
        )
        self.again = list_button(
            "Run again", "Runs the chosen run again from step 0, with its knobs and its timeline", self._again
        )
        self.compare = list_button(
            "Compare",
            "Shows the curves of the chosen runs, or else of the run in the plots and the ticked ones, in which knobs "
            "they differ, and what came of it",
            self._compare,
        )
        self.delete = list_button(
            "Delete",
            f"Deletes the chosen runs from the library ({key('delete')}); {key('undo')} undoes it",
            self._delete,
        )
        buttons = QHBoxLayout()
        buttons.setSpacing(6)
        for button in (self.open, self.again, self.compare, self.delete):
            buttons.addWidget(button, 1)
        return buttons

    def _fill_menu(self, menu: QMenu) -> None:
        current = self.list.currentIndex()
        if not current.isValid() or not self.chosen:
            return
        draw = "Draw over plots" if current.data(RunList.LOOK).slot is None else "Take off plots"
        menu.addAction(f"{draw} ({key('draw')})", self.list.tick_current)
        menu.addSeparator()
        for button in (self.open, self.again, self.compare, self.delete):
            menu.addAction(button.text(), button.click).setEnabled(button.isEnabled())
        menu.addSeparator()
        several = len(self.chosen) > 1
        menu.addAction("Draw all over plots", partial(self.draw_asked.emit, self.chosen)).setEnabled(several)
        menu.addAction("Add or remove tags…", partial(self.tags_asked.emit, self.chosen))
        menu.addAction("Write reports…", partial(self.reports_asked.emit, self.chosen))
        menu.addSeparator()

    def _head(self) -> QWidget:
        """Return the part above the list: the search, and the choices below it."""
        choices, line, top = QHBoxLayout(), QHBoxLayout(), QWidget()
        choices.setSpacing(0)
        for box, wide in ((self.sort, 10), (self.preset, 11), (self.outcome, 13)):  # as long as the choices
            choices.addWidget(box, wide)
        head = in_column(of=top, margins=(12, 4, 12, 0), spacing=6)
        line.addWidget(self.search, 1)
        line.addWidget(self.saved)
        head.addLayout(line)
        head.addLayout(choices)
        return top
