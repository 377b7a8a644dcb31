"""Every bundled preset keeps its promise, for several seeds: how it ends, what the rules say, and what heals it."""

from __future__ import annotations

import numpy as np
import pytest

from gradstudio.commands import exit_codes
from gradstudio.core import files, presets
from gradstudio.core.events import Change
from gradstudio.core.experiment import Experiment, differing, parse_assignment
from gradstudio.core.presets import Preset
from gradstudio.session.footprint import texts
from gradstudio.session.footprint.budget import ASKED
from gradstudio.session.record.branches import fork, last_healthy_step
from gradstudio.session.record.run import Run
from gradstudio.session.running.worker import Worker
from gradstudio.session.words.lesson_check_marks import is_done

PRESETS = [presets.read(path) for path in sorted(files.PRESETS.glob("*.toml"))]
SEEDS = range(5)
TAKE_SECONDS = {
    "checkpointing-pays",
    "clip-after-step",
    "deep-cnn",
    "deep-sigmoid-vanishing",
    "gan-ring",
    "out-of-memory",
    "pole-collapse",
    "post-norm-transformer",
    "rnn-explosion",
}  # these are trained with their own seed alone
CASES = [
    (preset, seed)
    for preset in PRESETS
    for seed in ([preset.experiment.run.seed] if preset.id in TAKE_SECONDS else SEEDS)
]


def trained(preset: Preset, experiment: Experiment) -> Run:
    run = Run(preset, experiment, preset.timeline)
    Worker(run).run()
    return run


def branched(broken: Run, asked: Experiment) -> Run:
    """The run that broke, gone on with from its last healthy step with the knobs as asked for."""
    step = last_healthy_step(broken)
    assert step is not None
    wanted = differing(broken.values_at(step), asked)
    run = fork(broken, step, asked=tuple(Change(step, name, value) for name, value in wanted.items()))
    Worker(run).run()
    return run


class Runs:
    """The runs of a preset and their branches, each trained once."""

    def __init__(self, preset: Preset) -> None:
        self._preset = preset
        self._runs: list[tuple[Experiment, Run]] = []
        self._branches: list[tuple[Run, Experiment, Run]] = []

    def of(self, experiment: Experiment) -> Run:
        for asked, run in self._runs:
            if asked == experiment:
                return run
        self._runs.append((experiment, trained(self._preset, experiment)))
        return self._runs[-1][-1]

    def branch_of(self, broken: Run, experiment: Experiment) -> Run:
        for parent, asked, branch in self._branches:
            if parent is broken and asked == experiment:
                return branch
        self._branches.append((broken, experiment, branched(broken, experiment)))
        return self._branches[-1][-1]


def walk_through(preset: Preset, asked: Experiment, runs: Runs) -> Experiment:
    """Do what the lesson says and see each step done: change its knobs, rewind where it says so, and otherwise restart
    where it looks at a run. Return the experiment that was asked for in the end."""
    broken, back = runs.of(asked), False
    for step in preset.lesson:
        asked, back = asked.with_texts(step.knobs), back or step.branch
        looks = step.outcome or step.rule or step.accuracy is not None or step.branch
        run = Run(preset, asked) if not looks else runs.branch_of(broken, asked) if back else runs.of(asked)
        assert is_done(step, run, asked), step.text
    return asked


@pytest.mark.parametrize(("preset", "seed"), CASES, ids=[f"{preset.id}-{seed}" for preset, seed in CASES])
def test_breaks_as_promised_and_heals_as_its_lesson_says(preset: Preset, seed: int) -> None:
    promise, asked, runs = preset.promise, preset.experiment.with_value("run.seed", seed), Runs(preset)
    broken = runs.of(asked)
    assert broken.status == {"refused": "failed"}.get(promise.outcome, promise.outcome)
    if promise.rule is not None:
        assert broken.findings[promise.rule].severity != "info"
    if promise.outcome == "nonfinite":
        assert exit_codes.of_run(broken) == exit_codes.DIVERGED
    elif promise.outcome == "refused":
        assert broken.refused and exit_codes.of_run(broken) == exit_codes.WRONG_REQUEST
    else:  # it has learned next to nothing
        assert broken.accuracy < 0.3 * promise.accuracy
        if promise.rule is not None and broken.findings[promise.rule].severity == "critical":
            assert exit_codes.of_run(broken) == exit_codes.CRITICAL

    fixed = asked.with_texts(promise.fix)
    healed = runs.of(fixed)
    assert healed.status == "finished" and exit_codes.of_run(healed) == exit_codes.FINISHED
    assert healed.accuracy > promise.accuracy
    assert all(finding.severity == "info" for finding in healed.findings.values())
    assert walk_through(preset, asked, runs) == fixed


def test_the_memory_that_the_lessons_name_is_that_of_the_experiments() -> None:
    for preset_id, size, healed in (
        ("out-of-memory", "15 MB", "9.07 MB"),
        ("checkpointing-pays", "16.2 MB", "8.55 MB"),
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
    for kind in ("norm", "value", "agc", "per_tensor"):
        clipped = trained(preset, preset.experiment.with_value("clipping.kind", kind))
        assert clipped.status == "nonfinite", kind
    assert broken.first_nonfinite_step > 20, "there is a while in which it learns"


def test_the_deep_sigmoid_is_dark_at_its_input() -> None:
    preset = next(preset for preset in PRESETS if preset.id == "deep-sigmoid-vanishing")
    run = trained(preset, preset.experiment.with_value("run.steps", 60))
    weights = [index for index, layer in enumerate(run.history.layers) if layer.role == "weight"]
    norms = run.history.layer_metric("grad_norm")[-1, weights].astype(float)
    assert norms[0] < 1e-9 * norms[-1] and (np.diff(norms[:20]) > 0).all()
    assert abs(run.history.column("loss")[-20:].mean() - np.log(10)) < 0.1


@pytest.mark.parametrize("preset", PRESETS, ids=lambda preset: preset.id)
def test_lessons_ask_for_what_there_is(preset):
    assert preset.title and preset.summary and preset.lesson
    assert len(preset.title) <= 26, "more is cut off in the top bar"
    for step in preset.lesson:
        assert step.outcome or step.rule or step.knobs or step.branch or step.accuracy is not None, (
            "a step that can be done"
        )
        for assignment in step.knobs:
            parse_assignment(assignment)
