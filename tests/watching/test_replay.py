"""That a pass which is made again cannot be told by the script from one that is not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from gradstudio.watching.births import Births


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
