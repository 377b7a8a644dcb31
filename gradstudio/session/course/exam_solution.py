"""The solution of an exam, in words, once it is over: what was set, the known fix, and the result of an attempt as one
line to share."""

from __future__ import annotations

from typing import NamedTuple

from gradstudio.core.assignment import LETTERS
from gradstudio.core.exam import Exam
from gradstudio.core.experiment import parse_assignment
from gradstudio.core.knobs import value_text
from gradstudio.core.text import percent, plural
from gradstudio.session.course.exam_taking import AnswerSheet
from gradstudio.session.course.grading import FIX, Grade
from gradstudio.session.record.run_outcome import HEALED


class Solution(NamedTuple):
    """`broke`: the faulty value of each knob in the known fix; `best`: what the best attempt would have needed."""

    cause: str
    broke: list[str]
    best: str


def solution(exam: Exam) -> Solution:
    """Return the solution of an exam."""
    hidden = exam.hidden
    experiment, timeline = exam.experiment()
    broke = []
    for name, healed in map(parse_assignment, hidden.fix):
        later = [change for change in timeline if change.knob == name]
        broke += [f"{name} = {value_text(change.value)} from step {change.step:,} on" for change in later]
        if not later and experiment[name] != healed:
            broke.append(f"{name} = {value_text(experiment[name])}")
    reached = sorted(hidden.aims.values())
    fix = ", ".join(text.replace("=", " = ", 1) for text in hidden.fix)
    best = (
        f"1 try and {plural(len(hidden.fix), 'knob', 'knobs')}: {fix}. That was tried and holds with "
        f"{len(reached)} of {len(reached)} seeds: {percent(reached[0])} to {percent(reached[-1])} right."
    )
    return Solution(exam.choices[hidden.right], broke, best)


def healthy_accuracy(exam: Exam) -> float:
    """Return the lowest accuracy at which a fix holds, with the seed of the run."""
    experiment, _ = exam.experiment()
    return HEALED * exam.hidden.aims[str(experiment.run.seed)]


def in_one_line(number: int, sheet: AnswerSheet, exam: Exam, grade: Grade | None) -> str:
    """Return the result of a random exam, to share; it reveals nothing that the exam hides. Without a grade it was
    given up."""
    tries = plural(max(len(sheet.tries) - 1, 0), "try", "tries")
    if grade is None or not grade.answers:
        return f"GradStudio, run {number}: given up after {tries}."
    cause = "right" if sheet.diagnosis == LETTERS[exam.hidden.right] else "wrong"
    held = grade.answers[1].points or 0  # those of the fix
    fix = "holds" if held == FIX else "holds with some seeds" if held else "does not hold"
    knobs = plural(len(sheet.knobs(sheet.fix)), "knob", "knobs")
    return (
        f"GradStudio, run {number}: {grade.score} of {grade.most} points. Cause {cause}, fix {fix}, {tries}, {knobs}."
    )
