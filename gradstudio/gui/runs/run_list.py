"""The runs of the library as a list: the listed ones, and those drawn over the plots."""

from __future__ import annotations

import time
from collections.abc import Sequence

from PySide6.QtCore import Signal

from gradstudio.gui.runs.row_list import Look, RowList, same
from gradstudio.gui.runs.run_search import RunSearch
from gradstudio.session.library.run_entries import Entry, searchable_text
from gradstudio.session.words import run_texts


class RunList(RowList[Entry]):
    marked = Signal()  # other runs are drawn over the plots, or the plots show another

    def __init__(self) -> None:
        super().__init__()
        self.all: list[Entry] = []
        self.search = RunSearch()
        self._texts: list[str] = []
        self._slots: dict[str, int] = {}
        self._current = ""

    def take(self, entries: Sequence[Entry]) -> None:
        """List these runs from now on."""
        if len(entries) == len(self.all) and all(map(same, entries, self.all)):
            return
        self.all = list(entries)
        self._texts = [f"{searchable_text(entry)} {run_texts.outcome(entry)[0]}" for entry in self.all]
        self._show(self.search.matches(self.all, self._texts))

    def find(self, search: RunSearch) -> None:
        """List the runs that match."""
        if search != self.search:
            self.search = search
            self._show(search.matches(self.all, self._texts))

    def mark(self, slots: dict[str, int], current: str) -> None:
        """Mark the runs that are drawn over the plots, each with its slot, and the run that the plots show."""
        if slots != self._slots or current != self._current:
            self._slots, self._current = dict(slots), current
            self.marked.emit()
            if self.rows:
                self.dataChanged.emit(self.index(0), self.index(len(self.rows) - 1))

    @property
    def plotted_runs(self) -> list[str]:
        """Runs of the library that the plots show: first the main one, then those over it."""
        ids = {entry.id for entry in self.all}
        return [run for run in dict.fromkeys((self._current, *self._slots)) if run in ids]

    def entry(self, run: str) -> Entry | None:
        return next((entry for entry in self.all if entry.id == run), None)

    def look(self, listed: Entry) -> Look:
        slot = self._slots.get(listed.id)
        words = run_texts.words(listed, time.time())
        return Look(words, current=listed.id == self._current, slot=slot, shown=slot is not None)

    def tip(self, listed: Entry) -> str:
        return run_texts.tip(listed)

    def spoken(self, listed: Entry) -> str:
        return run_texts.spoken(listed, time.time())

    def has_notes(self, listed: Entry) -> bool:
        return bool(listed.tags or listed.note)
