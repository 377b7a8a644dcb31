"""Questions of a lesson and the way through it: judged by the run, and by nothing else."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from gradstudio.core import measure, presets
from gradstudio.core.experiment import Experiment
from gradstudio.core.history import LAYER_METRICS
from gradstudio.core.knobs import KnobError
from gradstudio.core.presets import Preset, PresetError
from gradstudio.core.row import Layer, Row
from gradstudio.session.course import promises, questions
from gradstudio.session.course.lesson_progress import Progress
from gradstudio.session.record import branches
from gradstudio.session.record.run import Run
from gradstudio.session.record.run_writer import RunWriter

LESSON = """
[promise]
outcome = "nonfinite"
fix = ["optimizer.lr=0.2"]
accuracy = 0.5

[[lesson]]
text = "What will the loss do?"
predict = [
    {text = "It becomes NaN.", outcome = "nonfinite"},
    {text = "It falls.", outcome = "finished", where = ["loss.last < loss.first"]},
    {text = "It rises and stays finite.", outcome = "finished", where = ["loss.last >= loss.first"]},
]

[[lesson]]
text = "Press Run."
outcome = "nonfinite"

[[lesson]]
text = "How many times as long as the first is the longest gradient?"
explain = {measure = "grad_norm.max / grad_norm.first", tolerance = 0.05, unit = "times"}
hint = "Point at the curve."
formula = "g / |g|"
paper = {text = "Pascanu 2013", url = "https://arxiv.org/abs/1211.5063"}

[[lesson]]
text = "Set lr to 0.2."
knobs = ["optimizer.lr=0.2"]

