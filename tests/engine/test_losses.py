from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from gradstudio.core.combinations import LOSS_TASKS
from gradstudio.core.sections.task_knobs import Loss
from gradstudio.engine.step import losses, policy_loss
from gradstudio.engine.tasks import TASKS
from gradstudio.engine.tasks.ring import ring_centers

LABELS = np.array([2, 0, 1, 1, 0, 2])
HOT = np.eye(3)[LABELS]


def outputs(width=3):
    return np.random.default_rng(0).normal(0, 1.5, (6, width))


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


# ---- each formula once more, in numpy and float64


def log_likelihood(x):
    return np.log(np.exp(x - x.max(-1, keepdims=True)) / np.exp(x - x.max(-1, keepdims=True)).sum(-1, keepdims=True))


def triplets(x):
    total = 0.0
    for point, label in zip(x, LABELS, strict=True):
        distances = [math.dist(point, other) for other in x]
        alike = max(distance for distance, other in zip(distances, LABELS, strict=True) if other == label)
        unlike = min(distance for distance, other in zip(distances, LABELS, strict=True) if other != label)
        total += max(0.0, 1 + alike - unlike)
    return total / len(x)


def likelihood(x):
    mean, variance = x[:, :3], 1 + 0.1 * x[:, 3:]
    return -np.mean(
        np.log(np.exp(-((HOT - mean) ** 2) / (2 * variance)) / np.sqrt(2 * np.pi * variance)) + 0.5 * np.log(2 * np.pi)
    )


FORMULAS = {
    "naive_log": (outputs(), lambda x: -np.mean(np.where(HOT == 1, np.log(sigmoid(x)), np.log(sigmoid(-x))))),
    "naive_division": (abs(outputs()) + 0.1, lambda x: np.mean((HOT / x - 1) ** 2)),
    "naive_sqrt": (outputs(), triplets),
    "naive_exp": (outputs(), lambda x: -log_likelihood(x)[np.arange(6), LABELS].mean()),
    "naive_variance": (outputs(6) * ([1] * 3 + [0.1] * 3), lambda x: likelihood(x * ([1] * 3 + [10] * 3))),
}


@pytest.mark.parametrize("kind", losses.NAIVE)
def test_a_naive_loss_is_right_where_it_is_finite(kind):
    x, formula = FORMULAS[kind]
    value = losses.choose(kind, "classes").value
    assert value(torch.from_numpy(x), torch.from_numpy(LABELS), 0.0).item() == pytest.approx(formula(x), rel=1e-9)
    assert value(torch.from_numpy(x), torch.from_numpy(LABELS), 1e-9).item() == pytest.approx(formula(x), rel=1e-5)


