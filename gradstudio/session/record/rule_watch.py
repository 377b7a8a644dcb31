"""The diagnosis of one run, and how far it has read the run's history."""

from __future__ import annotations

from collections import deque

from gradstudio.core.diagnosis.diagnosis import Diagnosis
from gradstudio.core.history import History, Row


class RuleWatch:
    """A diagnosis with the part of the history that its rules were shown. Only the run's writer uses it."""

    def __init__(self, diagnosis: Diagnosis, seen: History) -> None:
        """`seen` is a history of its own that grows as the rules are shown more of the run's."""
        self.diagnosis, self.seen = diagnosis, seen
        self.unseen = deque[Row | None]()  # rows after those; None where the history holds all that the rules need
