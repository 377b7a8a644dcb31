"""The diagnosis of one run: its rules, and the progress that they share. It is updated row by row, and can be copied to
continue separately."""

from __future__ import annotations

import copy
from collections.abc import Iterator

from gradstudio.core.diagnosis.finding import Finding
from gradstudio.core.diagnosis.progress import Progress
from gradstudio.core.diagnosis.rule import ConcludingRule, Rule
from gradstudio.core.diagnosis.rule_names import OF_FIGURES
from gradstudio.core.history import LOOK_EVERY, History


class Diagnosis:
    """The rules of one run and their state. Not thread-safe: one thread at a time."""

    def __init__(self, rules: list[Rule], progress: Progress | None = None) -> None:
        self.rules = rules
        self.progress = progress or Progress()
        self._every_row = [rule for rule in rules if rule.every_row]

    def copy(self) -> Diagnosis:
        """Return an independent copy of the diagnosis in its current state."""
        return Diagnosis(list(map(copy.copy, self.rules)), copy.copy(self.progress))

    def conclude(self, history: History, accuracy: float) -> Iterator[Finding]:
        """Yield the findings of the rules at the end of the run, given the accuracy on the test set (UNKNOWN for a
        script)."""
        for rule in self.rules:
            if isinstance(rule, ConcludingRule):
                finding = rule.conclude(history, self.progress, accuracy)
                if finding is not None:
                    yield finding

    def look_at_the_rest(self, history: History) -> Iterator[Finding]:
        """Yield the findings of the periodic rules for the rows since their last look, as no more rows follow. Works on
        copies: the state of the rules stays that of the last scheduled look."""
        rest = history.before(len(history))
        if rest.broken:
            return
        rest.due = True
        aside = self.copy()
        for rule in aside.rules:
            is_due = len(rest) % LOOK_EVERY or rule.rule in OF_FIGURES  # which may be reported after the last row
            if is_due and not rule.every_row and (finding := rule.update(rest, aside.progress)) is not None:
                yield finding

    def look(self, history: History) -> Iterator[Finding]:
        """Yield the findings of the rules for the history up to its latest row. Most rules look every LOOK_EVERY rows
        and at a non-finite row, and are not called in between."""
        for rule in self.rules if history.due or history.broken else self._every_row:
            finding = rule.update(history, self.progress)
            if finding is not None:
                yield finding
