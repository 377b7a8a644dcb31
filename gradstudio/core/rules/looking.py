"""What rules that look every LOOK_EVERY steps have in common."""

from __future__ import annotations

from dataclasses import dataclass
from dataclasses import replace as changed
from typing import ClassVar

from gradstudio.core.history import History
from gradstudio.core.rules import Finding, Severity
from gradstudio.core.rules.progress import Progress, progress


@dataclass
class Looking:
    """Public fields of a rule are its thresholds. Its finding is told of until the run ends; once the run does well it is no more than a
    note."""

    rule: ClassVar[str]
    every_row: ClassVar[bool] = False

    _finding: Finding | None = None
    _severity: Severity = "info"  # while the run does badly

    def update(self, history: History) -> Finding | None:
        if history.due:
            self.look(history, progress(history))
        return self._finding

    def look(self, history: History, state: Progress) -> None:
        raise AssertionError("each rule says what it looks at")

    def tell(
        self, history: History, severity: Severity, title: str, evidence: str, meaning: str,
        remedies: tuple[str, ...] = (), layers: tuple[str, ...] = (), *, first: int | None = None,
    ) -> None:  # fmt: skip
        """It is there (again), as these words say."""
        last = len(history) - 1
        if self._finding is not None:
            first = self._finding.first_step
        self._severity = severity
        self._finding = Finding(self.rule, severity, title, last if first is None else first, last, layers, evidence, meaning, remedies)

    def soften(self, badly: bool) -> None:
        """A run that does well has no fault, whatever was seen."""
        if self._finding is not None:
            severity = self._severity if badly else "info"
            if severity != self._finding.severity:
                self._finding = changed(self._finding, severity=severity)
