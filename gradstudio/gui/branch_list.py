"""A run and all that branched from it as a list: each under what it branched from, in the order in which they did."""

from __future__ import annotations

import math
from dataclasses import dataclass
from html import escape
from typing import Any

from PySide6.QtCore import QAbstractListModel, QModelIndex, QPersistentModelIndex, Qt, Signal

from gradstudio.core.text import number, plural
from gradstudio.gui.plots.overlay import LETTERS, Overlays
from gradstudio.gui.run_list import RunList
from gradstudio.gui.run_words import OUTCOMES, Words
from gradstudio.session.branches import Family
from gradstudio.session.library.store import LONGEST_TITLE
from gradstudio.session.run import Run

Index = QModelIndex | QPersistentModelIndex
Role = Qt.ItemDataRole


@dataclass(frozen=True)
class Member:
    """A run of the family as it is listed. `rails`: for each run that it stems from, itself the last, whether another comes after it."""

    id: str
    words: Words
    tip: str  # a rich text
    spoken: str
    rails: tuple[bool, ...] = ()
    parent: bool = False  # whether anything branched from it
    current: bool = False  # whether it is the run that the plots show
    slot: int | None = None  # its place over the plots
    shown: bool = False  # whether it is drawn there, and not hidden just now

    @property
    def depth(self) -> int:
        return len(self.rails)


class BranchList(QAbstractListModel):
    """A row a run. What a refresh leaves as it was stays chosen and in its place."""

    ticked = Signal(str, bool)  # a person wants a run drawn over the plots, or not any more
    renamed = Signal(str, str)

    MEMBER, SLOT, CURRENT = RunList.ENTRY, RunList.SLOT, RunList.CURRENT

    def __init__(self) -> None:
        super().__init__()
        self.members: list[Member] = []
        self._state: tuple = ()  # of what is shown
        self._told: dict[str, tuple[tuple, tuple[Words, str, str]]] = {}  # of each run its words, and what they were made of

    # ---- what is shown

    def take(self, family: Family, run: Run, overlays: Overlays) -> bool:
        """The plots show this run of this family, and these over it. Gives whether anything was to be changed."""
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
        """Where it stands in the list, or -1."""
        return next((row for row, member in enumerate(self.members) if member.id == run), -1)

    # ---- Qt's questions

    def rowCount(self, parent: Index = QModelIndex()) -> int:  # noqa: B008 (Qt's own signature)
        return 0 if parent.isValid() else len(self.members)

    def flags(self, index: Index) -> Qt.ItemFlag:
        flag = Qt.ItemFlag
        return flag.ItemIsEnabled | flag.ItemIsSelectable | flag.ItemIsUserCheckable | flag.ItemIsEditable | flag.ItemNeverHasChildren

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
        """Every run behind the one that it branched from."""
        slots, hidden, found = overlays.slots, overlays.hidden, []
        branches: dict[str, list[Run]] = {}
        for run in family.members.values():
            branches.setdefault(run.parent if run.parent in family.members else "", []).append(run)
        for parent, runs in branches.items():
            if parent:  # of twins the one that is shown comes first
                runs.sort(key=lambda run: run.started)
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

    def _words(self, family: Family, run: Run) -> tuple[Words, str, str]:
        """What is written, told and spoken of a run, made anew only where it says something else."""
        parent = self._told[run.parent][1][0].title if run.parent in family.members else run.parent
        state = (_state(run), parent)
        if run.id not in self._told or self._told[run.id][0] != state:
            self._told[run.id] = (state, _told(run, parent))
        return self._told[run.id][1]

    def _show(self, members: list[Member]) -> None:
        """Bring the rows into line with the least stir: remove, then add or move each to its place, then change."""
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
    """A run's name, or what tells it from the others of its family."""
    return run.name or (_auto(run) if run.parent else run.preset.title)


def _auto(run: Run) -> str:
    """What changed at the fork."""
    changed = run.what_changed
    return f"standing at step {run.parent_step:,}" if changed == "no change" and _stands(run) else changed


def _stands(run: Run) -> bool:
    """Whether it was taken back to a step and has not gone on yet."""
    return bool(run.parent) and not run.own and not run.over


def _state(run: Run) -> tuple:
    """All that the words for a run are made of, or what changes with it."""
    return run.id, run.name, run.status, len(run.history), run.first_nonfinite_step, run.in_force


def _told(run: Run, parent: str) -> tuple[Words, str, str]:
    """What is written, told and spoken of it; `parent` is what it branched from."""
    name, line, outcome = title(run), _line(run), OUTCOMES[run.status]
    if _stands(run) and run.status == "starting":
        outcome = ("going back", "accent")
    changed = _auto(run) if run.parent and run.name else ""
    words = Words(name, outcome, line, note=changed)
    told = [text for text in (changed, f"branched from {parent}" if parent else "", line, outcome[0]) if text]
    tip = f"<p><b>{escape(name)}</b><br>{'<br>'.join(escape(text) for text in told)}</p><p>{escape(run.id)}</p>"
    return words, tip, ", ".join([name, *told]).replace(" · ", ", ")


def _line(run: Run) -> str:
    """The second line: from where on, how far, and how it went."""
    if _stands(run):
        if run.status == "starting":
            return f"on the way to step {run.parent_step:,}"
        return "change a knob and press Run" if run.what_changed == "no change" else f"standing at step {run.parent_step:,}: press Run"
    count, broke = len(run.history), run.first_nonfinite_step
    loss = run.history.value("loss", count - 1) if count else math.nan
    parts = [
        f"from step {run.parent_step:,}" if run.parent else "",
        plural(count, "step", "steps"),
        f"loss {number(loss)}" if math.isfinite(loss) and broke is None else "",
        f"diverged at {broke:,}" if broke is not None else "",
    ]
    return " · ".join(part for part in parts if part)
