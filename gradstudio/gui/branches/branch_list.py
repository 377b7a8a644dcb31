"""A run and its branches as a list: each below the run that it branched from, in the order in which they began."""

from __future__ import annotations

import math
from dataclasses import dataclass
from html import escape
from typing import Any

from PySide6.QtCore import QAbstractListModel, QModelIndex, QPersistentModelIndex, Qt, Signal

from gradstudio.core.text import LONGEST_TITLE, number, plural, strong
from gradstudio.gui.drawing.overlay import LETTERS, Overlays
from gradstudio.gui.runs.run_list import RunList
from gradstudio.session.record.branches import Family
from gradstudio.session.record.run import Run
from gradstudio.session.words.outcome_words import Outcome
from gradstudio.session.words.run_state import outcome
from gradstudio.session.words.run_texts import RowTexts

Index = QModelIndex | QPersistentModelIndex
Role = Qt.ItemDataRole


@dataclass(frozen=True)
class Member:
    """A run of the family as it is listed. `rails`: for each of its ancestors and last for itself, whether a sibling
    comes below."""

    id: str
    words: RowTexts
    tip: str  # rich text
    spoken: str
    rails: tuple[bool, ...] = ()
    parent: bool = False  # whether it has branches
    current: bool = False  # whether the plots show it
    slot: int | None = None  # place over the plots
    shown: bool = False  # whether it is drawn there and not hidden

    @property
    def depth(self) -> int:
        return len(self.rails)


class BranchList(QAbstractListModel):
    """One row for each run. A refresh keeps the selection and the place of every row that stays."""

    ticked = Signal(str, bool)  # a person wants a run drawn over the plots, or no longer
    renamed = Signal(str, str)

    MEMBER, SLOT, CURRENT = RunList.ENTRY, RunList.SLOT, RunList.CURRENT

    def __init__(self) -> None:
        super().__init__()
        self.members: list[Member] = []
        self._state: tuple = ()  # what the rows were made of
        self._told: dict[str, tuple[tuple, tuple[RowTexts, str, str]]] = {}  # texts of each run, and their state

    # ---- what is shown

    def take(self, family: Family, run: Run, overlays: Overlays) -> bool:
        """List this family, of which the plots show `run` and these over it; return whether anything has changed."""
        state = (tuple(map(_state, family.members.values())), run.id, dict(overlays.slots), frozenset(overlays.hidden))
        if state == self._state:
            return False
        self._state = state
        self._told = {id: told for id, told in self._told.items() if id in family.members}
        self._show(self._walk(family, run, overlays))
        return True

    def member(self, run: str) -> Member | None:
        return next((member for member in self.members if member.id == run), None)

    def row_of(self, run: str) -> int:
        """Return the row of a run, or -1."""
        return next((row for row, member in enumerate(self.members) if member.id == run), -1)

    # ---- Qt's questions

    def rowCount(self, parent: Index = QModelIndex()) -> int:  # noqa: B008 (Qt's own signature)
        return 0 if parent.isValid() else len(self.members)

    def flags(self, index: Index) -> Qt.ItemFlag:
        flag = Qt.ItemFlag
        return (
            flag.ItemIsEnabled
            | flag.ItemIsSelectable
            | flag.ItemIsUserCheckable
            | flag.ItemIsEditable
            | flag.ItemNeverHasChildren
        )

    def data(self, index: Index, role: int = Role.DisplayRole) -> Any:
        if not 0 <= index.row() < len(self.members):
            return None
        member = self.members[index.row()]
        match role:
            case Role.DisplayRole | Role.EditRole:
                return member.words.title
            case Role.ToolTipRole:
                return member.tip
            case Role.AccessibleTextRole:
                return member.spoken
            case Role.CheckStateRole:
                return Qt.CheckState.Checked if member.shown or member.current else Qt.CheckState.Unchecked
            case self.MEMBER:
                return member
            case self.SLOT:
                return member.slot
            case self.CURRENT:
                return member.current
        return None

    def setData(self, index: Index, value: Any, role: int = Role.EditRole) -> bool:
        if not 0 <= index.row() < len(self.members):
            return False
        member = self.members[index.row()]
        if role == Role.CheckStateRole:
            self.ticked.emit(member.id, Qt.CheckState(value) == Qt.CheckState.Checked)
        elif role == Role.EditRole:
            name = " ".join(str(value).split())[:LONGEST_TITLE]
            if name == member.words.title:
                return False
            self.renamed.emit(member.id, name)
        else:
            return False
        return True

    # ---- inside

    def _walk(self, family: Family, shown: Run, overlays: Overlays) -> list[Member]:
        """Return the family, each run below the one that it branched from."""
        slots, hidden, found = overlays.slots, overlays.hidden, []
        branches: dict[str, list[Run]] = {}
        for run in family.members.values():
            branches.setdefault(run.parent if run.parent in family.members else "", []).append(run)
        for parent, runs in branches.items():
            if parent:
                runs.sort(key=lambda run: run.started)
            else:  # of twins the one that is shown comes first, and after them branches whose parent is not here
                runs.sort(key=lambda run: run.started if run.parent else 0.0)
        waiting: list[tuple[Run, tuple[bool, ...]]] = [(run, ()) for run in reversed(branches.get("", []))]
        while waiting:
            run, rails = waiting.pop()
            slot, current = slots.get(run.id), run is shown
            drawn = slot is not None and slot not in hidden
            words, tip, spoken = self._words(family, run)
            if current:
                spoken = f"{spoken}, the run that the plots show"
            elif slot is not None:
                spoken = f"{spoken}, {LETTERS[slot]} over the plots" + ("" if drawn else ", hidden")
            under = branches.get(run.id, [])
            found.append(Member(run.id, words, tip, spoken, rails, bool(under), current, slot, drawn))
            waiting += reversed([(branch, (*rails, branch is not under[-1])) for branch in under])
        return found

    def _words(self, family: Family, run: Run) -> tuple[RowTexts, str, str]:
        """Return the texts, tooltip and spoken text of a run, made anew only where they change."""
        parent = self._told[run.parent][1][0].title if run.parent in family.members else run.parent
        state = (_state(run), parent)
        if run.id not in self._told or self._told[run.id][0] != state:
            self._told[run.id] = (state, _told(run, parent))
        return self._told[run.id][1]

    def _show(self, members: list[Member]) -> None:
        """Change the rows as little as possible: remove, then add or move each to its place, then update."""
        wanted = {member.id for member in members}
        for row in reversed(range(len(self.members))):
            if self.members[row].id not in wanted:
                self.beginRemoveRows(QModelIndex(), row, row)
                del self.members[row]
                self.endRemoveRows()
        for row, member in enumerate(members):
            at = self.row_of(member.id)
            if at == row:
                if self.members[row] != member:
                    self.members[row] = member
                    self.dataChanged.emit(self.index(row), self.index(row))
            elif at < 0:
                self.beginInsertRows(QModelIndex(), row, row)
                self.members.insert(row, member)
                self.endInsertRows()
            else:
                self.beginMoveRows(QModelIndex(), at, at, QModelIndex(), row)
                del self.members[at]
                self.members.insert(row, member)
                self.endMoveRows()


