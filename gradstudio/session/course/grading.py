"""Grading a worksheet without trusting it: its runs are trained again, as the exercise asks for them, and its answers
are judged by what comes of that. Nothing of the worksheet is run; it gives a seed, and the steps of live changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from gradstudio.core.events import Change
from gradstudio.core.exercise import Exercise, ExerciseRun, Question
from gradstudio.core.knobs import KnobError
from gradstudio.core.presets import read_timeline
from gradstudio.core.text import number as shown
from gradstudio.session.course import questions
from gradstudio.session.course.worksheet import Evidence, Worksheet, evidence_of
from gradstudio.session.record.run import Run

# On another processor, or with another torch, a run differs in its last bits, and these differences grow. Its first
# losses and its end must still be alike.
NEAR = 1e-3  # relative difference of the first losses
NEAR_AT_THE_END = 0.1  # difference of the test accuracy
SAME = ("torch", "processor", "threads")
RIGHT = 4  # digits of what would have been right

Training = Callable[[Run], None]


class Verdict(NamedTuple):
    """What came of training a run again. `fault`: why it does not repeat, "" where it does; `exact`: to the last
    bit."""

    name: str
    exact: bool
    fault: str
    run: Run


class Judged(NamedTuple):
    """An answer. `points` of `most`; None where a teacher must read it. `right`: what would have been right."""

    question: Question
    answer: str
    points: int | None
    right: str


class Grade(NamedTuple):
    """What came of a worksheet. `reason`: why it is not verified, or in which way it is."""

    verified: bool
    reason: str
    verdicts: list[Verdict]
    answers: list[Judged]

    @property
    def score(self) -> int:
        """The points of the questions that the program judges; none where a run does not repeat."""
        return sum(each.points or 0 for each in self.answers) if self.verified else 0

    @property
    def most(self) -> int:
        return sum(each.question.points for each in self.answers if each.points is not None)


class Grader:
    """Grades worksheets of a class. A run that several of them have is trained once."""

    def __init__(self, train: Training) -> None:
        self._train = train
        self._trained: dict[tuple[object, ...], Run] = {}

    def grade(self, sheet: Worksheet, exercise: Exercise) -> Grade:
        if sheet.handed_in is None:
            return Grade(False, "not handed in", [], [])
        if sheet.seal() != sheet.handed_in.seal:
            return Grade(False, "changed after it was handed in", [], [])
        found = {each.name: each for each in sheet.handed_in.run}
        if missing := [run.name for run in exercise.run if run.name not in found]:
            return Grade(False, f"the run {missing[0]} is missing", [], [])
        verdicts = []
        for asked in exercise.run:
            try:
                verdicts.append(self._verdict(asked, found[asked.name], exercise, sheet.seed))
            except KnobError as fault:
                return Grade(False, f"{asked.name}: {fault}", verdicts, [])
        runs = {verdict.name: verdict.run for verdict in verdicts}
        answers = [
            _judged(question, sheet.answers.get(f"q{place}", ""), runs)
            for place, question in enumerate(exercise.question, 1)
        ]
        faults = _by_fault(verdicts)
        exact = all(verdict.exact for verdict in verdicts)
        reason = "; ".join(faults) or ("repeats to the last bit" if exact else "repeats within the tolerance")
        return Grade(not faults, reason, verdicts, answers)

    def _verdict(self, asked: ExerciseRun, told: Evidence, exercise: Exercise, seed: int) -> Verdict:
        made = {change.knob: change.value for change in told.changes}
        if made != asked.changes or len(told.changes) != len(asked.changes):
            raise KnobError("it was changed otherwise than the exercise asks for")
        run = self._again(asked, told, exercise, seed)
        if late := [change.step for change in told.changes if change.step >= len(run.history)]:
            raise KnobError(f"it had ended before its change at step {late[0]:,}")
        here = evidence_of(run, asked)
        exact = told.digest == here.digest
        alike = all(getattr(told, name) == getattr(here, name) for name in SAME)
        return Verdict(asked.name, exact, why_not_repeated(told, here, exact=exact, alike=alike), run)

    def _again(self, asked: ExerciseRun, told: Evidence, exercise: Exercise, seed: int) -> Run:
        entries = [{"step": each.step, "knob": each.knob, "value": each.value} for each in told.changes]
        key = (exercise.id, asked.name, seed, tuple(map(repr, entries)))
        if key not in self._trained:
            preset, experiment = asked.beginning(), asked.starts_with(seed)
            changes: tuple[Change, ...] = read_timeline(entries, experiment)
            run = Run(preset, experiment, tuple(sorted((*preset.timeline, *changes), key=lambda each: each.step)))
            self._train(run)
            self._trained[key] = run
        return self._trained[key]


def _by_fault(verdicts: list[Verdict]) -> list[str]:
    """Return each fault once, with the names of the runs that have it."""
    names: dict[str, list[str]] = {}
    for verdict in verdicts:
        if verdict.fault:
            names.setdefault(verdict.fault, []).append(verdict.name)
    return [f"{', '.join(found)}: {fault}" for fault, found in names.items()]


def why_not_repeated(told: Evidence, here: Evidence, *, exact: bool, alike: bool) -> str:
    """Return why a run does not repeat, "" where it does."""
    claims = ("outcome", "steps", "nonfinite_step", "final_loss", "accuracy", "beginning", "knobs")
    if exact:
        wrong = [name for name in claims if getattr(told, name) != getattr(here, name)]
        return f"{wrong[0]} is not that of its rows" if wrong else ""
    if alike:
        return "trained again on the same processor and torch, its rows are different"
    if told.knobs != here.knobs:
        return "its knobs are not those of the exercise"
    if told.outcome != here.outcome:
        return f"it ended as {told.outcome}, and trained again as {here.outcome}"
    if len(told.beginning) != len(here.beginning) or not all(map(_near, told.beginning, here.beginning)):
        return "its first losses are others"
    if told.outcome == "finished" and not _near(told.accuracy, here.accuracy, NEAR_AT_THE_END):
        return f"its test accuracy is {told.accuracy}, and trained again {here.accuracy}"
    return ""


def _near(told: object, here: object, absolute: float = 0.0) -> bool:
    if isinstance(told, float) and isinstance(here, float):
        return abs(told - here) <= max(NEAR * abs(here), absolute)
    return told == here


def _judged(question: Question, answer: str, runs: dict[str, Run]) -> Judged:
    if not question.judged:
        return Judged(question, answer, None, "")
    run = runs[question.run]
    if question.explain:
        right = questions.measured(question.explain, run)
        given = questions.as_number(answer)
        fits = right is not None and given is not None and questions.is_right(question.explain, given, run)
        told = "the run does not have it" if right is None else shown(right, RIGHT)
        return Judged(question, answer, question.points if fits else 0, told)
    came_true = [place for place, choice in enumerate(question.predict) if questions.holds(choice, run)]
    letters = ["ABCDEF"[place] for place in came_true]
    fits = answer.strip().upper() in letters
    return Judged(question, answer, question.points if fits else 0, ", ".join(letters) or "none")
