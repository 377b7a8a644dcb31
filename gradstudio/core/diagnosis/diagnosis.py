"""The diagnosis of one run: its rules, and the progress that they share. It is asked row by row, and can be copied to
go on from there."""

from __future__ import annotations

import copy
from collections.abc import Iterator

from gradstudio.core.diagnosis.finding import OF_FIGURES, Finding
from gradstudio.core.diagnosis.progress import Progress
from gradstudio.core.diagnosis.rule import Concluding, Rule
from gradstudio.core.history import LOOK_EVERY, History


class Diagnosis:
    """The rules of one run, and what they know of its rows. One thread at a time may ask it."""

    def __init__(self, rules: list[Rule], progress: Progress | None = None) -> None:
        self.rules = rules
        self.progress = progress or Progress()
        self._every_row = [rule for rule in rules if rule.every_row]

    def copy(self) -> Diagnosis:
        """Return the diagnosis as it stands, to go on with by itself."""
        return Diagnosis(list(map(copy.copy, self.rules)), copy.copy(self.progress))

    def conclude(self, history: History, accuracy: float) -> Iterator[Finding]:
        """Yield what the rules find at the end of the run, with the accuracy on the test set, UNKNOWN of a script."""
        for rule in self.rules:
            if isinstance(rule, Concluding):
                finding = rule.conclude(history, self.progress, accuracy)
                if finding is not None:
                    yield finding

    def look_at_the_rest(self, history: History) -> Iterator[Finding]:
        """Yield what rules that look now and then find in the rows since their last look, as no others follow.
        Copies of them are asked: what they know is what they saw when a look was due."""
        rest = history.before(len(history))
        if rest.broken:
            return
        rest.due = True
        aside = self.copy()
        for rule in aside.rules:
            is_due = len(rest) % LOOK_EVERY or rule.rule in OF_FIGURES  # which may be told behind the last row
            if is_due and not rule.every_row and (finding := rule.update(rest, aside.progress)) is not None:
                yield finding

    def look(self, history: History) -> Iterator[Finding]:
        """Yield what the rules find in the history as it is after its latest row. Most rules look every LOOK_EVERY rows
        and at a row that is not finite, and are not asked in between."""
        for rule in self.rules if history.due or history.broken else self._every_row:
            finding = rule.update(history, self.progress)
            if finding is not None:
                yield finding
