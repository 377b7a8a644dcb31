"""The common part of the lists of runs and of branches: rows that stay in place, a box to draw each over the plots, and
the painted content of a row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from PySide6.QtCore import QAbstractListModel, QModelIndex, QPersistentModelIndex, Qt, Signal

from gradstudio.core.text import LONGEST_TITLE
from gradstudio.session.words.run_texts import RowTexts

Index = QModelIndex | QPersistentModelIndex
Role = Qt.ItemDataRole


@dataclass(frozen=True)
class Look:
    """A run as it is painted. `rails`: for each of its ancestors and last for itself, whether a sibling comes below."""

    words: RowTexts
    rails: tuple[bool, ...] = ()
    parent: bool = False  # whether it has branches
    current: bool = False  # whether the plots show it
    slot: int | None = None  # slot over the plots
    shown: bool = False  # whether it is drawn there and not hidden

    @property
    def depth(self) -> int:
        return len(self.rails)


class HasId(Protocol):
    @property
    def id(self) -> str: ...


Row = TypeVar("Row", bound=HasId)


class RowList(QAbstractListModel, Generic[Row]):
    """One row for each run. A refresh keeps the selection and the position of every row that stays. A subclass provides
    the content of a row."""

    ticked = Signal(str, bool)  # the user wants a run drawn over the plots, or no longer
    renamed = Signal(str, str)

    ROW = Role.UserRole
    LOOK = Role.UserRole + 1
    HAS_NOTES = Role.UserRole + 2  # whether a row has a third line

    can_rename = False

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[Row] = []

    def row_of(self, run: str) -> int:
        """Return the row of a run, or -1."""
        return next((row for row, listed in enumerate(self.rows) if listed.id == run), -1)

    # ---- provided by a subclass

    def look(self, listed: Row) -> Look:
        raise NotImplementedError

    def tip(self, listed: Row) -> str:
        """Return the tooltip, as rich text."""
        raise NotImplementedError

    def spoken(self, listed: Row) -> str:
        """Return all texts in one sentence, for a screen reader."""
        raise NotImplementedError

    def has_notes(self, listed: Row) -> bool:
        raise NotImplementedError

    # ---- called by Qt

    def rowCount(self, parent: Index = QModelIndex()) -> int:  # noqa: B008 (Qt's own signature)
        return 0 if parent.isValid() else len(self.rows)

    def flags(self, index: Index) -> Qt.ItemFlag:
        flag = Qt.ItemFlag
        flags = flag.ItemIsEnabled | flag.ItemIsSelectable | flag.ItemIsUserCheckable | flag.ItemNeverHasChildren
        return flags | flag.ItemIsEditable if self.can_rename else flags

    def data(self, index: Index, role: int = Role.DisplayRole) -> Any:
        if not 0 <= index.row() < len(self.rows):
            return None
        listed = self.rows[index.row()]
        match role:
            case self.ROW:
                return listed
            case self.LOOK:
                return self.look(listed)
            case self.HAS_NOTES:
                return self.has_notes(listed)
            case Role.DisplayRole | Role.EditRole:
                return self.look(listed).words.title
            case Role.ToolTipRole:
                return self.tip(listed)
            case Role.AccessibleTextRole:
                return self.spoken(listed)
            case Role.CheckStateRole:
                look = self.look(listed)
                return Qt.CheckState.Checked if look.shown or look.current else Qt.CheckState.Unchecked
        return None

    def setData(self, index: Index, value: Any, role: int = Role.EditRole) -> bool:
        if not 0 <= index.row() < len(self.rows):
            return False
        listed = self.rows[index.row()]
        if role == Role.CheckStateRole:
            self.ticked.emit(listed.id, Qt.CheckState(value) == Qt.CheckState.Checked)
            return True
        name = " ".join(str(value).split())[:LONGEST_TITLE]
        if role != Role.EditRole or not self.can_rename or name == self.look(listed).words.title:
            return False
        self.renamed.emit(listed.id, name)
        return True

    # ---- inside

    def _show(self, rows: Sequence[Row]) -> None:
        """Change the rows as little as possible: remove, add, sort, update."""
        kept = {listed.id for listed in rows}
        row = len(self.rows)
        while row:
            last = row
            while row and self.rows[row - 1].id not in kept:
                row -= 1
            if row < last:
                self.beginRemoveRows(QModelIndex(), row, last - 1)
                del self.rows[row:last]
                self.endRemoveRows()
            row -= row > 0
        known = {listed.id for listed in self.rows}
        if new := [listed for listed in rows if listed.id not in known]:
            self.beginInsertRows(QModelIndex(), len(self.rows), len(self.rows) + len(new) - 1)
            self.rows += new
            self.endInsertRows()
        before = [listed.id for listed in self.rows]
        places = {listed.id: place for place, listed in enumerate(rows)}
        if before != list(places):
            self.layoutAboutToBeChanged.emit()
            held = self.persistentIndexList()
            self.rows = [self.rows[row] for row in sorted(range(len(before)), key=lambda row: places[before[row]])]
            self.changePersistentIndexList(held, [self.index(places[before[index.row()]]) for index in held])
            self.layoutChanged.emit()
        changed = [row for row, (old, now) in enumerate(zip(self.rows, rows, strict=True)) if not same(old, now)]
        self.rows = list(rows)
        for row in changed:
            self.dataChanged.emit(self.index(row), self.index(row))


def same(one: object, other: object) -> bool:
    return one == other or repr(one) == repr(other)  # NaN does not equal itself
