"""Whether anything is another than it was, for what is asked many times a second and seldom has a new answer."""

from __future__ import annotations

from operator import is_


class Watch:
    """Objects are compared by identity: two that are equal may take longer to compare than to show."""

    def __init__(self) -> None:
        self._things: tuple[object, ...] = ()

    def changed(self, *things: object) -> bool:
        """Whether one of these is another than at the last call."""
        same = len(things) == len(self._things) and all(map(is_, things, self._things))
        self._things = things  # held, so that no new object can have an old one's identity
        return not same

    @property
    def forgotten(self) -> bool:
        """Whether the next call finds a change."""
        return not self._things

    def forget(self) -> None:
        """The next call finds a change."""
        self._things = ()
