"""The cosines of a step are those that plain PyTorch gives: of the gradient before and after clipping, and of the
gradient and the update."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import clip_grad_norm_, clip_grad_value_

from gradstudio.core.row import Row
from gradstudio.core.unknown import is_known
from gradstudio.engine.trainer import Trainer

Build = Callable[..., Trainer]


def clip_units(parameters: list[nn.Parameter], share: float) -> None:
    """Clip the rows of all weights but the head's, and each bias as one, to a share of the weights' norm."""
    for parameter in parameters[:-2]:
        rows, weights = (
            tensor.reshape(len(tensor) if tensor.ndim > 1 else 1, -1) for tensor in (parameter.grad, parameter)
        )
        for row, weight in zip(rows, weights, strict=True):
            row.mul_(torch.clamp(share * weight.detach().norm().clamp(min=1e-3) / row.norm().clamp(min=1e-6), max=1))


CLIPPERS: dict[str, Callable[[list[nn.Parameter]], object]] = {
    "none": lambda parameters: None,
    "norm": lambda parameters: clip_grad_norm_(parameters, 0.1),
    "value": lambda parameters: clip_grad_value_(parameters, 0.002),
    "per_tensor": lambda parameters: [clip_grad_norm_([parameter], 0.1) for parameter in parameters],
    "agc": lambda parameters: clip_units(parameters, 0.01),
}
OPTIMIZERS: dict[str, Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]] = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.1),
    "sgd optimizer.momentum=0.9": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
    "sgd optimizer.weight_decay=0.1": lambda parameters: torch.optim.SGD(parameters, lr=0.1, weight_decay=0.1),
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=0.1),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=0.1, weight_decay=0.0),
}


def together(tensors: Iterable[Tensor | None]) -> Tensor:
    return torch.cat([tensor.detach().double().flatten() for tensor in tensors if tensor is not None])


def cosine(one: Tensor, other: Tensor) -> float:
    return (one @ other / (one.norm() * other.norm())).item()


def plain(trainer: Trainer, clip: str, optimizer: str, steps: int) -> list[tuple[float, float]]:
    """Both cosines of each step of a loop that is written as people write it, from the trainer's weights and data."""
    model, task = copy.deepcopy(trainer.model), copy.deepcopy(trainer.task)
    parameters = list(model.parameters())
    for parameter in parameters:
        parameter.data, parameter.grad = parameter.data.clone(), None
    stepping, found = OPTIMIZERS[optimizer](parameters), []
    for _ in range(steps):
        batch = task.next_batch(model)
        stepping.zero_grad()
        F.cross_entropy(model(batch.inputs), batch.targets).backward()
        true, before = together(parameter.grad for parameter in parameters), together(parameters)
        CLIPPERS[clip](parameters)
        clipped = together(parameter.grad for parameter in parameters)
        stepping.step()
        found.append((cosine(true, clipped), cosine(clipped, before - together(parameters))))
    return found


def check(trainer: Trainer, clip: str, optimizer: str) -> list[Row]:
    wanted = plain(trainer, clip, optimizer, 6)
    rows = [row for _ in range(6) for row in trainer.advance()]
    for row, (clip_cosine, update_cosine) in zip(rows, wanted, strict=True):
        assert row.clip_cosine == pytest.approx(clip_cosine, abs=1e-6)
        assert row.update_cosine == pytest.approx(update_cosine, abs=1e-6)
    return rows


@pytest.mark.parametrize("clip", CLIPPERS)
def test_clipping(build: Build, clip: str) -> None:
    limits = ["clipping.max_norm=0.1", "clipping.clip_value=0.002", "clipping.agc_factor=0.01"]
    rows = check(build(f"clipping.kind={clip}", *limits), clip, "sgd")
    if clip in ("none", "norm"):
        assert all(row.clip_cosine == pytest.approx(1, abs=1e-12) for row in rows)
    else:
        assert all(row.clip_cosine < 0.99 for row in rows)
    if clip == "none":
        assert all(row.clip_cosine == 1 for row in rows)
    assert all(row.update_cosine > 0.999999 for row in rows)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_optimizers(build: Build, optimizer: str) -> None:
    assignments = f"optimizer.kind={optimizer}".split()
    rows = check(build(*assignments), "none", optimizer)
    assert (min(row.update_cosine for row in rows) > 0.999999) == (optimizer == "sgd")


def test_a_limit_that_nothing_reaches_clips_nothing(build: Build) -> None:
    for knobs in (
        ["clipping.kind=norm", "clipping.max_norm=1000"],
        ["clipping.kind=value", "clipping.clip_value=1000"],
    ):
        assert [row.clip_cosine for row in build(*knobs).advance()] == [1.0]


def test_clipping_that_a_mistake_puts_elsewhere(build: Build) -> None:
    value = ["clipping.kind=value", "clipping.clip_value=0.001", "accumulation.steps=2"]
    (after,) = build(*value, "mistakes.clip_after_step=true").advance()
    assert after.clip_cosine == 1 and after.update_cosine > 0.999999  # it acts on nothing
    (each,) = build(*value, "mistakes.clip_each_micro_batch=true").advance()
    assert each.clip_cosine < 0.99
    (scaled,) = build(
        "clipping.kind=norm", "precision.dtype=fp16", "precision.init_scale=1024", "mistakes.clip_before_unscale=true"
    ).advance()
    assert scaled.clip_coef < 1 and scaled.clip_cosine == pytest.approx(1, abs=1e-6)


def test_a_step_without_update_or_gradient_has_no_direction(build: Build) -> None:
    (skipped,) = build("precision.dtype=fp16", "precision.init_scale=1e30").advance()
    assert skipped.skipped and not is_known(skipped.update_cosine)
    (still,) = build("optimizer.lr=0").advance()
    assert not is_known(still.update_cosine) and still.clip_cosine == 1


def test_a_gradient_that_is_not_finite_gives_nan_which_was_measured(build: Build) -> None:
    trainer = build("clipping.kind=norm")
    trainer.flat.weights.data[0] = math.nan
    (row,) = trainer.advance()
    assert math.isnan(row.clip_cosine) and is_known(row.clip_cosine)
    assert math.isnan(row.update_cosine) and is_known(row.update_cosine)
