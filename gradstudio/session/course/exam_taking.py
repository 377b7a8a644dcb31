"""Taking an exam. An answer sheet is a TOML file with the student's tries, diagnosis and fix."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import Field

from gradstudio.core import assignment
from gradstudio.core.assignment import LETTERS, AssignmentError, Sheet
from gradstudio.core.exam import Exam
from gradstudio.core.knobs import KnobError, format_value
from gradstudio.session.course import exam_making
from gradstudio.session.course.evidence import Evidence, evidence
from gradstudio.session.course.worksheet import LARGEST, LONGEST_NAME
from gradstudio.session.record.run import Run


class AnswerSheet(Sheet):
    """The answers to an exam. `tries`: the runs that were made, the first without a change; `fix`: the index of the one
    that is handed in, -1 for none."""

    key: ClassVar[str] = "exam"

    exam: Annotated[str, Field(pattern=r"^[0-9a-f]{12}$")]
    name: Annotated[str, Field(max_length=LONGEST_NAME)]
    diagnosis: Annotated[str, Field(max_length=1)] = ""
    fix: Annotated[int, Field(ge=-1, le=50)] = -1
    tries: Annotated[list[Evidence], Field(max_length=51)] = []
    seal: Annotated[str, Field(max_length=64)] = ""

    def with_seal(self) -> AnswerSheet:
        return self.model_copy(update={"seal": self.digest()})

    def knobs(self, place: int) -> list[str]:
        """Return the changes of a try, such as optimizer.lr=0.1."""
        return [f"{name}={format_value(value)}" for name, value in self.tries[place].knobs.items()]


class Attempt:
    """An exam in progress: it enforces the budgets and keeps the sheet."""

    def __init__(self, exam: Exam, name: str, sheet: AnswerSheet | None = None) -> None:
        self.exam = exam
        self.sheet = sheet or AnswerSheet(schema=1, exam=exam.id, name=name)
        if self.sheet.exam != exam.id:
            raise AssignmentError(f"this answer sheet is of the exam {self.sheet.exam}, and not of {exam.id}")
        if sheet is not None and sheet.digest() != sheet.seal:
            raise AssignmentError("this answer sheet was changed by another program; begin a new one")

    @property
    def tries_left(self) -> int:
        """The number of tries left, not counting the first run."""
        return self.exam.tries - max(len(self.sheet.tries) - 1, 0)

    def run(self, texts: Sequence[str]) -> Run:
        """Return the run of a try, not yet trained; KnobError if the exam does not allow it."""
        changed = self.exam.parse_changes(list(texts))
        if not self.sheet.tries and changed:
            raise KnobError("the first run has no change: look at it before you change anything")
        if self.sheet.tries and not changed:
            raise KnobError("a try without a change is the first run again; allowed: KNOB=VALUE")
        if self.tries_left < 1:
            raise KnobError(f"all {self.exam.tries} tries are made; hand in one of them")
        return exam_making.of_seed(self.exam, changed)

    def again(self, place: int) -> Run:
        """Return the run of an earlier try, not yet trained."""
        return exam_making.of_seed(self.exam, self.exam.parse_changes(self.sheet.knobs(place)))

    def add_try(self, run: Run, texts: Sequence[str]) -> None:
        """Record a finished try."""
        kept = evidence(run, f"try-{len(self.sheet.tries)}", self.exam.parse_changes(list(texts)))
        self._keep(tries=[*self.sheet.tries, kept.model_copy(update={"run": ""})])

    def diagnose(self, letter: str) -> None:
        """Record the diagnosis: only the first one counts. AssignmentError if there already is one, or if it is not a
        choice."""
        letter, letters = letter.strip().upper(), LETTERS[: len(self.exam.choices)]
        if letter not in letters or len(letter) != 1:
            raise AssignmentError(f"{letter[:20]!r} is no choice; allowed: {', '.join(letters)}")
        if self.sheet.diagnosis:
            raise AssignmentError(f"the diagnosis is {self.sheet.diagnosis} already, and the first one counts")
        self._keep(diagnosis=letter)

    def hand_in(self, place: int) -> None:
        """Record which try is the fix. AssignmentError if it cannot be handed in."""
        if not self.sheet.diagnosis:
            raise AssignmentError("there is no diagnosis yet: choose one first")
        if not 1 <= place < len(self.sheet.tries):
            tries = len(self.sheet.tries) - 1
            allowed = "make a try first" if tries < 1 else f"allowed: 1 to {tries}"
            raise AssignmentError(f"try {place} cannot be the fix; {allowed}")
        self._keep(fix=place)

    def _keep(self, **values: object) -> None:
        self.sheet = self.sheet.model_copy(update=values).with_seal()


def read(path: Path) -> AnswerSheet:
    """Return the answer sheet in a file; AssignmentError if it is not one."""
    return assignment.read(path, AnswerSheet, most=LARGEST)
