from __future__ import annotations

from itertools import islice

import numpy as np
import pytest
import torch

from gradstudio.core.sections.loop_knobs import Schedule
from gradstudio.engine.step.optimizers import OPTIMIZERS
from gradstudio.engine.step.recent_optimizers import Muon
from gradstudio.engine.step.schedules import SCHEDULES, factor

LIVE = [
    ("lr", 0.03),
    ("adamw_lr", 0.03),
    ("momentum", 0.9),
    ("beta1", 0.5),
    ("beta2", 0.9),
    ("eps", 1e-3),
    ("weight_decay", 0.1),
]


@pytest.mark.parametrize("kind", OPTIMIZERS)
@pytest.mark.parametrize(("field", "value"), LIVE)
def test_live_values_reach_the_optimizer(build, kind, field, value):
    trainer, plain = build(f"optimizer.kind={kind}"), build(f"optimizer.kind={kind}")
    list(islice(zip(trainer.steps(), plain.steps(), strict=False), 3))
    trainer.change(f"optimizer.{field}", value)
    list(islice(zip(trainer.steps(), plain.steps(), strict=False), 3))
    applies = trainer.experiment.applies(f"optimizer.{field}")
    assert all(map(torch.equal, trainer.flat.parameters, plain.flat.parameters)) != applies


@pytest.mark.parametrize("kind", ["sgd", "rmsprop"])
def test_momentum_begins_when_it_is_first_given(build, kind):
    """From 0 to 0.9 live is what it would be to start with 0.9 there: an empty buffer."""
    trainer = build(f"optimizer.kind={kind}", "optimizer.lr=0.01")
    steps = trainer.steps()
    list(islice(steps, 3))
    trainer.change("optimizer.momentum", 0.9)
    before = [parameter.detach().clone() for parameter in trainer.flat.parameters]
    next(steps)
    first = [parameter.detach() - old for parameter, old in zip(trainer.flat.parameters, before, strict=True)]
    buffer = trainer.optimizer.state[trainer.flat.weights]["momentum_buffer"]
    for momentum, move in zip(trainer.flat.layout.views(buffer, first), first, strict=True):
        torch.testing.assert_close(move, -0.01 * momentum, rtol=1e-3, atol=1e-6)


def test_lion_is_the_formula_of_its_paper(build):
    """Algorithm 2 of Chen 2023: c = b1 m + (1 - b1) g, w -= lr (sign c + decay w), m = b2 m + (1 - b2) g."""
    trainer = build("optimizer.kind=lion", "optimizer.lr=0.01", "optimizer.weight_decay=0.1", "optimizer.beta2=0.99")
    steps, mean = trainer.steps(), 0.0
    for _ in range(4):
        before = trainer.flat.weights.detach().double()
        next(steps)
        grad = trainer.flat.gradients.double()
        moved = before - 0.01 * ((0.9 * mean + 0.1 * grad).sign() + 0.1 * before)
        torch.testing.assert_close(trainer.flat.weights.detach().double(), moved, rtol=1e-6, atol=1e-7)
        mean = 0.99 * mean + 0.01 * grad


def test_muon_moves_matrices_by_orthogonal_ones_and_the_rest_as_adamw_does(build):
    """An update of a hidden matrix is near lr U V^T of its momentum, times sqrt(rows / columns) where it is tall."""
    knobs = ("optimizer.kind=muon", "optimizer.lr=0.1", "optimizer.weight_decay=0.1", "model.depth=3")
    trainer = build(*knobs)
    rest = [torch.nn.Parameter(weight.detach().clone()) for weight in trainer.flat.parameters]
    adamw = torch.optim.AdamW(rest, lr=0.001, weight_decay=0.1)
    steps, means = trainer.steps(), [torch.zeros_like(weight) for weight in rest]
    hidden = [at for at, weight in enumerate(rest) if weight.ndim > 1][1:-1]
    assert len(hidden) == 2
    for _ in range(4):
        before = [weight.detach().clone() for weight in trainer.flat.parameters]
        next(steps)
        for weight, grad, mean in zip(rest, trainer.flat.grads, means, strict=True):
            weight.grad = grad.clone()
            mean.mul_(0.9).add_(0.1 * grad)
        adamw.step()
        for at, (old, new, mean) in enumerate(zip(before, trainer.flat.parameters, means, strict=True)):
            if at not in hidden:
                torch.testing.assert_close(new.detach(), rest[at].detach(), rtol=1e-5, atol=1e-6)
                continue
            u, sizes, vt = torch.linalg.svd(0.9 * mean + 0.1 * trainer.flat.grads[at])
            moved = u.T @ ((0.99 * old - new.detach()) / 0.1) @ vt.T  # of lr x weight_decay = 0.01
            large = int((sizes > 0.01 * sizes[0]).sum())
            assert ((moved.diag()[:large] > 0.6) & (moved.diag()[:large] < 1.3)).all()
            assert (moved - torch.diag(moved.diag())).abs().max() < 0.02


