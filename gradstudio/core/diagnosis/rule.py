"""The interface of a rule, and the base of the rules that look every LOOK_EVERY steps."""

from __future__ import annotations

from dataclasses import dataclass
from dataclasses import replace as changed
from typing import ClassVar, Protocol, runtime_checkable

from gradstudio.core.diagnosis.finding import Finding, Severity
from gradstudio.core.diagnosis.progress import Progress
from gradstudio.core.history import History
from gradstudio.core.unknown import is_known


class Rule(Protocol):
    """Reads the rows since its last call and returns its current finding, or None. It may be called at every step. It
    must be called at every step if `every_row` is set, and otherwise whenever the history says that a look is due or
    that its latest row is non-finite. Its state consists of values that are replaced and never mutated, so that a
    shallow copy continues independently. It never rereads the whole of a long history at every look."""

    rule: ClassVar[str]
    every_row: ClassVar[bool]

    def update(self, history: History, progress: Progress) -> Finding | None: ...


@runtime_checkable
class ConcludingRule(Protocol):
    """A rule that also looks at the end of a run, including the accuracy on the test set (UNKNOWN for a script)."""

    def conclude(self, history: History, progress: Progress, accuracy: float) -> Finding | None: ...


@dataclass
class PeriodicRule:
    """The public fields of a rule are its thresholds. Its finding stays until the run ends; once the run does well, it
    is only a note."""

    rule: ClassVar[str]
    every_row: ClassVar[bool] = False

    _finding: Finding | None = None
    _told: Finding | None = None  # as it was last reported
    _severity: Severity = "info"  # while the run does badly

    def update(self, history: History, progress: Progress) -> Finding | None:
        if history.due:
            self.look(history, progress.at(history))
        return self._finding

    def look(self, history: History, state: Progress) -> None:
        raise NotImplementedError

    def tell(
        self, history: History, severity: Severity, title: str, evidence: str, meaning: str,
        remedies: tuple[str, ...] = (), layers: tuple[str, ...] = (), *, first: int | None = None,
        last: int | None = None,
    ) -> None:  # fmt: skip
        """Set the finding, or update it; without `last` it extends to the latest row."""
        last = len(history) - 1 if last is None else last
        if self._finding is not None:
            first = self._finding.first_step
        self._severity = severity
        self._finding = self._told = Finding(
            self.rule, severity, title, last if first is None else first, last, layers, evidence, meaning, remedies
        )

    def soften(self, badly: bool) -> None:
        """Turn the finding into a note in the past tense while the run does well, and restore it while the run does
        badly."""
        if self._told is None or self._severity == "info":
            return
        if badly or self._finding is None:
            self._finding = self._told
        elif self._finding.severity != "info":
            self._finding = changed(
                self._told, severity="info", title=f"{self._told.title}, last judged at step {self._told.last_step:,}",
                meaning="After that step the run learned. What was measured may go on.",
                remedies=(),
            )  # fmt: skip


@dataclass
class TestSetRule(PeriodicRule):
    """The base of the rules that judge the accuracy on the test set: each measurement, including the one at the end of
    the run."""

    _seen: int = 0  # rows

    def look(self, history: History, state: Progress) -> None:
        steps, accuracies = history.measurements("test_accuracy", self._seen)
        self._seen = len(history)
        if len(steps) and steps[-1]:
            self.judge(history, state, int(steps[-1]), float(accuracies[-1]))

    def conclude(self, history: History, progress: Progress, accuracy: float) -> Finding | None:
        if len(history) and is_known(accuracy):
            self.judge(history, progress.at(history), len(history), accuracy)
        return self._finding

    def judge(self, history: History, state: Progress, step: int, accuracy: float) -> None:
        """Judge an accuracy on the test set that was measured before a step."""
        raise NotImplementedError

    @staticmethod
    def in_training(history: History, state: Progress) -> float:
        """Return the accuracy on the training batches: on the last 50, or on the last 5 if that is less, so that a
        model that has just diverged does not seem to do well on its training batches."""
        return min(state.accuracy, float(history.column("accuracy", len(history) - 5).mean()))

    @staticmethod
    def when(history: History, step: int) -> str:
        """Return the step of a measurement in words."""
        return "At the end" if step == len(history) else f"At step {step:,}"
