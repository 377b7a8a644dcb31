"""Whether anything has changed, for queries that are made many times a second and seldom have a new answer."""

from __future__ import annotations

from operator import is_


class ChangeWatch:
    """Compares objects by identity: comparing their values may take longer than showing them."""

    def __init__(self) -> None:
        self._things: tuple[object, ...] = ()

    def has_changed(self, *things: object) -> bool:
        """Return whether one of these is not the same object as at the last call."""
        same = len(things) == len(self._things) and all(map(is_, things, self._things))
        self._things = things  # kept alive, so that no new object can have the identity of an old one
        return not same

    @property
    def forgotten(self) -> bool:
        """Whether the next call reports a change."""
        return not self._things

    def forget(self) -> None:
        """Report a change at the next call."""
        self._things = ()
