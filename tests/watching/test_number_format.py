"""The number format of each step is that in which autocast made its passes, whatever else it was used for."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from watching.conftest import runs_of, small_net, square_loss

from gradstudio.watching.hooks.number_format import may_be_cast
from gradstudio.watching.training_watch import TrainingWatch

Watch = Callable[..., TrainingWatch]


def bf16() -> Any:
    return torch.autocast("cpu", torch.bfloat16)


def formats(one: TrainingWatch) -> list[tuple[int, str]]:
    (run,) = runs_of(one)
    return [(step, settings.dtype) for step, settings in run.history.settings]


def within(model: nn.Module, *blocks: Any) -> None:
    """Evaluate the model in these blocks, the first one outermost."""
    with blocks[0], blocks[1]:
        model(torch.ones(2, 6))


class InsideItself(nn.Module):
    """A model that has its own autocast."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = small_net()

    def forward(self, inputs: Tensor) -> Tensor:
        with bf16():
            return self.inner(inputs)


EVALUATIONS: dict[str, Callable[[nn.Module], None]] = {
    "autocast inside": lambda model: within(model, torch.no_grad(), bf16()),
    "autocast outside": lambda model: within(model, bf16(), torch.no_grad()),
    "inference": lambda model: within(model, bf16(), torch.inference_mode()),
    "with a graph": lambda model: within(model, bf16(), nullcontext()),
}


@pytest.mark.parametrize("evaluate", EVALUATIONS)
@pytest.mark.parametrize("hears_passes", [True, False])
def test_an_evaluation_under_autocast_is_not_the_format_of_the_training(
    watch: Watch, evaluate: str, hears_passes: bool
) -> None:
    model = small_net()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    one = watch(model if hears_passes else nn.ModuleList([model]), optimizer)
    for step in range(6):
        optimizer.zero_grad()
        square_loss(model).backward()
        optimizer.step()
        if step % 2:
            EVALUATIONS[evaluate](model)
    assert formats(one) == [(0, "fp32")]


@pytest.mark.parametrize("model", [small_net, InsideItself])
@pytest.mark.parametrize("passes", [1, 2])
def test_steps_under_autocast_are_told_from_those_before_and_after_them(
    watch: Watch, model: Callable[[], nn.Module], passes: int
) -> None:
    made = model()
    inner = made.inner if isinstance(made, InsideItself) else made
    optimizer = torch.optim.SGD(made.parameters(), 0.01)
    one = watch(made, optimizer)
    for step in range(9):
        optimizer.zero_grad()
        for _ in range(passes):
            if 3 <= step < 6:
                with bf16() if inner is made else nullcontext():
                    loss = square_loss(made)
            else:
                loss = square_loss(inner)
            loss.backward()
        within(made, torch.no_grad(), nullcontext())
        optimizer.step()
    assert formats(one) == [(0, "fp32"), (3, "bf16"), (6, "fp32")]


def test_one_block_around_all_steps_is_their_format(watch: Watch) -> None:
    model = small_net()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    one = watch(model, optimizer)
    with bf16():
        for _ in range(4):
            optimizer.zero_grad()
            square_loss(model).backward()
            optimizer.step()
    assert formats(one) == [(0, "bf16")]


def test_one_block_for_the_losses_of_two_models_is_the_format_of_both(watch: Watch) -> None:
    models = small_net(), small_net(1)
    optimizers = [torch.optim.SGD(model.parameters(), 0.01) for model in models]
    watched = [watch(model, optimizer) for model, optimizer in zip(models, optimizers, strict=True)]
    for _ in range(4):
        with bf16():
            losses = [square_loss(model) for model in models]
        for loss, optimizer in zip(losses, optimizers, strict=True):
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    assert [formats(one) for one in watched] == [[(0, "bf16")]] * 2


@pytest.mark.parametrize("cast", [True, False])
def test_updates_by_hand_have_the_format_of_their_own_pass(watch: Watch, cast: bool) -> None:
    model = small_net()
    one = watch(model)
    for step in range(6):
        model.zero_grad()
        with bf16() if cast == (step >= 3) else nullcontext():
            loss = square_loss(model)
        loss.backward()
        with torch.no_grad():
            for parameter in model.parameters():
                assert parameter.grad is not None
                parameter -= 0.01 * parameter.grad
    one.close()
    assert formats(one) == ([(0, "fp32"), (3, "bf16")] if cast else [(0, "bf16"), (3, "fp32")])


@pytest.mark.parametrize("cast", [True, False])
def test_gradients_that_no_backward_pass_gave_have_the_format_that_was_entered(watch: Watch, cast: bool) -> None:
    model = small_net()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    one = watch(model, optimizer)
    for step in range(4):
        with bf16() if cast and step < 2 else nullcontext():
            loss = square_loss(model)
        for parameter, gradient in zip(
            model.parameters(), torch.autograd.grad(loss, [*model.parameters()]), strict=True
        ):
            parameter.grad = gradient
        optimizer.step()
    assert formats(one) == ([(0, "bf16"), (2, "fp32")] if cast else [(0, "fp32")])


class Doubled(torch.autograd.Function):
    """Code of somebody's own, of which the graph says nothing."""

    @staticmethod
    def forward(ctx: Any, value: Tensor) -> Tensor:
        return 2 * value

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return 2 * gradients[0]


def test_a_graph_says_whether_it_may_have_casts() -> None:
    model, inputs = small_net(), torch.randn(4, 6)
    plain = model(inputs)
    plain[0] = 0  # in place
    assert not may_be_cast([plain.sum(), model(inputs)]) and not may_be_cast([torch.ones(1)])
    assert may_be_cast([Doubled.apply(plain)])  # pyright: ignore[reportArgumentType]
    assert may_be_cast([model(inputs), model(inputs).double()])
    assert may_be_cast([checkpoint(model, inputs.requires_grad_(), use_reentrant=True)])  # pyright: ignore
    with bf16():
        assert may_be_cast([model(inputs)])