[[lesson]]
text = "Press Restart."
knobs = ["optimizer.lr=0.2"]
outcome = "finished"
"""
PRESET = presets.parse(LESSON, Path("lesson.toml"))


def ran(losses: list[float], preset: Preset = PRESET, **knobs: object) -> Run:
    """A run of these losses, over, with gradient norms twice as large."""
    experiment = preset.experiment.with_values({name.replace("__", "."): value for name, value in knobs.items()})
    run = Run(preset, experiment)
    writer = RunWriter(run)
    writer.begin((Layer("head.weight", "weight", 4),), {"device": "cpu"})
    writer.set_status("running")
    for step, loss in enumerate(losses):
        writer.record(
            Row(
                step=step, loss=loss, grad_norm=2 * loss, clipped_norm=2 * loss, clip_coef=1.0, lr=0.1, scale=1.0,
                skipped=False, nonfinite=0, update_ratio=1e-3, weight_norm=1.0, accuracy=0.5, step_seconds=0.01,
                layers=np.ones((len(LAYER_METRICS), 1)),
            )
        )  # fmt: skip
    broke = not math.isfinite(losses[-1])
    writer.set_status("nonfinite" if broke else "finished")
    vars(run)["accuracy"] = None if broke else 0.9
    return run


DIVERGED = [1.0, 3.0, 25.0, math.nan]


def test_measures_are_read_off_the_rows() -> None:
    run = ran(DIVERGED)
    for text, value in (
        ("loss.max", 25.0), ("loss.last", 25.0), ("grad_norm.at.1", 6.0), ("loss.at.3", None), ("loss.at.9", None),
        ("grad_norm.max / grad_norm.first", 25.0), ("nonfinite_step", 3.0), ("steps", 4.0), ("accuracy", None),
        ("optimizer.lr * 10", 1.0), ("test_accuracy.max", None), ("last_layer.grad_norm.max", 1.0),
        ("loss.median", 3.0), ("clipped_share", 0.0), ("loss.sum / skipped.max", None),
    ):  # fmt: skip
        assert questions.value(measure.measure(text), run) == value, text
    assert measure.measure("grad_norm.max / optimizer.lr").words == "largest grad_norm / optimizer.lr"


@pytest.mark.parametrize("text", ["loss", "loss.biggest", "loss.at.x", "optimizer.kind", "a" * 300, "", "1 / / 2"])
def test_what_is_no_measure_is_refused(text: str) -> None:
    with pytest.raises(KnobError, match=r"allowed|no number"):
        measure.measure(text)


@pytest.mark.parametrize(
    ("step", "says"),
    [
        ('predict = [{text = "a", outcome = "nonfinite"}]', "predict has 1 choice; allowed: 2 to 6"),
        ('predict = [{text = "a", outcome = "failed"}, {text = "b"}]', "choice b names nothing"),
        ('predict = [{text = "a", where = ["loss.max"]}, {text = "b", rule = "x"}]', "loss.max is no comparison"),
        ('explain = {measure = "loss.biggest"}', "loss.biggest is no measure"),
        ('explain = {measure = "loss.max"}\nrule = "loss_spike"', "a question has knobs and nothing else"),
        ('explain = {measure = "loss.max", tolerance = 2}', "less than or equal to 1"),
        ('paper = {text = "a", url = "file:///etc/passwd"}', "lesson.0.paper.url"),
    ],
)
def test_a_question_that_cannot_be_judged_is_refused(step: str, says: str) -> None:
    with pytest.raises(PresetError) as fault:
        presets.parse(f'[[lesson]]\ntext = "x"\n{step}\n', Path("mine.toml"))
    assert says in str(fault.value) and str(fault.value).startswith("mine.toml")


def test_a_lesson_with_questions_is_written_and_read_back() -> None:
    assert presets.parse(presets.to_toml(PRESET), Path("lesson.toml")).lesson == PRESET.lesson


def test_a_prediction_is_made_before_the_run_and_judged_by_it() -> None:
    progress, new, run = Progress(PRESET), Run(PRESET, PRESET.experiment), ran(DIVERGED)
    assert not progress.too_late(0, new) and progress.too_late(0, run)
    progress.predict(0, 1)
    assert progress.look(new, new.experiment) is False and progress.steps[0].mark == "answered"
    assert progress.look(ran([1.0, 0.5], optimizer__lr=0.01), PRESET.experiment) is False, "not the run that was asked"
    assert progress.look(run, run.experiment)
    assert [step.mark for step in progress.steps] == ["wrong", "done", "open", "open", "open"]
    assert progress.steps[0].told == 0 and not progress.whole
    again = Progress(PRESET)
    again.predict(0, 0)
    again.look(run, run.experiment)
    assert again.steps[0].mark == "right"


def test_a_run_that_was_seen_is_not_predicted_until_a_restart() -> None:
    progress, new, run = Progress(PRESET), Run(PRESET, PRESET.experiment), ran(DIVERGED)
    progress.look(run, run.experiment)
    branch = branches.fork(run, 1)
    assert progress.too_late(0, branch), "rewound, and nothing changed"
    RunWriter(branch).change("optimizer.lr", 0.01)
    assert progress.too_late(0, branch), "a branch of what was seen, with another knob"
    other = ran([1.0, 0.5], optimizer__lr=0.01)
    assert progress.too_late(0, other)
    assert not progress.too_late(0, new), "restarted"
    progress.predict(0, 1)
    assert progress.waits_for(0, new) == "Now press Run, and see."
    assert progress.waits_for(0, other) == "Press Restart, then Run, and see."


def test_a_number_is_held_against_the_runs_own() -> None:
    progress, run = Progress(PRESET), ran(DIVERGED)
    progress.skip(0, run)
    progress.look(run, run.experiment)
    assert progress.next == 2 and progress.can_explain(2, run)
    assert not progress.can_explain(2, ran([1.0, 0.5], optimizer__lr=0.2)), "another run has another number"
    assert progress.explain(2, "many", run) == "Type a number, such as 0.25, 1.5e9 or 12 %."
    assert progress.explain(2, "30", run) == "Too large, by more than 5 %."
    assert progress.explain(2, "2,4.0", run) == "" and progress.steps[2].note == "Right: the run has 25 times."
    assert progress.steps[2].tries == 1
    left_out = Progress(PRESET)
    left_out.skip(2, run)
    assert left_out.steps[2].note == "The answer: 25 times."


def test_a_step_ticks_by_whatever_heals_the_run_and_says_which() -> None:
    broken, healed = ran(DIVERGED), ran([1.0, 0.5], optimizer__lr=0.01, model__width=64)
    progress = Progress(PRESET)
    progress.look(healed, healed.experiment)
    assert not any(step.over for step in progress.steps), "nothing was broken yet"
    for place in (0, 2):
        progress.skip(place, broken)
    progress.look(broken, broken.experiment)
    assert progress.next == 3
    progress.look(broken, Experiment().with_values({"optimizer.lr": 0.01}))
    assert progress.next == 3, "asked for, and not run"
    assert progress.look(healed, healed.experiment) and progress.whole
    assert progress.steps[3].note == "Another way heals it too: optimizer.lr = 0.01, model.width = 64."
    named = Progress(PRESET)
    for place in (0, 2):
        named.skip(place, broken)
    named.look(broken, broken.experiment)
    fixed = ran([1.0, 0.5], optimizer__lr=0.2)
    named.look(fixed, fixed.experiment)
    assert named.whole and named.steps[4].note == ""


def test_a_cure_that_the_lesson_asked_for_is_no_other_way() -> None:
    lesson = (
        LESSON[: LESSON.index("[[lesson]]")]
        + """
