"""That a pass which is made again cannot be told by the script from one that is not."""

from __future__ import annotations

import io
import logging
import sys
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from watching.conftest import columns

from gradstudio.watching.births.step_births import Births
from gradstudio.watching.hooks.guard import replaying, say
from gradstudio.watching.hooks.torch_hooks import Hooks
from gradstudio.watching.training_watch import TrainingWatch

pytestmark = pytest.mark.wants("torch.utils._python_dispatch", "OpOverload._schema")


class Rooted(nn.Module):
    """A part that is a checkpoint or not, and the derivative of a root of 0 behind it."""

    def __init__(self, reentrant: bool = False) -> None:
        super().__init__()
        self.first, self.last, self.reentrant = nn.Linear(3, 4), nn.Linear(4, 1), reentrant

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = inputs.clone().requires_grad_()
        hidden = checkpoint(self.first, hidden, use_reentrant=True) if self.reentrant else self.first(hidden)
        outputs = self.last(hidden)
        return outputs + (outputs - outputs).sqrt() * 0


@pytest.fixture(autouse=True)
def seed() -> Iterator[None]:
    torch.manual_seed(0)
    yield


def with_gradients(model: nn.Module) -> Births:
    """Make a step up to the gradients."""
    births = Births(model)
    model(torch.randn(5, 3)).sum().backward()
    return births


def test_what_is_behind_a_reentrant_checkpoint_is_found() -> None:
    model = Rooted(reentrant=True)
    births = with_gradients(model)
    found = births.explain()
    assert found is not None, births.unknown
    assert (found.phase, found.module, found.operation) == ("backward", "", "aten.div.Tensor")


def test_hooks_that_update_a_weight_as_its_gradient_arrives_are_called_again_afterwards() -> None:
    model, updated = Rooted(reentrant=True), []
    model.first.weight.register_post_accumulate_grad_hook(updated.append)
    births = with_gradients(model)
    weight, gradient = model.first.weight.detach().clone(), model.first.weight.grad
    assert births.explain() is not None and len(updated) == 1, births.unknown
    assert torch.equal(weight, model.first.weight) and model.first.weight.grad is gradient
    model(torch.randn(5, 3)).sum().backward()
    assert len(updated) == 2


def test_a_weight_of_no_module_keeps_its_gradient() -> None:
    scale = torch.ones(1, requires_grad=True)

    def scaled(module: nn.Module, inputs: Any, outputs: Tensor) -> Tensor:
        return outputs * scale

    model = nn.Sequential(Rooted(reentrant=True))
    model.register_forward_hook(scaled)
    births = with_gradients(model)
    gradient = scale.grad
    assert gradient is not None and births.explain() is not None, births.unknown
    assert scale.grad is gradient


# ---- the watch itself


class WithinItself(torch.autograd.Function):
    """Has a backward pass of its own within the backward pass, as a checkpoint has."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(inputs.detach(), weight)
        return inputs * weight.detach()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        inputs, weight = ctx.saved_tensors
        with torch.enable_grad():
            torch.autograd.backward(inputs * weight, gradients[0])
        return gradients[0] * weight.detach(), None


@pytest.mark.parametrize("outer", ["backward", "grad"])
def test_a_backward_pass_within_another_is_not_heard(outer: str) -> None:
    listener = Mock()
    hooks = Hooks(listener, pytest.fail)
    hooks.install()
    try:
        inputs, weight = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
        inputs.sum().backward()
        outputs = WithinItself.apply(inputs, weight).sum()
        if outer == "grad":
            torch.autograd.grad(outputs, inputs)
        else:
            torch.autograd.backward(outputs)
        heard = listener.before_backward.call_count, listener.after_backward.call_count
        assert heard == ((1, 1) if outer == "grad" else (2, 2)) and weight.grad is not None
    finally:
        hooks.remove()


def test_a_script_that_skips_a_batch_behind_a_checkpoint_is_watched_to_its_end(
    watch: Callable[..., TrainingWatch], capsys: pytest.CaptureFixture[str]
) -> None:
    model = Rooted(reentrant=True)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    seen = watch(model, optimizer)
    for step in range(4):
        optimizer.zero_grad()
        outputs = model(torch.randn(5, 3)) if step == 1 else model.last(model.first(torch.randn(5, 3)))
        outputs.square().mean().backward()
        if step != 1:  # the script skips what is not finite
            optimizer.step()
    (rows,) = columns(seen, "loss")
    said = capsys.readouterr().err
    assert len(rows) == 3 and "born in  the model itself" in said and "watching ended" not in said


def test_the_hooks_hear_nothing_of_it() -> None:
    model, listener = Rooted(reentrant=True), Mock()
    births, hooks = with_gradients(model), Hooks(listener, pytest.fail)
    hooks.install()
    try:
        assert births.explain() is not None, births.unknown
        assert not any(heard for heard in listener.mock_calls if heard.args)
    finally:
        hooks.remove()


def test_a_line_of_ours_is_shown_while_a_pass_is_made_again(capsys: pytest.CaptureFixture[str]) -> None:
    with replaying(), replaying():
        print("of the script", file=sys.stderr)
        say("of ours")
    say("of ours too")
    assert capsys.readouterr().err == "gradstudio: of ours\ngradstudio: of ours too\n"


class Logging(Rooted):
    """Tells of each pass by a logger, of which the handler holds stdout itself."""

    logger = logging.getLogger("of the test")

    def forward(self, inputs: Tensor) -> Tensor:
        self.logger.warning("a pass")
        return super().forward(inputs)


def test_nothing_is_logged_a_second_time() -> None:
    stream, model = io.StringIO(), Logging()
    handler = logging.StreamHandler(stream)
    model.logger.addHandler(handler)
    try:
        births = with_gradients(model)
        assert births.explain() is not None, births.unknown
        model.logger.warning("afterwards")
    finally:
        model.logger.removeHandler(handler)
    assert stream.getvalue() == "a pass\nafterwards\n" and logging.root.manager.disable == 0
