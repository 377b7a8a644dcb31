"""Every bundled preset keeps its promise, for several seeds."""

from __future__ import annotations

import math
import statistics
from itertools import islice

import pytest

from gradstudio.core import files, presets
from gradstudio.core.experiment import Experiment, parse_assignment
from gradstudio.engine.trainer import Trainer

PRESETS = [presets.read(path) for path in sorted(files.PRESETS.glob("*.toml"))]
PROMISES = [preset for preset in PRESETS if preset.promise]
SEEDS = range(5)


def outcome(experiment: Experiment, seed: int) -> tuple[str, Trainer, list]:
    """How the run ends, and its rows: at the first non-finite step, or after run.steps."""
    trainer, rows = Trainer(experiment.with_value("run.seed", seed)), []
    for row in islice(trainer.steps(), experiment.run.steps):
        rows.append(row)
        if row.went_nonfinite:
            return "nonfinite", trainer, rows
    return "finished", trainer, rows


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("preset", PROMISES, ids=lambda preset: preset.id)
def test_breaks_as_promised(preset, seed):
    end, trainer, rows = outcome(preset.experiment, seed)
    assert end == preset.promise.outcome
    if preset.promise.rule == "vanishing_gradient":
        assert rows[0].layers[0][0] < 1e-9 * rows[0].layers[0][-2], "first layer's gradient norm against the head's"
        assert min(row.loss for row in rows) > 2.1 and trainer.evaluate() < 0.2
    if preset.promise.rule == "exploding_gradient":
        norms = [row.grad_norm for row in rows if math.isfinite(row.grad_norm)]
        assert max(norms) > 20 * statistics.median(norms)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("preset", PROMISES, ids=lambda preset: preset.id)
def test_heals_as_promised(preset, seed):
    end, trainer, rows = outcome(preset.experiment.with_texts(preset.promise.fix), seed)
    assert end == "finished"
    assert trainer.evaluate() > preset.promise.accuracy
    learned = sum(row.accuracy for row in rows[-50:]) / 50
    assert all(learned > step.accuracy for step in preset.lesson if step.accuracy is not None)


@pytest.mark.parametrize("preset", PRESETS, ids=lambda preset: preset.id)
def test_lessons_ask_for_what_there_is(preset):
    assert preset.title and preset.summary and preset.lesson
    for step in preset.lesson:
        assert step.outcome or step.rule or step.knobs or step.accuracy is not None, "a step that can be done"
        for assignment in step.knobs:
            parse_assignment(assignment)
