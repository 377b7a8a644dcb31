"""A run and its branches as a list: each below the run that it branched from, in the order in which they began."""

from __future__ import annotations

import math
from dataclasses import dataclass
from html import escape

from gradstudio.core.text import number, plural, strong
from gradstudio.gui.drawing.overlay import LETTERS, Overlays
from gradstudio.gui.runs.row_list import Look, RowList
from gradstudio.session.record.branches import Family
from gradstudio.session.record.run import Run
from gradstudio.session.words.outcome_words import Outcome
from gradstudio.session.words.run_state import outcome
from gradstudio.session.words.run_texts import RowTexts


@dataclass(frozen=True, kw_only=True)
class Member(Look):
    """A run of the family in the list."""

    id: str
    tip: str  # rich text
    spoken: str


class BranchList(RowList[Member]):
    can_rename = True

    def __init__(self) -> None:
        super().__init__()
        self._state: tuple = ()  # the inputs of the rows
        self._told: dict[str, tuple[tuple, tuple[RowTexts, str, str]]] = {}  # texts of each run, and their state

    def take(self, family: Family, run: Run, overlays: Overlays) -> bool:
        """List this family, with `run` in the plots and these runs over it; return whether anything has changed."""
        state = (tuple(map(_state, family.members.values())), run.id, dict(overlays.slots), frozenset(overlays.hidden))
        if state == self._state:
            return False
        self._state = state
        self._told = {id: told for id, told in self._told.items() if id in family.members}
        self._show(self._walk(family, run, overlays))
        return True

    def look(self, listed: Member) -> Member:
        return listed

    def tip(self, listed: Member) -> str:
        return listed.tip

    def spoken(self, listed: Member) -> str:
        return listed.spoken

    def has_notes(self, listed: Member) -> bool:
        return bool(listed.words.note)

    # ---- inside

    def _walk(self, family: Family, shown: Run, overlays: Overlays) -> list[Member]:
        """Return the family, each run below its parent."""
        slots, hidden, members = overlays.slots, overlays.hidden, []
        branches: dict[str, list[Run]] = {}
        for run in family.members.values():
            branches.setdefault(run.parent if run.parent in family.members else "", []).append(run)
        for parent, runs in branches.items():
            if parent:
                runs.sort(key=lambda run: run.started)
            else:  # among twins the one that is shown comes first, and then branches whose parent is missing
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
            members.append(Member(words, rails, bool(under), current, slot, drawn, id=run.id, tip=tip, spoken=spoken))
            waiting += reversed([(branch, (*rails, branch is not under[-1])) for branch in under])
        return members

    def _words(self, family: Family, run: Run) -> tuple[RowTexts, str, str]:
        """Return the texts, tooltip and spoken text of a run, recomputed only if they change."""
        parent = self._told[run.parent][1][0].title if run.parent in family.members else run.parent
        state = (_state(run), parent)
        if run.id not in self._told or self._told[run.id][0] != state:
            self._told[run.id] = (state, _texts(run, parent))
        return self._told[run.id][1]


def title(run: Run) -> str:
    """Return a run's name, or what distinguishes it from the others of its family."""
    return run.name or (_auto(run) if run.parent else run.preset.title)


def _auto(run: Run) -> str:
    """Return what changed at the start of the branch."""
    stands = run.what_changed == "no change" and _stands(run)
    return f"standing at step {run.parent_step:,}" if stands else run.default_name


def _stands(run: Run) -> bool:
    """Return whether a run was rewound and has made no step since."""
    return bool(run.parent) and not run.own and not run.over


def _state(run: Run) -> tuple:
    """Return everything that determines the texts of a run."""
    return run.id, run.name, outcome(run), run.status, len(run.history), run.first_nonfinite_step, run.in_force


def _texts(run: Run, parent: str) -> tuple[RowTexts, str, str]:
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
