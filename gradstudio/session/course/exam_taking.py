"""Taking an exam and grading it. An answer sheet is a TOML file with a person's tries, diagnosis and fix; grading
trains the fix again, with the exam's own seed and with others, so nothing on the sheet is believed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Literal

import tomli_w
from pydantic import BaseModel, Field

from gradstudio.core import strict_toml
from gradstudio.core.exam import LETTERS, Exam
from gradstudio.core.exercise import Question
from gradstudio.core.knobs import KnobError, format_value
from gradstudio.core.lesson import TABLE
from gradstudio.core.strict_toml import TomlError
from gradstudio.core.text import plural
from gradstudio.session.course import exam_making
from gradstudio.session.course.grading import Grade, Judged, Verdict, why_not_repeated
from gradstudio.session.course.worksheet import LONGEST_NAME, Evidence, WorksheetError, evidence, read_as
from gradstudio.session.record.run import Run

# Points of the diagnosis, of a fix that holds with every seed, and of changing no more knobs than the known fix, less
# so many for each one more.
DIAGNOSIS, FIX, FEW, LESS = 40, 40, 20, 10

Training = Callable[[Run], None]


class AnswerSheet(BaseModel):
    """What came of an exam. `tries`: the runs that were made, the first without a change; `fix`: the place of the one
    that is handed in; -1: none."""

    model_config = TABLE

    schema_: Literal[1] = Field(alias="schema")
    exam: Annotated[str, Field(pattern=r"^[0-9a-f]{12}$")]
    name: Annotated[str, Field(max_length=LONGEST_NAME)]
    diagnosis: Annotated[str, Field(max_length=1)] = ""
    fix: Annotated[int, Field(ge=-1, le=50)] = -1
    tries: Annotated[list[Evidence], Field(max_length=51)] = []
    seal: Annotated[str, Field(max_length=64)] = ""

    @property
    def exercise(self) -> str:
        """What it is a sheet of."""
        return f"exam {self.exam}"

    what = exercise

    def sealed(self) -> AnswerSheet:
        table = self.model_dump(by_alias=True, exclude_none=True, exclude={"seal"})
        return self.model_copy(update={"seal": hashlib.sha256(tomli_w.dumps(table).encode()).hexdigest()})

    def to_toml(self) -> str:
        return tomli_w.dumps(self.model_dump(by_alias=True, exclude_none=True), multiline_strings=True)

    def knobs(self, place: int) -> list[str]:
        """Return what a try changed, such as optimizer.lr=0.1."""
        return [f"{name}={format_value(value)}" for name, value in self.tries[place].knobs.items()]


class Attempt:
    """An exam that a person takes: it holds them to its budgets, and keeps the sheet."""

    def __init__(self, exam: Exam, name: str, sheet: AnswerSheet | None = None) -> None:
        self.exam = exam
        self.sheet = sheet or AnswerSheet(schema=1, exam=exam.id, name=name)
        if self.sheet.exam != exam.id:
            raise WorksheetError(f"this answer sheet is of the exam {self.sheet.exam}, and not of {exam.id}")
        if sheet is not None and sheet.sealed().seal != sheet.seal:
            raise WorksheetError("this answer sheet was changed by another program; begin a new one")

    @property
    def left(self) -> int:
        """The tries that are left, besides the first run."""
        return self.exam.tries - max(len(self.sheet.tries) - 1, 0)

    def run(self, texts: Sequence[str]) -> Run:
        """Return the run of a try, not yet trained; KnobError where the exam does not allow it."""
        changed = self.exam.allowed(list(texts))
        if not self.sheet.tries and changed:
            raise KnobError("the first run has no change: look at it before you change anything")
        if self.sheet.tries and not changed:
            raise KnobError("a try without a change is the first run again; allowed: KNOB=VALUE")
        if self.left < 1:
            raise KnobError(f"all {self.exam.tries} tries are made; hand in one of them")
        return exam_making.of_seed(self.exam, changed)

    def made(self, run: Run, texts: Sequence[str]) -> None:
        """Keep a try that has ended."""
        kept = evidence(run, f"try-{len(self.sheet.tries)}", self.exam.allowed(list(texts)))
        self._keep(tries=[*self.sheet.tries, kept.model_copy(update={"run": ""})])

    def diagnose(self, letter: str) -> None:
        """Keep the diagnosis: the first one counts. WorksheetError where there is one, or it is no choice."""
        letter, letters = letter.strip().upper(), LETTERS[: len(self.exam.choices)]
        if letter not in letters or len(letter) != 1:
            raise WorksheetError(f"{letter[:20]!r} is no choice; allowed: {', '.join(letters)}")
        if self.sheet.diagnosis:
            raise WorksheetError(f"the diagnosis is {self.sheet.diagnosis} already, and the first one counts")
        self._keep(diagnosis=letter)

    def hand_in(self, place: int) -> AnswerSheet:
        """Return the sheet with the try that is the fix. WorksheetError where it cannot be handed in."""
        if not self.sheet.diagnosis:
            raise WorksheetError("there is no diagnosis yet: choose one first")
        if not 1 <= place < len(self.sheet.tries):
            tries = len(self.sheet.tries) - 1
            allowed = "make a try first" if tries < 1 else f"allowed: 1 to {tries}"
            raise WorksheetError(f"try {place} cannot be the fix; {allowed}")
        self._keep(fix=place)
        return self.sheet

    def _keep(self, **values: object) -> None:
        self.sheet = self.sheet.model_copy(update=values).sealed()


def is_answers(path: Path) -> bool:
    """Return whether a file is rather an answer sheet than a worksheet."""
    try:
        return "exam" in strict_toml.parse(strict_toml.read(path))
    except TomlError:
        return False


def read(path: Path) -> AnswerSheet:
    """Return the answer sheet in a file; WorksheetError where it is none."""
    return read_as(AnswerSheet, path)


def grade(sheet: AnswerSheet, exam: Exam, train: Training) -> Grade:
    """Train the fix of a sheet again, with the exam's seed and the others, and judge it and the diagnosis."""
    if sheet.sealed().seal != sheet.seal:
        return Grade(False, "changed by another program", [], [])
    if len(sheet.tries) > exam.tries + 1:
        return Grade(False, f"{len(sheet.tries) - 1} tries were made; allowed: {exam.tries}", [], [])
    if sheet.fix < 1 or sheet.fix >= len(sheet.tries):
        return Grade(False, "not handed in", [], [])
    claimed, hidden = sheet.tries[sheet.fix], exam.hidden
    try:
        changed = exam.allowed(sheet.knobs(sheet.fix))
    except KnobError as fault:
        return Grade(False, str(fault), [], [])
    run = exam_making.of_seed(exam, changed)
    train(run)
    here = evidence(run, claimed.name, changed).model_copy(update={"run": ""})
    exact = claimed.digest == here.digest
    alike = all(getattr(claimed, name) == getattr(here, name) for name in ("torch", "processor", "threads"))
    fault = why_not_repeated(claimed, here, exact=exact, alike=alike)
    held = 0
    for seed, aim in hidden.aims.items():
        again = run
        if int(seed) != run.experiment.run.seed:
            again = exam_making.of_seed(exam, changed, int(seed))
            train(again)
        held += exam_making.holds(again, aim)
    reason = fault or ("repeats to the last bit" if exact else "repeats within the tolerance")
    answers = _answers(sheet, exam, held=held, changed=len(changed))
    return Grade(not fault, reason, [Verdict(claimed.name, exact, fault, run)], answers)


def _answers(sheet: AnswerSheet, exam: Exam, *, held: int, changed: int) -> list[Judged]:
    hidden = exam.hidden
    right, seeds, known = LETTERS[hidden.right], len(hidden.aims), len(hidden.fix)
    few = max(FEW - LESS * max(changed - known, 0), 0) if held == seeds else 0
    return [
        Judged(
            Question(text="Cause", points=DIAGNOSIS), _choice(exam, sheet.diagnosis),
            DIAGNOSIS if sheet.diagnosis == right else 0, _choice(exam, right),
        ),
        Judged(
            Question(text="Fix", points=FIX),
            f"{', '.join(sheet.knobs(sheet.fix))} holds with {held} of {seeds} seeds", FIX * held // seeds,
            f"one that does: {', '.join(hidden.fix)}",
        ),
        Judged(
            Question(text="Few changes, where the fix holds", points=FEW), plural(changed, "knob", "knobs"), few,
            f"{plural(known, 'knob is', 'knobs are')} enough",
        ),
    ]  # fmt: skip


def _choice(exam: Exam, letter: str) -> str:
    if not letter or letter not in LETTERS[: len(exam.choices)]:
        return letter
    return f"{letter}. {exam.choices[LETTERS.index(letter)]}"
