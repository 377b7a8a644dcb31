"""The diagnosis of one run, and how far it has read the run's history."""

from __future__ import annotations

from collections import deque

from gradstudio.core.diagnosis.diagnosis import Diagnosis
from gradstudio.core.history import History
from gradstudio.core.row import Row


class RuleWatch:
    """A diagnosis with the part of the history that its rules have seen. Only the run's writer uses it."""

    def __init__(self, diagnosis: Diagnosis, seen: History) -> None:
        """`seen` is a separate history that grows as the rules see more of the run's."""
        self.diagnosis, self.seen = diagnosis, seen
        # rows after those; None if the history contains everything that the rules need
        self.unseen = deque[Row | None]()
