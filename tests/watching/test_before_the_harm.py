"""What is not finite is kept from the weights and from the optimizer's state where that is asked for."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from watching.conftest import columns, gradient_norm, near, runs_of, small_net, square_loss

from gradstudio.core.unknown import is_known
from gradstudio.watching.measuring import device_parameters
from gradstudio.watching.training_watch import TrainingWatch

Watch = Callable[..., TrainingWatch]
BROKEN = 3


@pytest.fixture(params=["on the host", "on a device"], autouse=True)
def both_ways(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures that come at once, and such as are read later."""
    if request.param == "on a device":
        monkeypatch.setattr(device_parameters, "MEASURED_THERE", ("cpu",))


def step(model: nn.Module, optimizer: torch.optim.Optimizer, number: int) -> None:
    """Make a step, with an Inf in one of the batches."""
    optimizer.zero_grad()
    loss = square_loss(model)
    (loss / (number != BROKEN)).backward()
    optimizer.step()


def state(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [*model.parameters(), *(each for kept in optimizer.state.values() for each in kept.values())]


def all_finite(tensors: list[Tensor]) -> bool:
    return all(bool(torch.isfinite(each).all()) for each in tensors)


@pytest.mark.parametrize("kind", [torch.optim.AdamW, torch.optim.RMSprop])
def test_raise_comes_before_the_update(watch: Watch, kind: Any) -> None:
    model = small_net()
    optimizer = kind(model.parameters(), lr=0.01)
    one = watch(model, optimizer, on_nonfinite="raise")
    for number in range(BROKEN):
        step(model, optimizer, number)
    before = [each.clone() for each in state(model, optimizer)]
    with pytest.raises(FloatingPointError, match="no update was made of it"):
        step(model, optimizer, BROKEN)
    assert all(map(torch.equal, before, state(model, optimizer)))
    (run,) = runs_of(one)
    assert run.first_nonfinite_step == BROKEN and math.isinf(run.history.value("loss", BROKEN))
    assert run.provenance is not None and run.provenance.phase == "loss"
    step(model, optimizer, BROKEN + 1)  # a script may go on
    with pytest.raises(FloatingPointError):
        step(model, optimizer, BROKEN)
    assert all_finite(state(model, optimizer))


def test_raise_comes_before_an_update_that_the_script_has_spoiled(watch: Watch) -> None:
    model = small_net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    one = watch(model, optimizer, on_nonfinite="raise")
    square_loss(model).backward()
    for weight in model.parameters():
        assert weight.grad is not None
        weight.grad *= math.inf * 0  # as of a clip by hand with a norm of 0
    with pytest.raises(FloatingPointError, match="of which the script made these"):
        optimizer.step()
    assert all_finite([*model.parameters()]) and one.run is not None


def test_raise_within_a_closure(watch: Watch) -> None:
    model = small_net()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=2)
    watch(model, optimizer, on_nonfinite="raise")

    def evaluated() -> Tensor:
        optimizer.zero_grad()
        loss = square_loss(model) / 0
        loss.backward()
        return loss

    with pytest.raises(FloatingPointError):
        optimizer.step(evaluated)
    assert all_finite([*model.parameters()])


class OfSomebody(torch.optim.Optimizer):
    """Goes through its parameters by itself."""

    def __init__(self, parameters: Any, lr: float) -> None:
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for weight in self.param_groups[0]["params"]:
            if weight.grad is not None:
                weight -= self.param_groups[0]["lr"] * weight.grad


@pytest.mark.parametrize("kind", [torch.optim.AdamW, OfSomebody])
@pytest.mark.parametrize("updates", [True, False])
def test_skip_leaves_a_step_out_and_counts_it(
    watch: Watch, capfd: pytest.CaptureFixture[str], kind: Any, updates: bool
) -> None:
    model = small_net()
    optimizer = kind(model.parameters(), lr=0.01)
    one = watch(model, optimizer, on_nonfinite="skip", updates=updates)
    for number in range(BROKEN):
        step(model, optimizer, number)
    before = [each.clone() for each in state(model, optimizer)]
    step(model, optimizer, BROKEN)
    assert all(map(torch.equal, before, state(model, optimizer)))
    assert all(weight.grad is not None and not torch.isfinite(weight.grad).all() for weight in model.parameters())
    for number in range(BROKEN + 1, 2 * BROKEN):
        step(model, optimizer, number)
    (skipped, losses, ratios) = columns(one, "skipped", "loss", "update_ratio")
    assert skipped == [0, 0, 0, 1, 0, 0] and math.isinf(losses[BROKEN]) and all_finite(state(model, optimizer))
    assert [is_known(ratio) for ratio in ratios] == [updates] * 6 and (not updates or ratios[BROKEN] == 0)
    (run,) = runs_of(one)
    one.close()
    assert run.status == "finished"
    assert sum("skipped by the watch" in event.text and "born in" in event.text for event in run.events) == 1
    told = capfd.readouterr().err
    assert "no update was made of it" in told and "1 update left out" in told


def test_a_gradient_that_the_script_mends_is_not_left_out(watch: Watch) -> None:
    model = small_net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    one = watch(model, optimizer, on_nonfinite="skip")
    (square_loss(model) / 0).backward()
    for weight in model.parameters():
        weight.grad = torch.ones_like(weight)
    optimizer.step()
    assert columns(one, "skipped") == [[0]]


def test_without_updates_no_weights_are_kept_and_a_birth_is_found(watch: Watch) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    one = watch(model, optimizer, updates=False)
    norms = []
    for number in range(5):
        optimizer.zero_grad()
        given = model(torch.ones(2, 4))
        loss = (given * 0 - 1).log().sum() if number == BROKEN else given.sum()
        loss.backward()
        norms.append(gradient_norm(model))
        optimizer.step()
    (run,) = runs_of(one)
    assert run.provenance is not None and run.provenance.step == BROKEN
    assert "log" in run.provenance.operation.lower()
    found, weights = columns(one, "grad_norm", "weight_norm")
    assert found[:BROKEN] == near(norms[:BROKEN]) and not any(map(is_known, weights))
    parameters: Any = one._observer.parameters if one._observer else None
    assert not parameters._before.size and not getattr(parameters, "_kept", None)


def test_each_training_has_rows_as_often_as_it_was_asked_for(watch: Watch) -> None:
    rows = []
    for every in (1, 4):
        model = small_net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        one = watch(model, optimizer, every=every)
        for number in range(4, 12):
            step(model, optimizer, number)
        rows.append(len(columns(one, "loss")[0]))
        one.close()
    assert rows == [8, 2]
    with pytest.raises(ValueError, match="every = 0 is not allowed"):
        watch(small_net(), every=0)