def test_stable_adamw_divides_a_step_by_the_surprise_of_its_tensor(build):
    """Algorithm 2 of Wortsman 2023, entry by entry in numpy's float64; the third batch is noise."""
    trainer = build("optimizer.kind=stable_adamw", "optimizer.lr=0.01", "optimizer.weight_decay=0.1")
    steps, held, calm = trainer.steps(), 0, 0
    means = [(0.0, 0.0) for _ in trainer.flat.parameters]
    for t in range(1, 6):
        trainer.change("problem.outlier_every", 1 if t == 3 else 0)
        before = [weight.detach().double().numpy().copy() for weight in trainer.flat.parameters]
        next(steps)
        for at, (old, weight, grad) in enumerate(zip(before, trainer.flat.parameters, trainer.flat.grads, strict=True)):
            g = grad.double().numpy()
            b1, b2 = (b * (1 - b ** (t - 1)) / (1 - b**t) for b in (0.9, 0.999))
            m, v = b1 * means[at][0] + (1 - b1) * g, b2 * means[at][1] + (1 - b2) * g * g
            means[at] = m, v
            rms = (g * g / np.maximum(v, 1e-16)).mean() ** 0.5
            lr = 0.01 / max(1.0, rms)
            held, calm = held + (rms > 1.5), calm + (rms < 1)
            np.testing.assert_allclose(
                weight.detach().numpy(), old - lr * 0.1 * old - lr * m / (v**0.5 + 1e-8), rtol=1e-4, atol=1e-6
            )
    assert held and calm


def test_schedule_free_trains_at_y_and_tests_the_mean_of_z(build):
    """Algorithm 1 of Defazio 2024 with a warmup of 3 steps, in float64."""
    trainer = build(
        "optimizer.kind=schedule_free", "optimizer.lr=0.01", "optimizer.weight_decay=0.1", "schedule.warmup_steps=3"
    )
    weights, steps, v, rates = trainer.flat.weights, trainer.steps(), 0.0, 0.0
    y = z = x = weights.detach().double().numpy().copy()
    for t in range(1, 7):
        next(steps)
        g = trainer.flat.gradients.double().numpy()
        v = 0.999 * v + 0.001 * g * g
        rate = 0.01 * min(1, t / 3) * (1 - 0.999**t) ** 0.5
        rates += rate**2
        z = z - rate * g / (v**0.5 + 1e-8) - rate * 0.1 * y
        x = (1 - rate**2 / rates) * x + rate**2 / rates * z
        y = 0.1 * z + 0.9 * x
        np.testing.assert_allclose(weights.detach().numpy(), y, rtol=1e-4, atol=1e-6)
    before, tested = weights.detach().clone(), trainer.evaluate()
    assert torch.equal(weights, before)
    trainer.flat.weights.data.copy_(torch.from_numpy(x))
    trainer.optimizer.state.clear()
    assert trainer.evaluate() == tested


@pytest.mark.parametrize(("matrix", "longer"), [((8, 32), 1.0), ((32, 8), 2.0)])
def test_muon_moves_a_tall_matrix_farther(matrix, longer):
    weight = torch.nn.Parameter(torch.zeros(matrix))
    weight.grad = torch.randn(matrix, generator=torch.Generator().manual_seed(1))
    Muon([weight], lr=1.0, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0, others=False).step()
    sizes = torch.linalg.svdvals(weight.detach()) / longer
    assert sizes.min() > 0.6 and sizes.max() < 1.3


@pytest.mark.parametrize("kind", SCHEDULES)
@pytest.mark.parametrize("warmup", [0, 1, 10, 99, 100, 500])
def test_schedules(kind, warmup):
    """The same rates as torch's own schedulers in sequence, which begin the fall after the warmup."""
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight], lr=2.0)
    parts: list = [torch.optim.lr_scheduler.LambdaLR(optimizer, lambda taken: (taken + 1) / max(warmup, 1))]
    length = max(100 - warmup, 1)
    parts.append({
        "constant": lambda: torch.optim.lr_scheduler.ConstantLR(optimizer, 1.0),
        "cosine": lambda: torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, length),
        "linear": lambda: torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, length),
        "exponential": lambda: torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.01 ** (1 / length)),
        # torch counts a step before the first and one before the end; so its top is at 30 % of `length` too
        "one_cycle": lambda: torch.optim.lr_scheduler.OneCycleLR(
            optimizer, 2.0, length + 1, pct_start=(0.3 * length + 1) / (length + 1), cycle_momentum=False
        ),
        "wsd": lambda: torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda taken: 1.0 if taken <= 0.8 * length else 5 * (1 - taken / length)
        ),
    }[kind]())  # fmt: skip
    scheduler = torch.optim.lr_scheduler.SequentialLR(optimizer, parts, [warmup]) if warmup else parts[1]
    if not warmup and kind != "one_cycle":
        optimizer.param_groups[0]["lr"] = 2.0
    schedule = Schedule(kind=kind, warmup_steps=warmup, total_steps=100)
    rates = []
    for taken in range(max(warmup, 100) + 1):
        rates.append(2.0 * factor(schedule, taken))
        if taken <= max(warmup, 100):  # beyond its end CosineAnnealingLR rises again
            assert rates[-1] == pytest.approx(optimizer.param_groups[0]["lr"], abs=1e-9), taken
        optimizer.step()
        scheduler.step()
    assert max(rates) == 2.0
    last = {"constant": 1.0, "exponential": 0.01, "one_cycle": 1 / 250_000}.get(kind, 0.0)
    assert factor(schedule, 10**6) == pytest.approx(last)


def test_a_skipped_update_does_not_advance_the_schedule(build):
    trainer = build("precision.dtype=fp16", "schedule.warmup_steps=10", "optimizer.lr=1.0", "precision.init_scale=64")
    steps = trainer.steps()
    rates = []
    for step in range(6):
        trainer.change("loss.weight", 1e30 if step in (2, 3) else 1.0)
        row = next(steps)
        rates.append(round(row.lr, 6))
        assert row.skipped == (step in (2, 3))
    assert rates == [0.1, 0.2, 0.3, 0.3, 0.3, 0.4]
