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
    """Reads the rows since its last call and returns its finding as it now stands, or None. It may be asked at every
    step. It must be asked at every step where `every_row` is set, and otherwise where the history says that a look is
    due or that its latest row is not finite. What it knows is in values that are replaced and never changed, so that a
    shallow copy goes on by itself. It never reads the whole of a long history again at every look."""

    rule: ClassVar[str]
    every_row: ClassVar[bool]

    def update(self, history: History, progress: Progress) -> Finding | None: ...


@runtime_checkable
class Concluding(Protocol):
    """A rule that also looks at the end of a run, and at the accuracy on the test set there, UNKNOWN of a script."""

    def conclude(self, history: History, progress: Progress, accuracy: float) -> Finding | None: ...


@dataclass
class Looking:
    """The public fields of a rule are its thresholds. Its finding stays until the run ends; once the run does well, it
    is only a note."""

    rule: ClassVar[str]
    every_row: ClassVar[bool] = False

    _finding: Finding | None = None
    _told: Finding | None = None  # as it was told last
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
        """Set the finding, or bring it up to date; without `last` it lasts until the latest row."""
        last = len(history) - 1 if last is None else last
        if self._finding is not None:
            first = self._finding.first_step
        self._severity = severity
        self._finding = self._told = Finding(
            self.rule, severity, title, last if first is None else first, last, layers, evidence, meaning, remedies
        )

    def soften(self, badly: bool) -> None:
        """Make the finding a note in the past while the run does well, and what it was while it does badly."""
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
class OnTestSet(Looking):
    """The base of the rules that judge the accuracy on the test set: each one that was measured, and the one at the end
    of the run."""

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
        """Return the share of the training batches that is right: of the last 50, or of the last 5 where that is less,
        so that a model that has just broken does not seem to know its training batches."""
        return min(state.accuracy, float(history.column("accuracy", len(history) - 5).mean()))

    @staticmethod
    def when(history: History, step: int) -> str:
        """Return the step of a measurement in words."""
        return "At the end" if step == len(history) else f"At step {step:,}"
