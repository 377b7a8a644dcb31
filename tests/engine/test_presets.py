"""What bundled presets promise holds, for several seeds: how they end, what the rules say, what heals them and what does
not. `make presets-check` holds all of them to it; here are those that take least, and those that are the oldest."""

from __future__ import annotations

import numpy as np
import pytest

from gradstudio.commands import check_presets, exit_codes
from gradstudio.core import files, presets
from gradstudio.core.experiment import Experiment, parse_assignment
from gradstudio.core.presets import Preset, Promise
from gradstudio.session.course import promises
from gradstudio.session.footprint import texts
from gradstudio.session.footprint.budget import ASKED
from gradstudio.session.record.run import Run
from gradstudio.session.running.worker import Worker

PRESETS = [presets.read(path) for path in sorted(files.PRESETS.glob("*.toml"))]
BY_ID = {preset.id: preset for preset in PRESETS}
# Trained here with their own seed; `make presets-check` trains all, over seeds.
CHECKED = (
    "clip-before-unscale", "deep-sigmoid-vanishing", "dying-relu", "fp16-overflow",
    "fp16-underflow", "gan-ring", "log-of-zero", "missing-zero-grad", "outlier-batch", "pole-collapse",
    "rnn-explosion", "root-at-zero", "undivided-accumulation", "healthy-mlp", "rate-too-high",
    "log-of-negative", "out-of-memory", "clip-after-step",
)  # fmt: skip
# Of these only the run that breaks is trained here: what heals it takes up to twenty seconds.
LONG = ("rnn-explosion", "gan-ring", "pole-collapse", "clip-after-step")
# In `make test`: of each kind of network and of end the one that takes least.
IN_GATE = (
    "dying-relu", "fp16-overflow", "gan-ring", "log-of-zero", "missing-zero-grad", "pole-collapse", "rnn-explosion",
    "healthy-mlp", "rate-too-high",
)  # fmt: skip
CASES = [
    pytest.param(
        BY_ID[name], BY_ID[name].experiment.run.seed, id=name, marks=() if name in IN_GATE else pytest.mark.thorough
    )
    for name in CHECKED
]


def train(run: Run) -> None:
    Worker(run).run()


def trained(preset: Preset, experiment: Experiment) -> Run:
    run = Run(preset, experiment, preset.timeline)
    train(run)
    return run


@pytest.mark.parametrize(("preset", "seed"), CASES)
def test_breaks_as_promised_and_heals_as_its_lesson_says(preset: Preset, seed: int) -> None:
    promise, asked = preset.promise, preset.experiment.with_value("run.seed", seed)
    assert promise is not None
    runs = promises.Runs(preset, train)
    broken = runs.of(asked)
    if preset.id in LONG:
        assert promises.why_not_broken(broken, promise) == ""
    else:
        assert [check.fault for check in promises.check(preset, seed, train, runs) if check.fault] == []
        assert promises.walk_through(preset, asked, runs)[0] == asked.with_texts(promise.fix)
    if promise.outcome == "nonfinite":
        assert exit_codes.of_run(broken) == exit_codes.DIVERGED
    elif promise.rule is not None and broken.findings[promise.rule].severity == "critical":
        assert exit_codes.of_run(broken) == exit_codes.CRITICAL


HEALED = [preset for preset in PRESETS if preset.promise and preset.promise.fix]


@pytest.mark.parametrize("preset", HEALED, ids=lambda preset: preset.id)
def test_a_lesson_ends_with_the_fix(preset: Preset) -> None:
    assert preset.promise is not None
    asked = preset.experiment
    for step in preset.lesson:
        asked = asked.with_texts(step.knobs)
    assert asked == preset.experiment.with_texts(preset.promise.fix)


def of_little(**promised: object) -> Preset:
    """A preset that learns in a second, with this promise."""
    experiment = Experiment().with_values({"model.width": 16, "run.steps": 60, "optimizer.lr": 0.5})
    return Preset(id="little", title="Little", experiment=experiment, promise=Promise.model_validate(promised))


