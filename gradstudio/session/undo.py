"""Undoing and redoing requests, as lists of the values that each request replaced."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from gradstudio.core.experiment import Experiment, differing
from gradstudio.core.knobs import Value

MOST = 1000  # number of requests that can be undone


class Change(NamedTuple):
    """One change of knobs: the values before and after it, by name."""

    before: dict[str, Value]
    after: dict[str, Value]


class Changes:
    """The undo and redo history of a simulator's requests."""

    def __init__(self) -> None:
        self._undo = deque[dict[str, Value]](maxlen=MOST)  # the values that each request replaced
        self._redo = deque[dict[str, Value]](maxlen=MOST)  # the values that each undoing replaced

    def forget(self) -> None:
        self._undo.clear()
        self._redo.clear()

    def remember(self, before: Experiment, now: Experiment) -> None:
        """Make the latest request undoable; what was undone until now can no longer be redone."""
        if values := differing(now, before):
            self._undo.append(values)
            self._redo.clear()

    def latest(self, *, redo: bool) -> dict[str, Value]:
        """Return the values that undoing, or redoing, requests; none if there is nothing left."""
        values = self._redo if redo else self._undo
        return values[-1] if values else {}

    def took_back(self, before: Experiment, now: Experiment, *, redo: bool) -> None:
        """Record that the latest change was undone or redone."""
        source, other = (self._redo, self._undo) if redo else (self._undo, self._redo)
        source.pop()
        other.append(differing(now, before))

    def undoable(self, now: Experiment) -> list[Change]:
        """Return the changes that can be undone, the latest first."""
        return _changes(now, self._undo, ahead=False)

    def undone(self, now: Experiment) -> list[Change]:
        """Return the changes that can be redone, the last undone first. `before` and `after` are those of redoing."""
        return _changes(now, self._redo, ahead=True)


def _changes(requested: Experiment, values: Iterable[dict[str, Value]], *, ahead: bool) -> list[Change]:
    now = {knob.name: value for knob, value in requested.items()}
    changes: list[Change] = []
    for other in reversed(list(values)):
        here = {name: now[name] for name in other if name in now}
        changes.append(Change(here, other) if ahead else Change(other, here))
        now |= other
    return changes
