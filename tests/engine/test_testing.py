"""The test set is measured while training goes on, and training does not notice."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gradstudio.core.files import RESOURCES
from gradstudio.core.row import Row
from gradstudio.core.unknown import is_known
from gradstudio.engine.gauges.head import mean_cosine
from gradstudio.engine.step.testing import interval
from gradstudio.engine.tasks.task import Batch
from gradstudio.engine.trainer import Trainer

Build = Callable[..., Trainer]


def rows(trainer: Trainer, steps: int, tested: Callable[[int], bool]) -> list[Row]:
    found = []
    for step in range(steps):
        trainer.requests.test = tested(step)
        found += trainer.advance()
    return found + trainer.settle()


def images_and_labels() -> tuple[Tensor, Tensor]:
    """Every pixel standardized over the training set, by hand."""
    with np.load(RESOURCES / "data" / "digits.npz") as data:
        train, test = (data[f"{part}_images"].reshape(-1, 64).astype(np.float64) for part in ("train", "test"))
        deviation = train.std(0)
        pixels = (test - train.mean(0)) / np.where(deviation == 0, 1, deviation)
        return torch.from_numpy(pixels.astype(np.float32)), torch.from_numpy(data["test_labels"].astype(np.int64))


def head_inputs(trainer: Trainer, images: Tensor) -> Tensor:
    """What an MLP with batch norms gives its head in evaluation, from its weights alone."""
    values = {name: value.detach().clone() for name, value in trainer.model.state_dict().items()}
    state = images
    for layer in range(2):
        one = f"hidden.{layer}"
        state = F.linear(state, values[f"{one}.weight"], values[f"{one}.bias"])
        mean, variance = values[f"{one}.norm.running_mean"], values[f"{one}.norm.running_var"]
        state = (state - mean) / torch.sqrt(variance + 1e-5)
        state = torch.relu(state * values[f"{one}.norm.weight"] + values[f"{one}.norm.bias"])
    return state


def cosine_of_pairs(rows: Tensor) -> float:
    """The mean over all pairs, pair by pair."""
    found = F.cosine_similarity(rows.double()[:, None], rows.double()[None], dim=2)
    return found[~torch.eye(len(rows), dtype=torch.bool)].mean().item()


def test_the_column_is_what_plain_torch_computes(build: Build) -> None:
    trainer = build("model.norm=batch", "optimizer.lr=0.5")
    images, labels = images_and_labels()
    for step in range(6):
        trainer.requests.test = step in (0, 5)
        seen = head_inputs(trainer, images)
        before = seen @ trainer.model.head.weight.detach().T + trainer.model.head.bias.detach()
        alike = cosine_of_pairs(seen)
        (row,) = trainer.advance()
        if step in (0, 5):
            assert row.test_accuracy == pytest.approx((before.argmax(1) == labels).double().mean().item(), abs=1e-7)
            assert row.head_cosine == pytest.approx(alike, abs=1e-5) and 0.05 < alike < 0.95
        else:
            assert not is_known(row.test_accuracy) and not is_known(row.head_cosine)
    assert row.test_accuracy > 0.3  # it has learned by then, or the test would not tell much


@pytest.mark.parametrize("knobs", [
    ["model.norm=batch", "problem.noise=0.3"], ["precision.dtype=bf16"],
    ["precision.dtype=fp16", "accumulation.steps=2"],
    ["problem.task=pole", "model.kind=policy", "problem.seq_len=5", "problem.batch_size=2"],
    ["problem.task=ring", "model.kind=gan"], ["problem.task=characters", "problem.seq_len=8", "model.kind=transformer"],
    ["problem.outlier_every=2"],
], ids=" ".join)  # fmt: skip
def test_training_does_not_notice(build: Build, knobs: list[str]) -> None:
    watched, alone = build(*knobs), build(*knobs)
    one, other = rows(watched, 6, lambda step: step != 1), rows(alone, 6, lambda step: False)
    assert [is_known(row.test_accuracy) for row in one] == [step != 1 for step in range(6)]
    for this, that in zip(one, other, strict=True):
        assert not is_known(that.test_accuracy)
        assert (repr(this.loss), this.grad_norm, this.accuracy) == (repr(that.loss), that.grad_norm, that.accuracy)
        assert this.layers.tobytes() == that.layers.tobytes()
    assert torch.equal(watched.flat.weights.view(torch.int32), alone.flat.weights.view(torch.int32))
    for buffer, same in zip(watched.model.buffers(), alone.model.buffers(), strict=True):
        assert torch.equal(buffer, same)
    for name in ("order_generator", "noise_generator", "outlier_generator"):
        assert torch.equal(getattr(watched.task, name).get_state(), getattr(alone.task, name).get_state())
    assert watched.model.training
    assert watched.evaluate() == alone.evaluate()


def test_weights_that_are_not_finite_give_nan_which_was_measured(build: Build) -> None:
    trainer = build("optimizer.lr=1e6", "run.stop_on_nonfinite=false")
    row = rows(trainer, 20, lambda step: True)[-1]
    assert math.isnan(row.test_accuracy) and is_known(row.test_accuracy)
    assert math.isnan(row.head_cosine) and is_known(row.head_cosine)


def test_the_signal_of_a_deep_network_forgets_its_input(build: Build) -> None:
    deep = ["model.depth=20", "model.activation=sigmoid"]
    (forgets,), (tells,) = (rows(build(*knobs), 1, lambda step: True) for knobs in (deep, []))
    assert forgets.head_cosine > 0.999 and tells.head_cosine < 0.9


@pytest.mark.parametrize(("knobs", "known"), [
    (["problem.task=pole", "model.kind=policy", "problem.seq_len=4", "problem.batch_size=2"], False),
    (["problem.task=ring", "model.kind=gan"], False),
    (["problem.task=adding", "model.kind=gru", "problem.seq_len=4"], True),
    (["problem.task=copy", "model.kind=transformer", "problem.seq_len=4"], True),
    (["problem.task=spirals", "model.norm=layer", "model.norm_position=post"], True),
    (["model.kind=cnn"], True),
], ids=str)  # fmt: skip
def test_only_where_examples_are_told_apart(build: Build, knobs: list[str], known: bool) -> None:
    (row,) = rows(build(*knobs), 1, lambda step: True)
    assert is_known(row.head_cosine) == known and is_known(row.test_accuracy)


def test_what_has_no_direction_is_left_out() -> None:
    one, other, none = [3.0, 0.0], [5.0, 5.0], [0.0, 0.0]
    assert mean_cosine(torch.tensor([one, none, other])) == pytest.approx(math.sqrt(0.5), rel=1e-12)
    assert mean_cosine(torch.tensor([[one, other], [one, other]])) == pytest.approx((2 + 4 * math.sqrt(0.5)) / 6)
    assert not is_known(mean_cosine(torch.tensor([one, none, none])))
    assert mean_cosine(torch.tensor([[1e38, 1e38], [1e-38, 1e-38]])) == pytest.approx(1)
    broken = mean_cosine(torch.tensor([one, other, [math.inf, 0.0]]))
    assert math.isnan(broken) and is_known(broken)


def test_a_test_set_that_does_not_fit_into_memory_is_not_measured(build: Build, monkeypatch) -> None:
    watched, alone = build("model.norm=batch"), build("model.norm=batch")

    def too_large(model: nn.Module) -> Batch:
        raise MemoryError

    monkeypatch.setattr(watched.task, "test_batch", too_large)
    one, other = rows(watched, 3, lambda step: True), rows(alone, 3, lambda step: False)
    assert not any(is_known(row.test_accuracy) for row in one)
    assert [row.loss for row in one] == [row.loss for row in other], "training does not notice"


@pytest.mark.parametrize(("tests", "examples", "steps"), [
    (360, 32, 380), (360, 64, 200), (360, 256, 60), (512, 128, 140), (512, 8, 2140), (1, 1024, 20),
])  # fmt: skip
def test_the_interval_keeps_a_hundredth_of_the_examples(tests: int, examples: int, steps: int) -> None:
    assert interval(tests, examples) == steps
    assert tests / (3 * examples * steps) <= 0.01


@pytest.mark.parametrize("knobs", [
    [], ["problem.task=spirals"], ["problem.task=adding"], ["problem.task=ring", "model.kind=gan"],
    ["problem.task=pole", "model.kind=policy", "problem.seq_len=3"],
    ["problem.task=characters", "problem.seq_len=16", "model.kind=gru"],
], ids=" ".join)  # fmt: skip
def test_a_task_knows_how_large_its_test_set_is(build: Build, knobs: list[str]) -> None:
    trainer = build(*knobs)
    assert trainer.task.tests == len(trainer.task.test_batch(trainer.model).inputs)
