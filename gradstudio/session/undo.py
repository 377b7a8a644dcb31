"""Undoing and redoing requests, as lists of the values that each request replaced."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from gradstudio.core.experiment import Experiment, differing_values
from gradstudio.core.knobs import Value
from gradstudio.core.worker_places import Place

MOST = 1000  # number of requests that can be undone
DEVICE = "run.device"  # the knob that stands for the place too


class KnobsAndPlace(NamedTuple):
    """The requested knobs, and the place of the next run; None: here."""

    knobs: Experiment
    place: Place | None


class ReplacedValues(NamedTuple):
    """The values that a request replaced, and the place."""

    values: dict[str, Value]
    place: Place | None

    @classmethod
    def between(cls, before: KnobsAndPlace, now: KnobsAndPlace) -> ReplacedValues:
        """Return the values of `before` that `now` replaced."""
        moved = {DEVICE: before.knobs[DEVICE]} if before.place != now.place else {}
        return cls(moved | differing_values(now.knobs, before.knobs), before.place)


class Change(NamedTuple):
    """One change of knobs: the values before and after it, by name."""

    before: dict[str, Value]
    after: dict[str, Value]


class Changes:
    """The undo and redo history of a simulator's requests."""

    def __init__(self) -> None:
        self._undo = deque[ReplacedValues](maxlen=MOST)  # by each request
        self._redo = deque[ReplacedValues](maxlen=MOST)  # by each undoing

    def forget(self) -> None:
        self._undo.clear()
        self._redo.clear()

    def remember(self, before: KnobsAndPlace, now: KnobsAndPlace) -> None:
        """Make the latest request undoable; what was undone until now can no longer be redone."""
        replaced = ReplacedValues.between(before, now)
        if replaced.values:
            self._undo.append(replaced)
            self._redo.clear()

    def latest(self, *, redo: bool) -> ReplacedValues | None:
        """Return the values that undoing the latest change would request, or redoing it with `redo`; None if there is
        none."""
        history = self._redo if redo else self._undo
        return history[-1] if history else None

    def took_back(self, before: KnobsAndPlace, now: KnobsAndPlace, *, redo: bool) -> None:
        """Record that the latest change was undone or redone."""
        source, other = (self._redo, self._undo) if redo else (self._undo, self._redo)
        source.pop()
        other.append(ReplacedValues.between(before, now))

    def undoable(self, now: Experiment) -> list[Change]:
        """Return the changes that can be undone, the latest first."""
        return _changes(now, self._undo, ahead=False)

    def undone(self, now: Experiment) -> list[Change]:
        """Return the changes that can be redone, the last undone first. `before` and `after` are those of redoing."""
        return _changes(now, self._redo, ahead=True)


def _changes(requested: Experiment, replaced: Iterable[ReplacedValues], *, ahead: bool) -> list[Change]:
    now = {knob.name: value for knob, value in requested.items()}
    changes: list[Change] = []
    for other, _ in reversed(list(replaced)):
        here = {name: now[name] for name in other if name in now}
        changes.append(Change(here, other) if ahead else Change(other, here))
        now |= other
    return changes
