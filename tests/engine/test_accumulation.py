"""Accumulating over micro-batches gives the gradient of the large batch, which a run shows on request."""

from __future__ import annotations

from itertools import islice

import pytest
import torch

from gradstudio.engine.models import MODELS
from gradstudio.engine.step import checks
from gradstudio.engine.step.accumulation import join

FOUR = "accumulation.steps=4"


def difference(build, *knobs, step=2):
    """What the run measures at that step, and the trainer."""
    trainer = build(*knobs)
    steps = trainer.steps()
    list(islice(steps, step))
    trainer.requests.compare = True
    return next(steps).joined_difference


@pytest.mark.parametrize("kind", MODELS)
def test_accumulation_equals_the_large_batch(build, kind):
    task = {"gan": "ring", "policy": "pole"}.get(kind, "digits")
    assert difference(build, f"model.kind={kind}", f"problem.task={task}", "problem.seq_len=8", FOUR) < 2e-6


@pytest.mark.parametrize("noise", ["0", "0.1"])
@pytest.mark.parametrize("task", [
    "digits", "spirals", "adding problem.seq_len=3", "copy problem.seq_len=3", "characters problem.seq_len=3",
    "ring model.kind=gan", "pole model.kind=policy problem.seq_len=9",
])  # fmt: skip
def test_a_step_sees_the_same_examples_however_it_is_split(build, task, noise):
    knobs = f"problem.task={task} problem.noise={noise}".split()
    large = build(*knobs, "problem.batch_size=60")
    ways = {4: build(*knobs, "problem.batch_size=15", "accumulation.steps=4")}
    ways[20] = build(*knobs, "problem.batch_size=3", "accumulation.steps=20")
    for _ in range(26):  # spirals have 17 such batches in an epoch, digits 23
        (whole,) = large.next_batches()
        for count, trainer in ways.items():
            batches = trainer.next_batches()
            assert len(batches) == count and all(batch.inputs.data_ptr() % 64 == 0 for batch in batches)
            joined = join(batches)
            assert torch.equal(joined.inputs, whole.inputs) and torch.equal(joined.targets, whole.targets)


def test_a_step_that_is_larger_than_an_epoch_goes_on_into_the_next(build):
    ways = [build("problem.task=spirals", f"problem.batch_size={size}", f"accumulation.steps={3000 // size}")
            for size in (1000, 500)]  # fmt: skip
    for _ in range(3):
        one, other = (join(trainer.next_batches()) for trainer in ways)
        assert torch.equal(one.inputs, other.inputs) and len(one.inputs) == 3000
        assert len(one.inputs.unique(dim=0)) == 1024


def test_a_run_of_micro_batches_is_the_run_of_the_large_batch(build):
    knobs = ["optimizer.lr=0.5", "clipping.kind=norm", "optimizer.momentum=0.5"]
    parts = build(*knobs, "problem.batch_size=32", "accumulation.steps=8")
    for one, other in islice(zip(parts.steps(), build(*knobs, "problem.batch_size=256").steps(), strict=False), 40):
        assert one.loss == pytest.approx(other.loss, rel=1e-3) and one.accuracy == pytest.approx(other.accuracy)


@pytest.mark.parametrize(("knobs", "least", "most"), [
    (["mistakes.unscaled_accumulation=true"], 2.99, 3.01),  # four times too long
    (["mistakes.drop_last_micro_batches=true"], 0.1, 2.0),
    (["mistakes.zero_grad_each_micro_batch=true"], 0.1, 2.0),
    (["mistakes.never_zero_grad=true"], 0.3, 5.0),
    (["clipping.kind=norm", "clipping.max_norm=0.001", "mistakes.clip_each_micro_batch=true"], 0.9, 1.1),
    (["model.norm=batch"], 1e-3, 1.0),  # each micro-batch is normalized by itself
    (["model.norm=layer"], 0.0, 2e-6),
    (["precision.dtype=fp16"], 1e-5, 1e-2),
    (["precision.dtype=fp16", "precision.scaling=static", "precision.init_scale=300"], 1e-5, 1e-2),
    (["clipping.kind=norm", "clipping.max_norm=0.001"], 0.0, 2e-6),  # measured before clipping
    (["gradients.noise_std=1"], 0.0, 2e-6),  # and before noise
], ids=lambda value: " ".join(value) if isinstance(value, list) else str(value))  # fmt: skip
def test_what_makes_a_difference(build, knobs, least, most):
    assert least <= difference(build, FOUR, *knobs) <= most


@pytest.mark.parametrize(
    "knobs",
    [[], ["model.norm=batch"], ["precision.dtype=fp16"], ["problem.outlier_every=2"], ["model.checkpointing=true"]],
    ids=" ".join,
)
def test_comparing_leaves_no_trace(build, knobs):
    watched, plain = build(FOUR, *knobs), build(FOUR, *knobs)
    for step, (one, other) in enumerate(islice(zip(watched.steps(), plain.steps(), strict=False), 5)):
        assert (one.loss, one.grad_norm, one.weight_norm) == (other.loss, other.grad_norm, other.weight_norm)
        assert (one.joined_difference is not None) == (step == 3)
        watched.requests.compare = step == 2
    for one, other in zip(watched.model.buffers(), plain.model.buffers(), strict=True):
        assert torch.equal(one, other)


def test_a_large_batch_that_does_not_fit_is_said_and_the_step_is_made(build, monkeypatch):
    def full(*_):
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 171798691840 bytes.")

    watched, plain = build(FOUR), build(FOUR)
    monkeypatch.setattr(checks, "gradient_of", full)
    watched.requests.compare = True
    row, other = next(watched.steps()), next(plain.steps())
    assert (row.loss, row.grad_norm) == (other.loss, other.grad_norm)
    assert row.joined_difference is None and "does not fit into memory" in row.joined_problem


def test_one_micro_batch_is_its_own_large_batch(build):
    assert difference(build) == 0
