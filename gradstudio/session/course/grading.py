"""Grading a sheet without trusting it: its runs are trained again as the exercise or the exam specifies, and its
answers are judged by the results. Nothing from the sheet is executed; a worksheet supplies a seed and the steps of live
changes, and an answer sheet the knobs of its fix, which is also trained with the other seeds of the exam."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from gradstudio.core import assignment
from gradstudio.core.assignment import LETTERS, Assignment, AssignmentError
from gradstudio.core.exam import Exam
from gradstudio.core.exercise import Exercise, ExerciseRun, Question
from gradstudio.core.knobs import KnobError
from gradstudio.core.planned_changes import read_timeline
from gradstudio.core.text import number, plural
from gradstudio.session.course import exam_making, questions
from gradstudio.session.course.evidence import Evidence, Verdict, evidence, verdict
from gradstudio.session.course.exam_taking import AnswerSheet
from gradstudio.session.course.promises import Training
from gradstudio.session.course.worksheet import LARGEST, Worksheet, evidence_of
from gradstudio.session.record.run import Run
from gradstudio.session.record.run_outcome import HEALED, has_learned

RIGHT = 4  # significant digits of the right answer
# Points for the diagnosis, for a fix that holds with every seed, and for changing no more knobs than the known fix;
# the last is deducted for each extra knob.
DIAGNOSIS, FIX, FEW, LESS = 40, 40, 20, 10


class GradedAnswer(NamedTuple):
    """A graded answer. `points` of `most`; None if a teacher must read it. `right`: the right answer, or the content of
    a full one."""

    question: Question
    answer: str
    points: int | None
    right: str


class Grade(NamedTuple):
    """The grade of a sheet. `reason`: why it is not verified, or in which sense it is."""

    verified: bool
    reason: str
    verdicts: list[Verdict]
    answers: list[GradedAnswer]

    @property
    def score(self) -> int:
        """The points of the questions that the program grades; none if a run does not repeat."""
        return sum(each.points or 0 for each in self.answers) if self.verified else 0

    @property
    def most(self) -> int:
        return sum(each.question.points for each in self.answers if each.points is not None)

    @property
    def most_by_teacher(self) -> int:
        return sum(each.question.points for each in self.answers if each.points is None)


def read(path: Path) -> Worksheet | AnswerSheet:
    """Return the sheet in a file; AssignmentError if it is not one."""
    return assignment.read(path, AnswerSheet, Worksheet, most=LARGEST)


def is_handed_in(sheet: Worksheet | AnswerSheet) -> bool:
    return 1 <= sheet.fix < len(sheet.tries) if isinstance(sheet, AnswerSheet) else sheet.handed_in is not None


class Grader:
    """Grades the sheets of a class. A run that several sheets share is trained once."""

    def __init__(self, train: Training) -> None:
        self._train = train
        self._trained: dict[tuple[object, ...], Run] = {}

    def grade(self, sheet: Worksheet | AnswerSheet, asked: Assignment) -> Grade:
        """Return the grade of a sheet of this exercise or exam."""
        try:
            if isinstance(sheet, AnswerSheet) and isinstance(asked, Exam):
                verdicts, answers = self._exam(sheet, asked)
            elif isinstance(sheet, Worksheet) and isinstance(asked, Exercise):
                verdicts, answers = self._exercise(sheet, asked)
            else:
                raise AssignmentError("it is a sheet of something else")
        except (AssignmentError, KnobError) as fault:
            return Grade(False, str(fault), [], [])
        faults: dict[str, list[str]] = {}  # each once, with the names of the runs that use it
        for each in verdicts:
            if each.fault:
                faults.setdefault(each.fault, []).append(each.name)
        exact = "to the last bit" if all(each.exact for each in verdicts) else "within the tolerance"
        text = "; ".join(f"{', '.join(names)}: {fault}" for fault, names in faults.items())
        return Grade(not faults, text or f"repeats {exact}", verdicts, answers)

    def _exercise(self, sheet: Worksheet, exercise: Exercise) -> tuple[list[Verdict], list[GradedAnswer]]:
        if sheet.handed_in is None:
            raise AssignmentError("not handed in")
        if sheet.digest() != sheet.handed_in.seal:
            raise AssignmentError("changed after it was handed in")
        by_name = {each.name: each for each in sheet.handed_in.run}
        if missing := [run.name for run in exercise.run if run.name not in by_name]:
            raise AssignmentError(f"the run {missing[0]} is missing")
        verdicts = [
            self._verdict(exercise_run, by_name[exercise_run.name], exercise, sheet.seed)
            for exercise_run in exercise.run
        ]
        runs = {each.name: each.run for each in verdicts}
        return verdicts, [
            _grade_answer(question, sheet.answers.get(f"q{place}", ""), runs)
            for place, question in enumerate(exercise.question, 1)
        ]

    def _verdict(self, exercise_run: ExerciseRun, told: Evidence, exercise: Exercise, seed: int) -> Verdict:
        made = {change.knob: change.value for change in told.changes}
        if made != exercise_run.changes or len(told.changes) != len(exercise_run.changes):
            raise KnobError(f"{exercise_run.name}: it was changed otherwise than the exercise asks for")
        try:
            run = self._again(exercise_run, told, exercise, seed)
        except KnobError as fault:
            raise KnobError(f"{exercise_run.name}: {fault}") from None
        if late := [change.step for change in told.changes if change.step >= len(run.history)]:
            raise KnobError(f"{exercise_run.name}: it had ended before its change at step {late[0]:,}")
        return verdict(told, evidence_of(run, exercise_run), run)

    def _again(self, exercise_run: ExerciseRun, told: Evidence, exercise: Exercise, seed: int) -> Run:
        entries = [{"step": each.step, "knob": each.knob, "value": each.value} for each in told.changes]
        key = (exercise.id, exercise_run.name, seed, tuple(map(repr, entries)))
        if key not in self._trained:
            preset, experiment = exercise_run.beginning(), exercise_run.starts_with(seed)
            changes = (*preset.timeline, *read_timeline(entries, experiment))
            run = Run(preset, experiment, tuple(sorted(changes, key=lambda each: each.step)))
            self._train(run)
            self._trained[key] = run
        return self._trained[key]

    def _exam(self, sheet: AnswerSheet, exam: Exam) -> tuple[list[Verdict], list[GradedAnswer]]:
        if sheet.digest() != sheet.seal:
            raise AssignmentError("changed by another program")
        if len(sheet.tries) > exam.tries + 1:
            raise AssignmentError(f"{len(sheet.tries) - 1} tries were made; allowed: {exam.tries}")
        if not is_handed_in(sheet):
            raise AssignmentError("not handed in")
        told, changed = sheet.tries[sheet.fix], exam.parse_changes(sheet.knobs(sheet.fix))
        run = exam_making.of_seed(exam, changed)
        self._train(run)
        held = 0
        for seed, aim in exam.hidden.aims.items():
            again = run
            if int(seed) != run.experiment.run.seed:
                again = exam_making.of_seed(exam, changed, int(seed))
                self._train(again)
            held += has_learned(again, HEALED * aim)
        return [verdict(told, evidence(run, told.name, changed), run)], _answers(sheet, exam, held, len(changed))


def _grade_answer(question: Question, answer: str, runs: dict[str, Run]) -> GradedAnswer:
    if not question.is_question:
        return GradedAnswer(question, answer, None, question.full)
    run = runs[question.run]
    if question.explain:
        right = questions.measured_value(question.explain, run)
        given = questions.as_number(answer)
        fits = right is not None and given is not None and questions.is_right(question.explain, given, run)
        told = "the run does not have it" if right is None else number(right, RIGHT)
        return GradedAnswer(question, answer, question.points if fits else 0, told)
    letters = [LETTERS[place] for place, choice in enumerate(question.predict) if questions.holds(choice, run)]
    fits = answer.strip().upper() in letters
    return GradedAnswer(question, answer, question.points if fits else 0, ", ".join(letters) or "none")


def _answers(sheet: AnswerSheet, exam: Exam, held: int, changed: int) -> list[GradedAnswer]:
    """Return the graded answers to an exam whose fix changed `changed` knobs and held with `held` seeds."""
    hidden, choices = (
        exam.hidden,
        {letter: f"{letter}. {text}" for letter, text in zip(LETTERS, exam.choices, strict=False)},
    )
    right, seeds, known = LETTERS[hidden.right], len(hidden.aims), len(hidden.fix)
    few = max(FEW - LESS * max(changed - known, 0), 0) if held == seeds else 0
    fixed = f"{', '.join(sheet.knobs(sheet.fix))} holds with {held} of {seeds} seeds"
    return [
        GradedAnswer(Question(text=text, points=most), answer, points, best)
        for text, most, answer, points, best in (
            ("Cause", DIAGNOSIS, choices.get(sheet.diagnosis, sheet.diagnosis),
             DIAGNOSIS if sheet.diagnosis == right else 0, choices[right]),
            ("Fix", FIX, fixed, FIX * held // seeds, f"one that does: {', '.join(hidden.fix)}"),
            ("Few changes, where the fix holds", FEW, plural(changed, "knob", "knobs"), few,
             f"{plural(known, 'knob is', 'knobs are')} enough"),
        )
    ]  # fmt: skip
