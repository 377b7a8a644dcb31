from __future__ import annotations

from itertools import islice

import numpy as np
import pytest
import torch

from gradstudio.core.experiment import KNOBS, Experiment
from gradstudio.core.history import COLUMNS, History
from gradstudio.core.knobs import KnobError
from gradstudio.engine.models import MODELS
from gradstudio.engine.models.initialization import INITIALIZERS
from gradstudio.engine.step.clipping import CLIPPING
from gradstudio.engine.step.loss_scale import SCALERS
from gradstudio.engine.step.optimizers import OPTIMIZERS
from gradstudio.engine.step.schedules import SCHEDULES
from gradstudio.engine.tasks import TASKS
from gradstudio.engine.tasks.digits import SCALINGS
from gradstudio.engine.trainer import Trainer

EVERYTHING = [
    "problem.noise=0.1", "problem.outlier_every=3", "gradients.noise_std=0.01", "gradients.centralize=true",
    "accumulation.steps=2",
    "clipping.kind=agc", "optimizer.kind=adam", "optimizer.lr=0.01", "model.norm=batch", "schedule.kind=cosine",
]  # fmt: skip


def figures(row):
    return [getattr(row, name) for name in COLUMNS if name != "step_seconds"], row.layers.tobytes()


@pytest.mark.parametrize(("knob", "table"), [
    ("problem.task", TASKS), ("problem.scaling", SCALINGS), ("model.kind", MODELS), ("model.init", INITIALIZERS),
    ("optimizer.kind", OPTIMIZERS),
    ("schedule.kind", SCHEDULES), ("clipping.kind", {*CLIPPING, "per_example"}), ("precision.scaling", SCALERS),
])  # fmt: skip
def test_every_choice_of_a_knob_is_there(knob, table):
    assert set(KNOBS[knob].choices) == set(table)


@pytest.mark.parametrize("knobs", [[], EVERYTHING, ["precision.dtype=fp16"], ["model.kind=rnn"]])
def test_equal_runs_are_equal_to_the_last_bit(build, knobs):
    one, other, elsewhere = build(*knobs), build(*knobs), build(*knobs, "run.seed=9")
    noise = elsewhere.steps()
    for first, second in islice(zip(one.steps(), other.steps(), strict=False), 8):
        next(noise)  # a third trainer beside them disturbs nothing
        torch.rand(3)  # nor does whoever draws from torch's global generator
        assert figures(first) == figures(second)
    assert all(map(torch.equal, one.flat.parameters, other.flat.parameters))
    assert figures(next(elsewhere.steps())) != figures(next(one.steps()))


def test_building_leaves_torch_s_generator_alone(build):
    before = torch.get_rng_state()
    build("model.init=orthogonal")
    assert torch.equal(before, torch.get_rng_state())


def test_a_change_acts_from_the_next_step_on(build):
    changed, plain = build(), build()
    steps, same = changed.steps(), plain.steps()
    for _ in range(3):
        assert figures(next(steps)) == figures(next(same))
    changed.change("clipping.kind", "norm")
    changed.change("clipping.max_norm", 0.01)
    changed.change("optimizer.lr", 0.5)
    row, other = next(steps), next(same)
    assert (row.loss, row.grad_norm) == (other.loss, other.grad_norm)
    assert (row.lr, other.lr) == (0.5, 0.1)
    assert row.clipped_norm == pytest.approx(0.01, rel=1e-3)
    assert changed.experiment.clipping.max_norm == 0.01


@pytest.mark.parametrize("name", [found.name for found in KNOBS.values() if found.live])
def test_every_live_knob_can_be_set(build, name):
    one = name == "clipping.kind"  # per_example clips single examples
    trainer = build(*(["problem.batch_size=1"] if one else ["precision.dtype=fp16"]), "run.steps=10")
    steps = trainer.steps()
    next(steps)
    trainer.change(name, trainer.experiment[name])
    next(steps)
    for value in KNOBS[name].choices or (
        [True, False] if KNOBS[name].kind == "bool" else [max(KNOBS[name].minimum, min(KNOBS[name].maximum, 1))]
    ):
        trainer.change(name, value)
        if name not in ("mistakes.unscale_twice", "mistakes.never_update_scaler"):
            next(steps)


@pytest.mark.parametrize(("name", "value", "says"), [
    ("model.width", 8, "model.width acts on restart"),
    ("clipping.max_norm", -1.0, "clipping.max_norm = -1.0 is not allowed"),
    ("clipping.kid", "norm", "clipping.kid"),
])  # fmt: skip
def test_a_change_that_is_not_allowed_changes_nothing(build, name, value, says):
    trainer = build()
    with pytest.raises(KnobError, match=says):
        trainer.change(name, value)
    assert trainer.experiment == build().experiment


def test_what_was_passed_over_cannot_come_back(build):
    trainer = build("problem.skip_batches=2")
    trainer.change("problem.skip_batches", 1)  # before the first step nothing is lost
    steps = trainer.steps()
    next(steps)
    with pytest.raises(
        KnobError,
        match=r"skip_batches = 0 is not allowed, for it cannot fall: 1 batch was skipped already; allowed: at "
        r"least 1,",
    ):
        trainer.change("problem.skip_batches", 0)
    trainer.change("problem.skip_batches", 4)
    trainer.change("problem.skip_batches", 1)
    next(steps)
    assert (trainer.passed, trainer.experiment.problem.skip_batches) == (1, 1)


def test_a_change_taken_back_before_the_step_leaves_no_trace(build):
    one, other = build(*EVERYTHING), build(*EVERYTHING)
    steps, same = one.steps(), other.steps()
    for _ in range(2):
        assert figures(next(steps)) == figures(next(same))
    one.change("problem.skip_batches", 7)
    one.change("problem.skip_batches", 0)
    for _ in range(3):
        assert figures(next(steps)) == figures(next(same))


def test_values_that_cannot_train_together():
    with pytest.raises(KnobError, match=r"problem.batch_size = 1 is not allowed with model.norm = batch"):
        Trainer(Experiment().with_texts(["problem.batch_size=1", "model.norm=batch"]))


def test_rows_fill_a_history(build):
    trainer = build()
    history = History(trainer.layers)
    for row in islice(trainer.steps(), 5):
        history.append(row)
    assert history.column("step").tolist() == [0, 1, 2, 3, 4]
    assert (history.column("step_seconds") > 0).all()
    assert history.layer_metric("grad_norm").shape == (5, len(trainer.layers))
    np.testing.assert_allclose(
        np.linalg.norm(history.layer_metric("grad_norm"), axis=1), history.column("grad_norm"), rtol=1e-6
    )


def test_evaluating_changes_nothing(build):
    watched, plain = build(*EVERYTHING), build(*EVERYTHING)
    for one, other in islice(zip(watched.steps(), plain.steps(), strict=False), 4):
        assert watched.evaluate() == watched.evaluate()
        assert figures(one) == figures(other)


def test_accuracy_is_the_share_of_the_step_s_batch(build):
    trainer, twin = build("accumulation.steps=3"), build("accumulation.steps=3")
    batches = twin.task.next_batches(twin.model, 3)
    right = [(twin.model(inputs).argmax(1) == labels).float().mean().item() for inputs, labels in batches]
    assert next(trainer.steps()).accuracy == pytest.approx(sum(right) / 3)
