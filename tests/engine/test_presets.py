"""Every bundled preset keeps its promise, for several seeds: how it ends, what the rules say, and what heals it."""

from __future__ import annotations

import numpy as np
import pytest

from gradstudio.core import files, presets
from gradstudio.core.experiment import Experiment, parse_assignment
from gradstudio.core.presets import Preset
from gradstudio.session.lesson import is_done
from gradstudio.session.run import Run
from gradstudio.session.summary import CRITICAL, FINISHED, NONFINITE, exit_code
from gradstudio.session.worker import Worker

PRESETS = [presets.read(path) for path in sorted(files.PRESETS.glob("*.toml"))]
SEEDS = range(5)


def trained(preset: Preset, experiment: Experiment) -> Run:
    run = Run(preset, experiment, preset.timeline)
    Worker(run).run()
    return run


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("preset", PRESETS, ids=lambda preset: preset.id)
def test_breaks_as_promised_and_heals_as_its_lesson_says(preset: Preset, seed: int) -> None:
    promise, asked = preset.promise, preset.experiment.with_value("run.seed", seed)
    broken = trained(preset, asked)
    assert broken.status == promise.outcome
    assert broken.findings[promise.rule].severity == "critical"
    assert exit_code(broken) == (NONFINITE if promise.outcome == "nonfinite" else CRITICAL)

    fixed = asked.with_texts(promise.fix)
    healed = trained(preset, fixed)
    assert healed.status == "finished" and exit_code(healed) == FINISHED
    assert healed.accuracy > promise.accuracy
    assert all(finding.severity == "info" for finding in healed.findings.values())
    for step in preset.lesson:
        assert is_done(step, broken, asked) or is_done(step, healed, fixed), step.text


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
    for step in preset.lesson:
        assert step.outcome or step.rule or step.knobs or step.accuracy is not None, "a step that can be done"
        for assignment in step.knobs:
            parse_assignment(assignment)