def test_auto_is_right_for_each_goal():
    assert set(losses.AUTO) == {task.goal for task in TASKS.values()}
    x, labels = outputs(), torch.from_numpy(LABELS)
    expected = -log_likelihood(x)[np.arange(6), LABELS].mean()
    classes = losses.choose("auto", "classes")
    assert classes.value(torch.from_numpy(x), labels, 0.0).item() == pytest.approx(expected)
    assert classes.value(torch.from_numpy(x).view(2, 3, 3), labels.view(2, 3), 0.0).item() == pytest.approx(expected), (
        "several answers"
    )
    assert classes.accuracy(torch.from_numpy(x), labels).item() == pytest.approx((x.argmax(1) == LABELS).mean())

    value = losses.choose("auto", "value")
    assert value.value(torch.tensor([[1.0], [2.0]]), torch.tensor([[1.03], [1.0]]), 0.0).item() == pytest.approx(
        (0.03**2 + 1) / 2
    )
    assert value.accuracy(torch.tensor([[1.0], [2.0]]), torch.tensor([[1.03], [1.0]])).item() == 0.5

    points = losses.choose("auto", "points")
    real, drawn, fooled = outputs().T
    drawn_points = torch.cat([ring_centers()[[0, 0, 3]] + 0.2, torch.zeros(3, 2)])
    together = torch.cat([torch.from_numpy(outputs()), drawn_points], 1)
    assert points.value(together, torch.zeros(6), 0.0).item() == pytest.approx(
        ((real - 1) ** 2 + drawn**2 + (fooled - 1) ** 2).mean()
    )
    assert points.accuracy(together, torch.zeros(6)).item() == 2 / 8

    reward = losses.choose("auto", "reward")
    logits, action = np.random.default_rng(1).normal(size=(2, 3, 2)), np.array([[1, 0, 1], [0, 1, 0]])
    worth, lasted = np.array([[3.0, 2.0, 1.0], [2.0, 1.0, 9.0]]), np.array([[1, 1, 1], [1, 1, 0]])
    policy, old = log_likelihood(logits), log_likelihood(np.random.default_rng(2).normal(size=(2, 3, 2)))
    taken = np.take_along_axis(policy, action[..., None], 2)[..., 0]
    told = np.stack([action, worth, lasted, lasted, lasted], 2).astype(float)
    outputs_, targets = torch.from_numpy(logits), torch.from_numpy(np.concatenate([told, old], 2))
    assert reward.value(outputs_, targets, 0.0).item() == pytest.approx(-(taken * worth * lasted).sum() / 2)
    assert reward.accuracy(outputs_, targets).item() == pytest.approx(5 / 6)

    ratio = np.exp(taken - np.take_along_axis(old, action[..., None], 2)[..., 0])
    divergence, entropy = (np.exp(old) * (old - policy)).sum(2), -(np.exp(policy) * policy).sum(2)
    gain = np.minimum(ratio * worth, np.clip(ratio, 0.8, 1.2) * worth) - 2 * divergence + 3 * entropy
    knobs = Loss(ratio_limit=0.2, kl_penalty=2.0, entropy_bonus=3.0)
    assert policy_loss.loss(outputs_, targets, knobs, 4).item() == pytest.approx(-(gain * lasted).sum() / 2)
    unclipped = policy_loss.loss(outputs_, targets, Loss(), 4).item()
    assert unclipped == pytest.approx(-(ratio * worth * lasted).sum() / 2)
    assert [each.item() for each in policy_loss.figures(outputs_, targets)] == pytest.approx([
        (ratio * lasted).max(), (divergence * lasted).sum() / 5, (entropy * lasted).sum() / 5 / np.log(2), 5 / 6
    ])  # fmt: skip


# ---- where each breaks: outputs, labels, whether the loss is still finite, whether its gradient is, and the least eps
# that heals

BREAKS = {
    "naive_log": ([[20.0, -3.0, -3.0]], [0], False, False, 1e-12),  # a sigmoid of exactly 1
    "naive_division": (
        [[-1.0, 2.0, 2.0]],
        [0],
        False,
        True,
        1e-12,
    ),  # torch's relu lets no gradient through at 0, not even NaN
    "naive_sqrt": ([[0.0, 1.0, 2.0], [1.0, 0.0, 1.0]], [0, 1], True, False, 1e-12),  # each alone of its class
    "naive_exp": ([[0.0, 95.0, 0.0]], [1], False, False, None),  # exp(95) is Inf
    "naive_variance": ([[0.0, 0.0, 0.0, 0.0, -1.5, 0.0]], [0], False, True, 1e-12),  # a variance of -0.5
}


def loss_and_gradient(kind, eps):
    x, labels = torch.tensor(BREAKS[kind][0], requires_grad=True), torch.tensor(BREAKS[kind][1])
    loss = losses.choose(kind, "classes").value(x, labels, eps)
    loss.backward()
    return loss, x


@pytest.mark.parametrize("kind", losses.NAIVE)
def test_a_naive_loss_breaks_as_it_says_and_clipping_comes_too_late(kind):
    _, _, loss_is_finite, gradient_is_finite, _ = BREAKS[kind]
    loss, x = loss_and_gradient(kind, 0.0)
    assert loss.isfinite() == loss_is_finite and bool(x.grad.isfinite().all()) == gradient_is_finite
    assert not (loss_is_finite and gradient_is_finite)
    torch.nn.utils.clip_grad_norm_([x], 1e-3)
    assert bool(x.grad.isfinite().all()) == gradient_is_finite


@pytest.mark.parametrize("kind", losses.NAIVE)
def test_eps_heals_a_naive_loss(kind):
    least = BREAKS[kind][-1]
    for eps in (1e-12, 1e-7, 0.1):
        loss, x = loss_and_gradient(kind, eps)
        assert bool(loss.isfinite() and x.grad.isfinite().all()) == (least is not None and eps >= least)