[[lesson]]
text = "Press Run."
outcome = "nonfinite"

[[lesson]]
text = "Set lr to 0.01, and press Restart."
knobs = ["optimizer.lr=0.01"]
outcome = "finished"

[[lesson]]
text = "Set lr to 0.2, and press Restart."
knobs = ["optimizer.lr=0.2"]
outcome = "finished"
"""
    )
    progress = Progress(presets.parse(lesson, Path("two_cures.toml")))
    broken, healed = ran(DIVERGED), ran([1.0, 0.5], optimizer__lr=0.01)
    progress.look(broken, broken.experiment)
    progress.look(healed, healed.experiment)
    assert progress.next == 2, "what the last step says is still to be done"
    other = ran([1.0, 0.5], optimizer__lr=0.01, model__width=64)
    progress.look(other, other.experiment)
    assert progress.whole


def test_every_bundled_lesson_can_be_done_by_hand() -> None:
    found = [presets.read(path) for path in presets.available()]
    assert len(found) > 50 and not any(map(promises.why_not_by_hand, found))


@pytest.mark.parametrize(
    ("lesson", "says"),
    [
        (
            'knobs = ["model.parametrization=mup", "model.base_width=32"]\n[[lesson]]\ntext = "Back."\n'
            'knobs = ["model.parametrization=standard", "model.base_width=64"]',
            "step 2 of the lesson sets model.base_width, which has no effect there",
        ),
        (
            'knobs = ["model.init=he"]\n[[lesson]]\ntext = "Make map."\nmap = "made"',
            "step 2 of the lesson makes its map with another model.init than the preset",
        ),
        (
            'knobs = ["model.init=he"]\n[[lesson]]\ntext = "How high?"\nexplain = {measure = "loss.max"}',
            "step 2 of the lesson asks about a run with another model.init",
        ),
    ],
)  # fmt: skip
def test_a_lesson_that_cannot_be_done_by_hand_is_found(lesson: str, says: str) -> None:
    maps = '[map]\nx = "optimizer.lr=0.001:1:log"\ny = "model.width=16:64:log"\n'
    preset = presets.parse(f'{maps}[[lesson]]\ntext = "Set it."\n{lesson}', Path("by_hand.toml"))
    assert promises.why_not_by_hand(preset).startswith(says)
