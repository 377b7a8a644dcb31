"""Which loss scale a backward pass carries, where losses are scaled and used in other ways than one after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from watching.conftest import columns, gradient_norm, near, small_net, square_loss

from gradstudio.core.unknown import is_known
from gradstudio.watching.training_watch import TrainingWatch

Watch = Callable[..., TrainingWatch]
Scaler = torch.amp.GradScaler
SCALE = 1024.0


def each_alone(scaler: Scaler, losses: list[Tensor]) -> None:
    """Scale all losses before the first backward pass."""
    scaled = [scaler.scale(loss) for loss in losses]
    for each in scaled:
        each.backward()


def twice(scaler: Scaler, losses: list[Tensor]) -> None:
    """Begin two backward passes at one scaled loss."""
    scaled = scaler.scale(torch.stack(losses).sum() / 2)
    scaled.backward(retain_graph=True)
    scaled.backward()


def summed(scaler: Scaler, losses: list[Tensor]) -> None:
    """Add up scaled losses, and put another factor on them."""
    total = torch.stack([scaler.scale(loss) * 2 for loss in losses]).sum()
    (total / 2).backward()


def in_a_nest(scaler: Scaler, losses: list[Tensor]) -> None:
    """Have the scaler go through a list of lists."""
    nest: Any = [[loss] for loss in losses]
    for (scaled,) in scaler.scale(nest):
        scaled.backward()


def together(scaler: Scaler, losses: list[Tensor]) -> None:
    """Begin one backward pass at several scaled losses."""
    torch.autograd.backward(scaler.scale(losses))


def with_penalties(scaler: Scaler, losses: list[Tensor]) -> None:
    """Add many scaled terms to a scaled loss, which then lies deep in the graph."""
    total = scaler.scale(torch.stack(losses).sum())
    for _ in range(100):
        total = total + losses[0] * 0
    total.backward()


@pytest.mark.parametrize("backward", [each_alone, twice, summed, in_a_nest, together, with_penalties])
def test_a_backward_pass_has_the_scale_of_what_it_was_computed_from(
    watch: Watch, backward: Callable[[Scaler, list[Tensor]], None]
) -> None:
    model = small_net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scaler = Scaler("cpu", init_scale=SCALE)
    one = watch(model, optimizer)
    sums, norms = [], []
    for _ in range(3):
        optimizer.zero_grad()
        losses = [square_loss(model), square_loss(model)]
        backward(scaler, losses)
        sums.append(sum(loss.item() for loss in losses))
        scaler.unscale_(optimizer)
        norms.append(gradient_norm(model))
        scaler.step(optimizer)
        scaler.update()
    assert columns(one, "loss", "grad_norm", "scale") == [near(sums), near(norms), [SCALE] * 3]


def test_one_scaled_loss_for_two_optimizers(watch: Watch) -> None:
    first, second = nn.Linear(6, 4), nn.Linear(4, 1)
    models = [(model, torch.optim.SGD(model.parameters(), lr=0.01)) for model in (first, second)]
    seen = [watch(model, optimizer) for model, optimizer in models]
    scaler = Scaler("cpu", init_scale=SCALE)
    losses: list[float] = []
    for _ in range(3):
        loss = square_loss(nn.Sequential(first, second))
        losses.append(loss.item())
        scaled = scaler.scale(loss)
        for model, optimizer in models:
            optimizer.zero_grad()
            scaled.backward(inputs=list(model.parameters()), retain_graph=True)
        for _, optimizer in models:
            scaler.step(optimizer)
        scaler.update()
    for one in seen:
        assert columns(one, "loss", "scale") == [near(losses), [SCALE] * 3]


def test_a_scaled_loss_without_a_backward_pass_scales_no_other(watch: Watch) -> None:
    model = small_net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    one = watch(model, optimizer)
    scaler = Scaler("cpu", init_scale=SCALE)
    losses, norms = [], []
    for _ in range(3):
        scaled = scaler.scale(square_loss(model))
        torch.autograd.grad(scaled, list(model.parameters()))
        optimizer.zero_grad()
        loss = square_loss(model)
        loss.backward()
        losses.append(loss.item())
        norms.append(gradient_norm(model))
        optimizer.step()
    assert columns(one, "loss", "grad_norm", "scale") == [near(losses), near(norms), [1] * 3]


def test_gradients_with_different_scales_have_no_norm_that_is_known(watch: Watch) -> None:
    model = small_net()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    one = watch(model, optimizer)
    scaler = Scaler("cpu", init_scale=SCALE)
    sums = []
    for step in range(3):
        optimizer.zero_grad()
        scaled, plain = square_loss(model), square_loss(model)
        scaler.scale(scaled).backward()
        (scaler.scale(plain) if step == 2 else plain).backward()
        sums.append(scaled.item() + plain.item())
        scaler.step(optimizer)
        scaler.update()
    assert columns(one, "loss") == [near(sums)]
    known = [[is_known(value) for value in values] for values in columns(one, "grad_norm", "scale", "clip_coef")]
    assert known == [[False, False, True]] * 3
