"""Checking the promise of a preset: it is trained with a seed as it is, with its fix and with each wrong fix, and its
lesson is walked through."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterator
from typing import Literal, NamedTuple, get_args

from gradstudio.core.events import Change
from gradstudio.core.experiment import Experiment, differing_values, parse_assignment
from gradstudio.core.lesson import LessonStep, MapStep
from gradstudio.core.presets import Preset, Promise
from gradstudio.core.text import number
from gradstudio.session.course import formula, questions
from gradstudio.session.record.branches import fork, last_healthy_step
from gradstudio.session.record.run import Run
from gradstudio.session.record.run_outcome import fires, has_learned, learned_little, warnings
from gradstudio.session.words.lesson_check_marks import is_done

FIRST_SEED = 1001  # no preset was tuned on these seeds

Kind = Literal["breaks", "heals", "healthy", "wrong fix", "lesson"]
Training = Callable[[Run], None]  # trains a run to its end


class Check(NamedTuple):
    """One part of a promise, with one seed. `fault`: why it does not hold, "" if it does."""

    kind: Kind
    what: str  # the knobs that were changed; or the kind if there are none
    fault: str
    seconds: float  # of CPU


def seeds(preset: Preset, count: int, first: int = FIRST_SEED) -> list[int]:
    """Return `count` seeds from `first` on, none of which is the preset's own."""
    own = preset.experiment.run.seed
    return [seed for seed in range(first, first + count + 1) if seed != own][:count]


def check(preset: Preset, seed: int, train: Training, runs: Runs | None = None) -> Iterator[Check]:
    """Yield each part of the promise with this seed as soon as it is checked; nothing if the preset makes none. `runs`:
    those already trained."""
    promise, experiment, runs = (
        preset.promise,
        preset.experiment.with_value("run.seed", seed),
        runs or Runs(preset, train),
    )
    if promise is None:
        return
    if promise.of_health:
        yield _check_in_time("healthy", [], lambda: why_not_healthy(runs.of(experiment), promise))
    else:
        yield _check_in_time("breaks", [], lambda: why_not_broken(runs.of(experiment), promise))
    if promise.fix:
        yield _check_in_time(
            "heals", promise.fix, lambda: why_not_healthy(runs.of(experiment.with_texts(promise.fix)), promise)
        )
    for wrong in promise.wrong_fixes:
        changed = experiment.with_texts(wrong)
        yield _check_in_time("wrong fix", wrong, lambda changed=changed: why_healed(runs.of(changed), promise))
    if preset.lesson:
        yield _check_in_time("lesson", [], lambda: walk_through(preset, experiment, runs)[1])


def why_not_broken(run: Run, promise: Promise) -> str:
    """Return in what way a run is not broken as promised; "" if it is."""
    if run.status != promise.outcome:
        return f"the run {_end_in_words(run)}, and not {promise.outcome}"
    if promise.rule is not None and not fires(run, promise.rule):
        return f"{promise.rule} does not fire, but {_findings(run)}"
    if promise.outcome == "finished" and promise.accuracy and not learned_little(run, promise.most_when_broken):
        return f"the test accuracy is {_accuracy(run)}, above {promise.most_when_broken:g}"
    return ""


def why_not_healthy(run: Run, promise: Promise) -> str:
    """Return in what way a run is not healthy: it must finish with the accuracy, without a warning. "" if it is
    healthy."""
    if run.status != "finished":
        return f"the run {_end_in_words(run)}"
    if not has_learned(run, promise.accuracy):
        return f"the test accuracy is {_accuracy(run)}, below {promise.accuracy:g}"
    if warnings(run):
        return f"a rule warns: {_findings(run)}"
    return ""


def why_healed(run: Run, promise: Promise) -> str:
    """Return in what way a wrong fix helped; "" if the run is still broken."""
    if run.status != "finished" or (promise.rule is not None and fires(run, promise.rule)):
        return ""
    if promise.accuracy and learned_little(run, promise.most_when_broken):
        return ""
    return f"it helps: the run finished with a test accuracy of {_accuracy(run)}, and {_findings(run)}"


