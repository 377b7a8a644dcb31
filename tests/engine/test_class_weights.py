"""Class weights: all classes count the same, also where a batch comes in parts whose examples have other weights."""

from __future__ import annotations

from itertools import islice

import pytest
import torch

from gradstudio.core.knobs import KnobError
from gradstudio.engine.step import class_weights
from gradstudio.engine.trainer import Trainer

RARE = ["problem.imbalance=20", "loss.class_weights=balanced", "model.width=16", "run.seed=3"]


def first(trainer: Trainer, *, compared: bool = True):
    trainer.requests.compare = trainer.requests.accumulation = compared
    return next(trainer.steps())


def test_balanced_weights_make_all_classes_count_the_same() -> None:
    labels = torch.tensor([0] * 6 + [1] * 3 + [2])
    weights = class_weights.balanced_weights(labels, 4)
    assert weights.dtype == torch.float32
    sums = [weights[labels[labels == number]].sum().item() for number in range(3)]
    assert sums == pytest.approx([2.5] * 3)  # and the class without an example counts nothing
    assert class_weights.balanced_weights(torch.arange(4), 4).tolist() == [1.0] * 4


def test_the_shares_of_the_micro_batches_have_the_mean_1() -> None:
    weights = torch.tensor([1.0, 3.0])
    parts = [torch.tensor([0, 0]), torch.tensor([1, 0]), torch.tensor([1, 1])]
    assert class_weights.shares(weights, parts).tolist() == pytest.approx([0.5, 1.0, 1.5])


def test_a_long_tail_keeps_the_first_examples_of_each_class(build) -> None:
    whole, thin = build().task.training, build("problem.imbalance=100").task.training
    counts, left = torch.bincount(whole.targets), torch.bincount(thin.targets)
    assert left.tolist() == [round(int(count) * 100 ** (-number / 9)) for number, count in enumerate(counts)]
    for number in (0, 5, 9):
        of_class = whole.inputs[whole.targets == number]
        assert torch.equal(thin.inputs[thin.targets == number], of_class[: left[number]])
    assert torch.bincount(build("problem.imbalance=1000").task.training.targets).min() == 1
    assert build("problem.imbalance=100").task.tests == build().task.tests


@pytest.mark.parametrize("more", [[], ["precision.dtype=bf16"], ["optimizer.sam_rho=0.1"]], ids=" ".join)
@pytest.mark.parametrize("parts", [(1, 32), (8, 4)])
def test_micro_batches_add_up_to_the_large_batch(build, more, parts) -> None:
    size, steps = parts
    split = build(*RARE, *more, f"problem.batch_size={size}", f"accumulation.steps={steps}")
    whole = build(*RARE, *more, "problem.batch_size=32")
    row, other = first(split, compared=not more), first(whole, compared=False)
    near = 1e-5 if not more else 2e-2
    assert row.loss == pytest.approx(other.loss, rel=near)
    assert row.grad_norm == pytest.approx(other.grad_norm, rel=near)
    if not more:
        assert row.joined_difference < 1e-5 and row.accumulated.difference < row.accumulated.tolerance


def test_a_micro_batch_that_is_divided_by_its_own_weight_is_seen_by_both_comparisons(build) -> None:
    wrong = build(*RARE, "problem.batch_size=1", "accumulation.steps=32", "mistakes.normalize_each_micro_batch=true")
    row = first(wrong)
    assert row.joined_difference > 0.2
    assert row.accumulated.difference == pytest.approx(row.joined_difference, rel=1e-3)


def test_with_one_example_a_micro_batch_the_weights_cancel(build) -> None:
    """Each loss is w l / w, so the run is that without weights."""
    knobs = ["problem.batch_size=1", "accumulation.steps=8", "mistakes.normalize_each_micro_batch=true"]
    wrong, plain = build(*RARE, *knobs), build(*RARE, *knobs, "loss.class_weights=none")
    for row, other in islice(zip(wrong.steps(), plain.steps(), strict=False), 30):
        assert row.loss == pytest.approx(other.loss, rel=1e-4)
        assert row.grad_norm == pytest.approx(other.grad_norm, rel=1e-4)


def test_what_weights_do_not_go_with_is_refused(build) -> None:
    with pytest.raises(KnobError, match="summed over the ranks"):
        build("loss.class_weights=balanced", "distributed.ranks=2")
    applies = build("loss.class_weights=balanced").experiment.applies
    assert not applies("loss.z_loss") and applies("loss.class_weights")
    assert not build("problem.task=characters", "problem.seq_len=4").experiment.applies("loss.class_weights")
