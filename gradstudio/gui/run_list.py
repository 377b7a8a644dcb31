"""The runs of the library as a list: which of them are shown, in which order, and which are drawn over the plots."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from PySide6.QtCore import QAbstractListModel, QModelIndex, QPersistentModelIndex, Qt, Signal

from gradstudio.gui import run_words
from gradstudio.session.library.store import Entry, searched

Index = QModelIndex | QPersistentModelIndex
Role = Qt.ItemDataRole

SORTS: dict[str, tuple[str, Callable[[Entry], Any]]] = {
    "newest": ("Newest", lambda entry: (-entry.started, entry.id)),
    "loss": ("Lowest loss", lambda entry: (_loss(entry), -entry.started, entry.id)),
    "steps": ("Most steps", lambda entry: (-entry.steps, -entry.started, entry.id)),
    "title": ("Title", lambda entry: (entry.title.casefold(), -entry.started, entry.id)),
}


@dataclass(frozen=True)
class Wanted:
    """Which runs are to be listed, and how. An empty filter lets everything through."""

    search: str = ""
    sort: str = "newest"
    preset: str = ""
    outcome: str = ""  # the word for it

    def of(self, entries: Sequence[Entry], texts: Sequence[str]) -> list[Entry]:
        """`texts`: what is searched of each entry."""
        words = self.search.casefold().split()
        found = [
            entry
            for entry, text in zip(entries, texts, strict=True)
            if (not self.preset or entry.preset == self.preset)
            and (not self.outcome or run_words.outcome(entry)[0] == self.outcome)
            and all(word in text for word in words)
        ]
        return sorted(found, key=SORTS[self.sort][1])


class RunList(QAbstractListModel):
    """A row a run. What a refresh leaves as it was stays chosen and in its place."""

    ticked = Signal(str, bool)  # a person wants a run drawn over the plots, or not any more

    ENTRY = Role.UserRole
    SLOT = Role.UserRole + 1  # the place among the runs that are drawn over the plots, or None
    CURRENT = Role.UserRole + 2  # whether it is the run that the plots show

    def __init__(self) -> None:
        super().__init__()
        self.all: list[Entry] = []
        self.wanted = Wanted()
        self._texts: list[str] = []
        self._shown: list[Entry] = []
        self._slots: dict[str, int] = {}
        self._current = ""

    # ---- what is shown

    def take(self, entries: Sequence[Entry]) -> None:
        """These are the runs there are."""
        if len(entries) == len(self.all) and all(map(_same, entries, self.all)):
            return
        self.all = list(entries)
        self._texts = [f"{searched(entry)} {run_words.outcome(entry)[0]}" for entry in self.all]
        self._show(self.wanted.of(self.all, self._texts))

    def want(self, wanted: Wanted) -> None:
        if wanted != self.wanted:
            self.wanted = wanted
            self._show(wanted.of(self.all, self._texts))

    def mark(self, slots: dict[str, int], current: str) -> None:
        """Which runs are drawn over the plots, each in its place, and which one the plots show."""
        if slots != self._slots or current != self._current:
            self._slots, self._current = dict(slots), current
            if self._shown:
                self.dataChanged.emit(self.index(0), self.index(len(self._shown) - 1))

    def entry(self, run: str) -> Entry | None:
        return next((entry for entry in self.all if entry.id == run), None)

    def row_of(self, run: str) -> int:
        """Where it stands in the list, or -1."""
        return next((row for row, entry in enumerate(self._shown) if entry.id == run), -1)

    # ---- Qt's questions

    def rowCount(self, parent: Index = QModelIndex()) -> int:  # noqa: B008 (Qt's own signature)
        return 0 if parent.isValid() else len(self._shown)

    def flags(self, index: Index) -> Qt.ItemFlag:
        return Qt.ItemFlag.ItemIsEnabled | Qt.ItemFlag.ItemIsSelectable | Qt.ItemFlag.ItemIsUserCheckable | Qt.ItemFlag.ItemNeverHasChildren

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
        """Bring the rows into line with the least stir: remove, add, put in order, change."""
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
    Role.ToolTipRole: lambda model, entry: run_words.tip(entry),
    Role.AccessibleTextRole: lambda model, entry: run_words.spoken(entry, time.time()),
    Role.CheckStateRole: RunList._check_state,
    RunList.ENTRY: lambda model, entry: entry,
    RunList.SLOT: lambda model, entry: model._slots.get(entry.id),
    RunList.CURRENT: lambda model, entry: entry.id == model._current,
}


def _loss(entry: Entry) -> float:
    """For sorting: a run without a finite loss comes last."""
    return entry.final_loss if entry.final_loss is not None and math.isfinite(entry.final_loss) else math.inf


def _same(one: Entry, other: Entry) -> bool:
    return one == other or repr(one) == repr(other)  # a NaN does not equal itself