def walk_through(preset: Preset, experiment: Experiment, runs: Runs) -> tuple[Experiment, str]:
    """Follow the lesson: change its knobs, rewind if it says so, and otherwise restart when it looks at a run. No map
    is made. Return the final requested experiment, and the step that gets no check mark, or ""."""
    if fault := why_not_by_hand(preset):
        return experiment, fault
    broken, back = runs.of(experiment), False
    for at, step in enumerate(preset.lesson, 1):
        experiment, back = experiment.with_texts(step.knobs), back or step.branch
        looks = step.outcome or step.rule or step.accuracy is not None or step.branch or step.is_question
        run = (
            Run(preset, experiment)
            if not looks
            else runs.branch_of(broken, experiment)
            if back
            else runs.of(experiment)
        )
        if run is None:
            return experiment, f"step {at} rewinds a run that was never healthy"
        if step.formula and (fault := formula.why_not_drawn(step.formula)):
            return experiment, f"step {at} of the lesson: {fault}"
        if step.is_question:
            if fault := why_no_answer(step, run):
                return experiment, f"step {at} of the lesson {fault}"
            continue
        if not is_done(step, run, experiment, _any_map):
            return (
                experiment,
                f"step {at} of the lesson gets no check mark: the run {_end_in_words(run)}, and {_findings(run)}",
            )
    return experiment, ""


def why_not_by_hand(preset: Preset) -> str:
    """Return which step of a lesson cannot be done in the window, "" if there is none: a knob that has no effect there
    and so is greyed, a map of other knobs than the preset proposes, or a number of the preset's own run while another
    one is in the window. Nothing is trained."""
    experiment, proposed = preset.experiment, preset.map
    for at, step in enumerate(preset.lesson, 1):
        for name, value in map(parse_assignment, step.knobs):
            if experiment[name] != value and not experiment.applies(name):
                return f"step {at} of the lesson sets {name}, which has no effect there: set it before what takes that"
            experiment = experiment.with_value(name, value)
        if (
            step.map == "made"
            and proposed
            and (other := set(differing_values(preset.experiment, experiment)) - proposed.free)
        ):
            return f"step {at} of the lesson makes its map with another {', '.join(sorted(other))} than the preset"
        if step.explain and not step.knobs and (other := _changed_knobs(preset.experiment, experiment)):
            return (
                f"step {at} of the lesson asks about a run with another {', '.join(other)}: its knobs have to name that"
            )
    return ""


def _changed_knobs(preset: Experiment, asked: Experiment) -> list[str]:
    return sorted(name for name in differing_values(preset, asked) if name.partition(".")[0] != "run")


def why_no_answer(step: LessonStep, run: Run) -> str:
    """Return why a question of a lesson has no right answer in a run; "" if it has exactly one."""
    if step.explain and questions.measured_value(step.explain, run) is None:
        return f"asks for {step.explain.measure}, which the run does not have: it {_end_in_words(run)}"
    came_true = questions.right_choices(step, run)
    if step.predict and len(came_true) != 1:
        text = ", ".join(f"“{step.predict[place].text}”" for place in came_true) or "none"
        return f"has not one right choice but {text}: the run {_end_in_words(run)}, and {_findings(run)}"
    return ""


def _any_map(_: Run) -> Collection[str]:
    return get_args(MapStep)


class Runs:
    """The runs of a preset and their branches, each trained once."""

    def __init__(self, preset: Preset, train: Training) -> None:
        self._preset, self._train = preset, train
        self._runs: list[tuple[Experiment, Run]] = []
        self._branches: list[tuple[Run, Experiment, Run]] = []

    def of(self, experiment: Experiment) -> Run:
        for knobs, run in self._runs:
            if knobs == experiment:
                return run
        run = Run(self._preset, experiment, self._preset.timeline)
        self._train(run)
        self._runs.append((experiment, run))
        return run

    def branch_of(self, broken: Run, experiment: Experiment) -> Run | None:
        """Return the broken run continued from its last healthy step with the requested knobs; None if it was never
        healthy."""
        for parent, knobs, branch in self._branches:
            if parent is broken and knobs == experiment:
                return branch
        step = last_healthy_step(broken)
        if step is None:
            return None
        wanted = differing_values(broken.values_at(step), experiment)
        run = fork(broken, step, changes=tuple(Change(step, name, value) for name, value in wanted.items()))
        self._train(run)
        self._branches.append((broken, experiment, run))
        return run


def _check_in_time(kind: Kind, knobs: list[str], fault: Callable[[], str]) -> Check:
    began = time.process_time()
    problem = fault()
    return Check(kind, " ".join(knobs) or kind, problem, time.process_time() - began)


def _accuracy(run: Run) -> str:
    return "unknown" if run.accuracy is None or math.isnan(run.accuracy) else number(run.accuracy)


def _end_in_words(run: Run) -> str:
    ways = {"finished": "finished", "nonfinite": f"diverged at step {run.first_nonfinite_step}"}
    return ways.get(run.status, f"ended as {run.status}" + (f" ({run.message})" if run.message else ""))


def _findings(run: Run) -> str:
    rules = [finding.rule for finding in warnings(run)]
    return f"the findings are {', '.join(rules)}" if rules else "no rule warns"
