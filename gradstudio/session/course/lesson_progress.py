"""A student's progress in a lesson: which steps are done and by what, and how the questions were answered. It persists
over all runs of the preset."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Literal

from gradstudio.core.experiment import Experiment, differing_values, parse_assignment
from gradstudio.core.knobs import values_text
from gradstudio.core.lesson import LessonStep
from gradstudio.core.presets import Preset, Promise
from gradstudio.core.text import number
from gradstudio.session.course import promises, questions
from gradstudio.session.record.run import Run
from gradstudio.session.words.lesson_check_marks import is_done, no_map

Mark = Literal["open", "done", "answered", "right", "wrong", "skipped"]


@dataclass
class StepResult:
    """Result of one lesson step. `note`: a sentence about it, "" if there is nothing to say."""

    mark: Mark = "open"
    note: str = ""
    choice: int | None = None  # of a prediction
    told: int | None = None  # the choice that came true
    tries: int = 0  # wrong answers to a question about a number

    @property
    def over(self) -> bool:
        return self.mark != "open"


class Progress:
    """The progress of one student through one lesson."""

    def __init__(self, preset: Preset) -> None:
        self.preset = preset
        self.steps = [StepResult() for _ in preset.lesson]
        self._seen: set[int] = set()  # indices of the questions about a run that was seen since the latest restart

    @property
    def next(self) -> int:
        """Index of the first step that is not done; the number of steps if all are."""
        return next((place for place, step in enumerate(self.steps) if not step.over), len(self.steps))

    @property
    def has_begun(self) -> bool:
        """Whether a question has been answered."""
        return any(step.mark in ("answered", "right", "wrong") for step in self.steps)

    @property
    def whole(self) -> bool:
        """Whether every step is done, and every prediction was checked against a run."""
        return bool(self.steps) and all(step.over and step.mark != "answered" for step in self.steps)

    @property
    def hides_title(self) -> bool:
        """Whether the title of the preset may give away the answer to its first prediction, while nothing relevant was
        seen yet."""
        place = next((place for place, step in enumerate(self.preset.lesson) if step.predict), None)
        mark = "done" if place is None else self.steps[place].mark
        return mark == "answered" or (mark == "open" and place not in self._seen)

    def look(self, run: Run, requested: Experiment, of_map: Callable[[Run], Collection[str]] = no_map) -> bool:
        """Update from the current run, and return whether anything has changed. Steps are done in order. `of_map`: as
        in `is_done`."""
        before = [(step.mark, step.note) for step in self.steps]
        self._note_what_is_seen(run)
        for step, passed in zip(self.preset.lesson, self.steps, strict=True):
            if passed.mark == "answered":
                self._judge(step, passed, run)
        while (place := self.next) < len(self.steps):
            step = self.preset.lesson[place]
            if step.is_question or not is_done(step, run, requested, of_map):
                break
            self.steps[place] = StepResult("done")
        self._look_for_another_way(run)
        return before != [(step.mark, step.note) for step in self.steps]

    def too_late(self, place: int, run: Run) -> bool:
        """Return whether the run that a question asks to predict was already seen. Only a restart reopens the question:
        a branch begins with steps that were seen."""
        self._note_what_is_seen(run)
        return place in self._seen

    def waits_for(self, place: int, run: Run) -> str:
        """Return what must happen before a run can judge a prediction."""
        if not len(run.history) and not run.over:
            return "Now press Run, and see."
        if run.over or not questions.is_about(self.preset.lesson[place], run, self.preset):
            return "Press Restart, then Run, and see."
        return "Let this run come to its end, and see."

    def still_asks(self, run: Run) -> bool:
        """Return whether an open question names knobs that this run does not have: trials of fixes might answer it."""
        return any(
            step.is_question
            and bool(step.knobs)
            and passed.mark in ("open", "answered")
            and not questions.is_about(step, run, self.preset)
            for step, passed in zip(self.preset.lesson, self.steps, strict=True)
        )

    def predict(self, place: int, choice: int) -> None:
        """Record a prediction; the next run that the question is about judges it."""
        self.steps[place] = StepResult("answered", choice=choice)

    def can_explain(self, place: int, run: Run) -> bool:
        """Return whether the run has the number that a question asks for."""
        step = self.preset.lesson[place]
        return (
            step.explain is not None
            and run.status in questions.ENDED
            and questions.is_about(step, run, self.preset)
            and questions.measured_value(step.explain, run) is not None
        )

    def explain(self, place: int, answer: str, run: Run) -> str:
        """Grade an answer to a question about a number. Return what is wrong with it, "" if it is right."""
        asked, passed = self.preset.lesson[place].explain, self.steps[place]
        assert asked is not None
        given = questions.as_number(answer)
        if given is None:
            return "Type a number, such as 0.25, 1.5e9 or 12 %."
        right = questions.measured_value(asked, run)
        if right is None:
            return "The run does not have this number yet."
        if not questions.is_right(asked, given, run):
            passed.tries += 1
            return f"{'Too large' if given > right else 'Too small'}, by more than {number(100 * asked.tolerance)} %."
        self.steps[place] = StepResult(
            "right", f"Right: the run has {_with_unit(right, asked.unit)}.", tries=passed.tries
        )
        return ""

    def skip(self, place: int, run: Run) -> None:
        """Skip a question. If the run already has its answer, it is shown."""
        step, note = self.preset.lesson[place], ""
        if step.explain and self.can_explain(place, run):
            right = questions.measured_value(step.explain, run)
            assert right is not None
            note = f"The answer: {_with_unit(right, step.explain.unit)}."
        self.steps[place] = StepResult("skipped", note)

    # ---- inside

    def _note_what_is_seen(self, run: Run) -> None:
        """Remember the questions that this run answers for anyone who watches it. A question that names no knobs is
        about every run of the preset."""
        if not len(run.history) and not run.over:
            if not run.parent:
                self._seen.clear()
            return
        for place, step in enumerate(self.preset.lesson):
            if step.predict and (not step.knobs or questions.is_about(step, run, self.preset)):
                self._seen.add(place)

    def _judge(self, step: LessonStep, passed: StepResult, run: Run) -> None:
        if not questions.is_about(step, run, self.preset):
            return
        came_true = questions.right_choices(step, run)
        if run.status not in questions.ENDED or passed.choice is None:
            return
        if len(came_true) != 1:
            passed.mark, passed.note = "skipped", "This run cannot tell: not exactly one of the choices came true."
            return
        expected, passed.told = step.predict[passed.choice].text, came_true[0]
        if passed.told == passed.choice:
            passed.mark, passed.note = "right", f"As you expected: {expected}"
        else:
            passed.mark, passed.note = (
                "wrong",
                f"You expected: {expected} What happened: {step.predict[passed.told].text}",
            )

    def _look_for_another_way(self, run: Run) -> None:
        """Mark the steps that set the fix as done if another change than the lesson's own has healed the run, and name
        that change."""
        promise, place = self.preset.promise, self.next
        wanted = [at for at in range(place, len(self.steps)) if _heals(self.preset.lesson[at], promise)]
        if not wanted or wanted[0] != place or promise is None or run.status != "finished":
            return
        if promises.why_not_healthy(run, promise):
            return
        changed = differing_values(self.preset.experiment, run.in_force)
        others = {name: value for name, value in changed.items() if name.partition(".")[0] != "run"}
        told_so_far = self.preset.experiment.with_texts(
            [text for step in self.preset.lesson[:place] for text in step.knobs]
        )
        if all(told_so_far[name] == value for name, value in others.items()):
            return
        if all(run.in_force[name] == value for name, value in map(parse_assignment, promise.fix)):
            return
        told = values_text(others)
        for at in wanted:
            self.steps[at] = StepResult("done", f"Another way heals it too: {told}.")


def _heals(step: LessonStep, promise: Promise | None) -> bool:
    """Return whether a step is part of the way to the fix: it sets one of its knobs, or rewinds."""
    return promise is not None and not step.is_question and (step.branch or bool(set(promise.fix) & set(step.knobs)))


def _with_unit(value: float, unit: str) -> str:
    return f"{number(value)} {unit}".strip()
