"""Sharpness-aware minimization: the step is that of the formula, written by hand, and nothing else is moved by it."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from gradstudio.core.loop_calls import faults, in_words, right
from gradstudio.engine.provenance_search import explain

RHO = 0.3


def gradient(trainer, batch):
    """The loss of a batch and the gradient of every weight, by plain autograd."""
    loss = F.cross_entropy(trainer.model(batch.inputs), batch.targets)
    return loss.item(), torch.autograd.grad(loss, trainer.flat.parameters)


def test_a_step_is_that_of_the_formula(build):
    """Loss at w, gradient at w + rho g / |g|, and the update from w."""
    trainer, twin = (build(f"optimizer.sam_rho={RHO}") for _ in range(2))
    (batch,) = twin.next_batches()
    before = [parameter.detach().clone() for parameter in twin.flat.parameters]
    loss, first = gradient(twin, batch)
    norm = torch.linalg.vector_norm(torch.cat([each.flatten() for each in first]))
    with torch.no_grad():
        for parameter, each in zip(twin.flat.parameters, first, strict=True):
            parameter.add_(each, alpha=(RHO / norm).item())
    row = next(trainer.steps())
    _, second = gradient(twin, batch)
    assert row.loss == pytest.approx(loss, rel=1e-6)
    assert row.grad_norm == pytest.approx(torch.cat([each.flatten() for each in second]).norm().item(), rel=1e-5)
    assert row.grad_norm != pytest.approx(norm.item(), rel=1e-3)
    for parameter, start, each in zip(trainer.flat.parameters, before, second, strict=True):
        assert torch.allclose(parameter, start - 0.1 * each, rtol=1e-5, atol=1e-7)


def test_a_loss_scale_divides_itself_out(train):
    """The way to the moved weights is rho long, whatever the loss is multiplied with."""
    plain = [row.loss for row in train(5, "optimizer.sam_rho=0.3", "optimizer.kind=adam", "optimizer.lr=0.01")]
    scaled = [
        row.loss / 1024
        for row in train(5, "optimizer.sam_rho=0.3", "optimizer.kind=adam", "optimizer.lr=0.01", "loss.weight=1024")
    ]
    assert scaled == pytest.approx(plain, rel=1e-4)


def test_micro_batches_climb_along_their_sum(train):
    many = [row.loss for row in train(6, "optimizer.sam_rho=0.3", "accumulation.steps=4", "problem.batch_size=8")]
    one = [row.loss for row in train(6, "optimizer.sam_rho=0.3", "problem.batch_size=32")]
    assert many == pytest.approx(one, rel=1e-4)


def test_running_statistics_are_those_of_the_weights_that_are_kept(build):
    trainer, plain = (build("model.norm=batch", knob) for knob in ("optimizer.sam_rho=0.3", "optimizer.sam_rho=0"))
    next(trainer.steps())
    next(plain.steps())
    kept, alone = dict(trainer.model.named_buffers()), dict(plain.model.named_buffers())
    assert kept and all(torch.equal(kept[name], alone[name]) for name in kept)


def test_an_overflow_in_the_first_passes_is_skipped_and_leaves_the_weights(build):
    trainer = build("optimizer.sam_rho=0.3", "precision.dtype=fp16", "precision.init_scale=1e30")
    before = trainer.flat.weights.data.clone()
    row = next(trainer.steps())
    assert row.skipped and torch.equal(trainer.flat.weights.data, before)


def test_what_was_asked_for_is_compared_where_the_gradient_is_taken(build):
    trainer = build("optimizer.sam_rho=0.3", "accumulation.steps=3")
    trainer.requests.compare = trainer.requests.accumulation = True
    row = next(trainer.steps())
    assert row.joined_difference < 1e-5 and row.accumulated.difference <= row.accumulated.tolerance
    trainer.change("mistakes.unscaled_accumulation", True)
    trainer.requests.compare = True
    assert next(trainer.steps()).joined_difference > 1


def test_the_calls_are_told_and_only_a_mistake_among_the_second_is_a_fault(train):
    loop = train(1, "optimizer.sam_rho=0.3", "accumulation.steps=2")[0].loop
    assert loop.calls == right(loop) and not faults(loop)
    assert in_words(loop.calls[:6]) == "zero_grad, 2 × (forward, backward), perturb"
    for mistake in ("clip_after_step", "never_zero_grad", "clip_each_micro_batch", "zero_grad_each_micro_batch"):
        loop = train(
            1, "optimizer.sam_rho=0.3", "accumulation.steps=2", "clipping.kind=norm", f"mistakes.{mistake}=true"
        )[0].loop
        assert [fault.mistakes for fault in faults(loop)] == [(mistake,)]


def test_a_nan_of_the_second_passes_has_the_number_of_its_micro_batch(build):
    """The weights are moved so far that only there something overflows."""
    trainer = build("optimizer.sam_rho=1000", "accumulation.steps=2", "loss.kind=naive_exp")
    found = explain(trainer)
    assert found is not None and found.micro_batches == 2 and found.micro_batch in (0, 1)
