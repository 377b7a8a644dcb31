"""The runs of the library as a list: which of them are listed, and which are drawn over the plots."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from PySide6.QtCore import QAbstractListModel, QModelIndex, QPersistentModelIndex, Qt, Signal

from gradstudio.gui.runs.run_search import RunSearch
from gradstudio.session.library.store import Entry, searched
from gradstudio.session.words import run_texts

Index = QModelIndex | QPersistentModelIndex
Role = Qt.ItemDataRole


class RunList(QAbstractListModel):
    """One row for each run. A refresh keeps the selection and the place of every row that stays."""

    ticked = Signal(str, bool)  # a person wants a run drawn over the plots, or no longer

    marked = Signal()  # other runs are drawn over the plots, or the plots show another

    ENTRY = Role.UserRole
    SLOT = Role.UserRole + 1  # place among the runs that are drawn over the plots, or None
    CURRENT = Role.UserRole + 2  # whether the plots show this run

    def __init__(self) -> None:
        super().__init__()
        self.all: list[Entry] = []
        self.search = RunSearch()
        self._texts: list[str] = []
        self._shown: list[Entry] = []
        self._slots: dict[str, int] = {}
        self._current = ""

    # ---- what is shown

    def take(self, entries: Sequence[Entry]) -> None:
        """List these runs from now on."""
        if len(entries) == len(self.all) and all(map(_same, entries, self.all)):
            return
        self.all = list(entries)
        self._texts = [f"{searched(entry)} {run_texts.outcome(entry)[0]}" for entry in self.all]
        self._show(self.search.found(self.all, self._texts))

    def find(self, search: RunSearch) -> None:
        """List the runs that match."""
        if search != self.search:
            self.search = search
            self._show(search.found(self.all, self._texts))

    def mark(self, slots: dict[str, int], current: str) -> None:
        """Mark the runs that are drawn over the plots, each in its place, and the run that the plots show."""
        if slots != self._slots or current != self._current:
            self._slots, self._current = dict(slots), current
            self.marked.emit()
            if self._shown:
                self.dataChanged.emit(self.index(0), self.index(len(self._shown) - 1))

    @property
    def drawn(self) -> list[str]:
        """Runs of the library that the plots show: first the one that they are about, then those over it."""
        ids = {entry.id for entry in self.all}
        return [run for run in dict.fromkeys((self._current, *self._slots)) if run in ids]

    def entry(self, run: str) -> Entry | None:
        return next((entry for entry in self.all if entry.id == run), None)

    def row_of(self, run: str) -> int:
        """Return the row of a run, or -1."""
        return next((row for row, entry in enumerate(self._shown) if entry.id == run), -1)

    # ---- Qt's questions

    def rowCount(self, parent: Index = QModelIndex()) -> int:  # noqa: B008 (Qt's own signature)
        return 0 if parent.isValid() else len(self._shown)

    def flags(self, index: Index) -> Qt.ItemFlag:
        return (
            Qt.ItemFlag.ItemIsEnabled
            | Qt.ItemFlag.ItemIsSelectable
            | Qt.ItemFlag.ItemIsUserCheckable
            | Qt.ItemFlag.ItemNeverHasChildren
        )

    def data(self, index: Index, role: int = Role.DisplayRole) -> Any:
        if not 0 <= index.row() < len(self._shown):
            return None
        entry = self._shown[index.row()]
        answer = _ANSWERS.get(role)
        return answer(self, entry) if answer else None

    def setData(self, index: Index, value: Any, role: int = Role.EditRole) -> bool:
        if role != Role.CheckStateRole or not 0 <= index.row() < len(self._shown):
            return False
        self.ticked.emit(self._shown[index.row()].id, Qt.CheckState(value) == Qt.CheckState.Checked)
        return True

    # ---- inside

    def _show(self, entries: list[Entry]) -> None:
        """Change the rows as little as possible: remove, add, sort, update."""
        kept = {entry.id for entry in entries}
        row = len(self._shown)
        while row:
            last = row
            while row and self._shown[row - 1].id not in kept:
                row -= 1
            if row < last:
                self.beginRemoveRows(QModelIndex(), row, last - 1)
                del self._shown[row:last]
                self.endRemoveRows()
            row -= row > 0
        known = {entry.id for entry in self._shown}
        if new := [entry for entry in entries if entry.id not in known]:
            self.beginInsertRows(QModelIndex(), len(self._shown), len(self._shown) + len(new) - 1)
            self._shown += new
            self.endInsertRows()
        before = [entry.id for entry in self._shown]
        places = {entry.id: place for place, entry in enumerate(entries)}
        if before != list(places):
            self.layoutAboutToBeChanged.emit()
            held = self.persistentIndexList()
            self._shown = [self._shown[row] for row in sorted(range(len(before)), key=lambda row: places[before[row]])]
            self.changePersistentIndexList(held, [self.index(places[before[index.row()]]) for index in held])
            self.layoutChanged.emit()
        changed = [row for row, (old, now) in enumerate(zip(self._shown, entries, strict=True)) if not _same(old, now)]
        self._shown = entries
        for row in changed:
            self.dataChanged.emit(self.index(row), self.index(row))

    def _check_state(self, entry: Entry) -> Qt.CheckState:
        return Qt.CheckState.Checked if entry.id in self._slots else Qt.CheckState.Unchecked


_ANSWERS: dict[int, Callable[[RunList, Entry], Any]] = {
    Role.DisplayRole: lambda model, entry: entry.title,
    Role.ToolTipRole: lambda model, entry: run_texts.tip(entry),
    Role.AccessibleTextRole: lambda model, entry: run_texts.spoken(entry, time.time()),
    Role.CheckStateRole: RunList._check_state,
    RunList.ENTRY: lambda model, entry: entry,
    RunList.SLOT: lambda model, entry: model._slots.get(entry.id),
    RunList.CURRENT: lambda model, entry: entry.id == model._current,
}


def _same(one: Entry, other: Entry) -> bool:
    return one == other or repr(one) == repr(other)  # NaN does not equal itself