@pytest.mark.parametrize(
    ("promised", "faults"),
    [
        ({"accuracy": 0.5}, []),
        ({"accuracy": 1.0}, ["the test accuracy is 0."]),
        ({"outcome": "nonfinite"}, ["the run finished, and not nonfinite"]),
        ({"rule": "exploding_gradient"}, ["exploding_gradient does not fire, but no rule warns"]),
        ({"accuracy": 0.5, "fix": ["optimizer.lr=0.4"]}, ["the test accuracy is 0."]),
        ({"accuracy": 0.5, "broken_accuracy": 1.0, "fix": ["optimizer.lr=1e6"]}, ["the run diverged at step"]),
        (
            {"accuracy": 0.5, "broken_accuracy": 0.4, "wrong_fixes": [["optimizer.lr=0.4"], ["optimizer.lr=1e6"]]},
            ["the test accuracy is 0.", "it helps: the run finished with a test accuracy of 0."],
        ),
    ],
    ids=str,
)
def test_a_promise_that_does_not_hold_says_why(promised: dict, faults: list[str]) -> None:
    found = [check.fault for check in promises.check(of_little(**promised), 0, train) if check.fault]
    assert len(found) == len(faults)
    assert all(fault.startswith(begins) for fault, begins in zip(found, faults, strict=True)), found


def test_the_seeds_are_never_the_presets_own() -> None:
    preset = of_little()
    assert promises.seeds(preset, 3) == [1001, 1002, 1003] and check_presets.FIRST_SEED == promises.FIRST_SEED
    assert promises.seeds(preset, 2, 0) == [1, 2]
    own = preset.model_copy(update={"experiment": preset.experiment.with_value("run.seed", 1002)})
    assert promises.seeds(own, 3) == [1001, 1003, 1004]


def test_the_memory_that_the_lessons_name_is_that_of_the_experiments() -> None:
    for preset_id, size, healed in (
        ("out-of-memory", "15.1 MB", "9.09 MB"),
        ("checkpointing-pays", "16.2 MB", "8.57 MB"),
    ):
        preset = presets.load(preset_id)
        (broken, cures), (fixed, none) = map(
            ASKED.of, (preset.experiment, preset.experiment.with_texts(preset.promise.fix))
        )
        assert (texts.size(broken.peak), texts.size(fixed.peak), none) == (size, healed, ())
        told = " ".join(step.text for step in preset.lesson)
        assert size in told and healed in told and preset.promise.fix in [cure.assignments for cure in cures]
        assert all(texts.size(cure.peak) in told for cure in cures if cure.same_gradient)


@pytest.mark.parametrize("preset_id", ["log-of-zero", "root-at-zero"])
def test_no_clipping_heals_a_nan_that_is_born_in_the_loss(preset_id: str) -> None:
    preset = presets.load(preset_id)
    broken = trained(preset, preset.experiment)
    for kind in ("value", "agc", "per_tensor"):  # norm is a wrong fix of both, which their promise says
        clipped = trained(preset, preset.experiment.with_value("clipping.kind", kind))
        assert clipped.status == "nonfinite", kind
    assert (broken.first_nonfinite_step or 0) > 20, "there is a while in which it learns"


def test_the_deep_sigmoid_is_dark_at_its_input() -> None:
    preset = BY_ID["deep-sigmoid-vanishing"]
    run = trained(preset, preset.experiment.with_value("run.steps", 60))
    weights = [index for index, layer in enumerate(run.history.layers) if layer.role == "weight"]
    norms = run.history.layer_metric("grad_norm")[-1, weights].astype(float)
    assert norms[0] < 1e-9 * norms[-1] and (np.diff(norms[:20]) > 0).all()
    assert abs(run.history.column("loss")[-20:].mean() - np.log(10)) < 0.1


@pytest.mark.parametrize("preset", PRESETS, ids=lambda preset: preset.id)
def test_lessons_ask_for_what_there_is(preset):
    assert preset.title and preset.summary and preset.lesson and preset.group and preset.level
    assert set(preset.after) <= set(BY_ID) - {preset.id}
    assert len(preset.title) <= 26, "more is cut off in the top bar"
    for step in preset.lesson:
        can_be_done = step.outcome or step.rule or step.knobs or step.branch or step.map or step.accuracy is not None
        assert can_be_done or step.is_question
        for assignment in step.knobs:
            parse_assignment(assignment)