def title(run: Run) -> str:
    """Return a run's name, or what distinguishes it from the others of its family."""
    return run.name or (_auto(run) if run.parent else run.preset.title)


def _auto(run: Run) -> str:
    """Return what changed where the branch begins."""
    stands = run.what_changed == "no change" and _stands(run)
    return f"standing at step {run.parent_step:,}" if stands else run.default_name


def _stands(run: Run) -> bool:
    """Return whether a run was rewound and has made no step since."""
    return bool(run.parent) and not run.own and not run.over


def _state(run: Run) -> tuple:
    """Return everything that the texts of a run are made of."""
    return run.id, run.name, outcome(run), run.status, len(run.history), run.first_nonfinite_step, run.in_force


def _told(run: Run, parent: str) -> tuple[RowTexts, str, str]:
    """Return the texts, tooltip and spoken text of a run; `parent` is the title of the run that it branched from."""
    name, line, came = title(run), _line(run), outcome(run)
    if _stands(run) and run.status == "starting":
        came = Outcome("rewinding", "accent")
    changed = _auto(run) if run.parent and run.name else ""
    words = RowTexts(name, came, line, note=changed)
    told = [text for text in (changed, f"branched from {parent}" if parent else "", line, came.word) if text]
    tip = f"<p>{strong(escape(name))}<br>{'<br>'.join(escape(text) for text in told)}</p><p>{escape(run.id)}</p>"
    return words, tip, ", ".join([name, *told]).replace(" · ", ", ")


def _line(run: Run) -> str:
    """Return the second line of a row: first step, length, and how it went."""
    if _stands(run):
        if run.status == "starting":
            return f"on the way to step {run.parent_step:,}"
        return (
            "change a knob and press Run"
            if run.what_changed == "no change"
            else f"standing at step {run.parent_step:,}: press Run"
        )
    count, broke = len(run.history), run.first_nonfinite_step
    loss = run.history.value("loss", count - 1) if count else math.nan
    parts = [
        f"from step {run.parent_step:,}" if run.parent else "",
        plural(count, "step", "steps"),
        f"loss {number(loss)}" if math.isfinite(loss) and broke is None else "",
        f"diverged at {broke:,}" if broke is not None else "",
    ]
    return " · ".join(part for part in parts if part)