def test_naive_exp_also_breaks_where_a_probability_is_0_and_there_eps_heals():
    x, labels = torch.tensor([[-60.0, 60.0]]), torch.tensor([1])
    assert losses.naive_exp(x, labels, 0.0).isnan() and losses.naive_exp(x, labels, 1e-12).isfinite()


def test_a_batch_of_one_class_has_no_triplets():
    x = torch.randn(4, 3, requires_grad=True)
    loss = losses.naive_sqrt(x, torch.zeros(4, dtype=torch.int64), 0.0)
    loss.backward()
    assert loss == 0 and (x.grad.nan_to_num() == 0).all()


def test_the_nearest_other_example_answers():
    points, labels = torch.tensor([[0.0], [0.1], [5.0], [5.1]]), torch.tensor([0, 0, 1, 2])
    assert losses.right_neighbour(points, labels).item() == 0.5


@pytest.mark.parametrize("kind", ["auto", *losses.NAIVE])
def test_accuracy_of_outputs_that_are_not_finite_is_nan(kind):
    loss = losses.choose(kind, "classes")
    x = torch.zeros(4, 3 * loss.outputs)
    assert 0 <= losses.accuracy(loss, x, torch.tensor([0, 1, 2, 0])) <= 1
    x[2, 1] = math.inf
    assert math.isnan(losses.accuracy(loss, x, torch.tensor([0, 1, 2, 0])))


# ---- in training

SETTINGS = {
    "naive_log": ["optimizer.kind=adam", "optimizer.lr=0.01", "problem.batch_size=64"],
    "naive_division": [],
    "naive_sqrt": ["problem.batch_size=64"],
    "naive_exp": ["problem.scaling=raw", "problem.input_scale=64"],
    "naive_variance": ["optimizer.kind=adam", "optimizer.lr=0.001"],
}
HEALING = {"naive_log": 1e-7, "naive_division": 0.1, "naive_sqrt": 1e-12, "naive_variance": 0.01}


def first_fault(rows):
    return next((row.step for row in rows if row.nonfinite or not math.isfinite(row.loss)), None)


@pytest.mark.parametrize("kind", losses.NAIVE)
def test_a_naive_loss_ends_a_training_with_clipping_or_without(train, kind):
    knobs = [f"loss.kind={kind}", "model.width=64", *SETTINGS[kind]]
    plain = first_fault(train(150, *knobs))
    assert plain is not None and plain == first_fault(train(plain + 1, *knobs, "clipping.kind=norm"))


@pytest.mark.parametrize("kind", HEALING)
def test_eps_lets_a_naive_loss_train_on(train, kind):
    rows = train(
        150, f"loss.kind={kind}", "model.width=64", *SETTINGS[kind], f"loss.eps={HEALING[kind]}", "clipping.kind=norm"
    )
    assert first_fault(rows) is None and rows[-1].loss < rows[0].loss


@pytest.mark.parametrize(("task", "kind"), [(task, kind) for kind, tasks in LOSS_TASKS.items() for task in tasks])
def test_every_allowed_pair_of_loss_and_task_takes_a_step(train, task, kind):
    assert len(train(1, f"problem.task={task}", "problem.seq_len=4", f"loss.kind={kind}")) == 1


def test_the_two_players_of_a_gan_explode_and_clipping_heals(train):
    ring = ["problem.task=ring", "model.kind=gan", "model.width=64", "problem.batch_size=128", "optimizer.lr=0.5"]
    assert first_fault(train(12, *ring)) in range(2, 9)
    assert first_fault(train(50, *ring, "clipping.kind=norm", "clipping.max_norm=0.1")) is None


def test_a_policy_collapses_and_clipping_heals(train):
    pole = [
        "problem.task=pole",
        "model.kind=policy",
        "problem.seq_len=200",
        "model.activation=tanh",
        "model.depth=1",
        "model.width=32",
    ]
    assert 200 * np.mean([row.accuracy for row in train(30, *pole)[-10:]]) < 15
    assert (
        200 * np.mean([row.accuracy for row in train(30, *pole, "clipping.kind=norm", "clipping.max_norm=0.5")[-10:]])
        > 30
    )
