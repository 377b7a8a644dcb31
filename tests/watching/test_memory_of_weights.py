"""Scripts that give a weight other memory, or take its memory away, while they train it."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from watching.conftest import columns, gradient_norm, near, norm, runs_of, small_net, square_loss

from gradstudio.core.unknown import is_known
from gradstudio.watching.measuring.parameters import Parameters
from gradstudio.watching.training_watch import TrainingWatch

Watch = Callable[..., TrainingWatch]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("rows", [2, 400])  # in place of 20: read as before, 400 would count in part
def test_a_weight_of_another_size_begins_a_run(watch: Watch, rows: int, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    weight = nn.Parameter(torch.randn(20, 5, dtype=dtype))
    model = nn.ParameterList([weight])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    one = watch(model, optimizer)
    norms: list[float] = []
    weights: list[float] = []
    for step in range(4):
        if step == 2:
            weight.data = torch.randn(rows, 5, dtype=dtype)
        optimizer.zero_grad()
        (weight @ torch.randn(5, dtype=dtype)).pow(2).mean().backward()
        norms.append(gradient_norm(model))
        weights.append(norm([weight.detach()]))
        optimizer.step()
    runs = runs_of(one)
    assert [[layer.size for layer in run.history.layers] for run in runs] == [[100], [5 * rows]]
    assert [value for run in runs for value in run.history.column("grad_norm")] == near(norms)
    assert [value for run in runs for value in run.history.column("weight_norm")] == near(weights)


def test_the_first_row_of_parameters_that_replace_all_others_has_its_loss(watch: Watch) -> None:
    model = small_net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    one = watch(model, optimizer)
    losses, norms = [], []
    for step in range(4):
        if step == 2:
            model.load_state_dict({name: each.clone() for name, each in model.state_dict().items()}, assign=True)
            optimizer.param_groups[0]["params"] = list(model.parameters())
        optimizer.zero_grad()
        loss = square_loss(model)
        loss.backward()
        losses.append(loss.item())
        norms.append(gradient_norm(model))
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
    runs = runs_of(one)
    assert [value for run in runs for value in run.history.column("loss")] == losses
    assert [value for run in runs for value in run.history.column("grad_norm")] == near(norms)


def _free(weight: Tensor) -> Callable[[], object]:
    kept = weight.detach().clone()
    weight.untyped_storage().resize_(0)
    return lambda: (weight.untyped_storage().resize_(4 * weight.numel()), weight.detach().copy_(kept))


def _empty(weight: Tensor) -> Callable[[], object]:
    kept, weight.data = weight.data, torch.empty(0)
    return lambda: setattr(weight, "data", kept)


@pytest.mark.parametrize("take_away", [_free, _empty])
@pytest.mark.parametrize("before_the_step", [True, False])
def test_an_update_of_weights_that_are_kept_elsewhere_is_unknown(
    watch: Watch, take_away: Callable[[Tensor], Callable[[], object]], before_the_step: bool
) -> None:
    model = small_net()
    back: list[Callable[[], object]] = []

    def take(*_: Any) -> None:
        back.extend(map(take_away, model.parameters()))

    def bring() -> None:
        while back:
            back.pop()()

    class Bringing(torch.optim.Optimizer):
        @torch.no_grad()
        def step(self, closure: Any = None) -> None:
            bring()
            for weight in model.parameters():
                weight.sub_(weight.grad, alpha=0.1)

    optimizer = Bringing(model.parameters(), {"lr": 0.1})
    one = watch(model, optimizer)
    if not before_the_step:
        optimizer.register_step_post_hook(take)
    norms: list[float] = []
    for _ in range(25):
        bring()
        optimizer.zero_grad()
        square_loss(model).backward()
        norms.append(gradient_norm(model))
        if before_the_step:
            take()
        optimizer.step()
    found, ratios, weights = columns(one, "grad_norm", "update_ratio", "weight_norm")
    assert found == near(norms) and not any(map(is_known, [*ratios, *weights]))
    (run,) = runs_of(one)
    assert np.isnan(run.history.layer_metric("update_ratio")).all()
    assert not run.findings


@pytest.mark.parametrize("channels_last", [True, False])
def test_a_direction_is_unknown_where_an_update_gives_gradients_other_memory(watch: Watch, channels_last: bool) -> None:
    class Halving(torch.optim.Optimizer):
        def __init__(self, tensors: Any) -> None:
            super().__init__(tensors, {"lr": 0.1})

        @torch.no_grad()
        def step(self, closure: Any = None) -> None:
            for tensor in self.param_groups[0]["params"]:
                tensor.grad.data = tensor.grad.data * 0.5
                tensor -= 0.1 * tensor.grad

    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 64, 3, padding=1), nn.Flatten(), nn.Linear(4096, 600))  # gives memory back
    if channels_last:
        model = model.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
    optimizer = Halving(model.parameters())
    one = watch(model, optimizer)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(2, 3, 8, 8)).pow(2).mean().backward()
        optimizer.step()
    assert not any(map(is_known, columns(one, "update_cosine")[0]))


def test_copies_are_made_on_the_host_whatever_device_a_script_has_chosen(watch: Watch) -> None:
    model = small_net().double()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    one = watch(model, optimizer)
    inputs = torch.randn(4, 6, dtype=torch.float64)
    norms: list[float] = []
    weights = [norm(tensor.detach() for tensor in model.parameters())]
    loss = model(inputs).pow(2).mean()
    with torch.device("meta"):
        loss.backward()
        norms.append(gradient_norm(model))
        optimizer.step()
    assert columns(one, "grad_norm", "clipped_norm") == [near(norms), near(norms)]
    assert columns(one, "weight_norm") == [near(weights)]


def test_no_copy_of_the_weights_of_a_model_that_is_gone_is_held(watch: Watch) -> None:
    def held() -> bool:
        gc.collect()
        return any(type(each) is Parameters and each.sizes.tolist() == [37, 1] for each in gc.get_objects())

    model = nn.Linear(37, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    one = watch(model, optimizer)
    model(torch.randn(4, 37)).pow(2).mean().backward()
    optimizer.step()
    assert held()
    del model, optimizer
    assert not held() and len(columns(one, "loss")[0]) == 1


def test_a_parameter_that_wraps_others_is_refused_with_one_line(
    watch: Watch, capfd: pytest.CaptureFixture[str]
) -> None:
    class Wrapping(Tensor):
        @staticmethod
        def __new__(cls, inner: Tensor) -> Any:
            return Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, device=inner.device)

        @classmethod
        def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return args[0]  # its numbers are of no use here

    model = nn.ParameterList([nn.Parameter(Wrapping(torch.ones(3)))])
    one = watch(model, optimizer := torch.optim.SGD(model.parameters(), lr=0.0, foreach=False))
    optimizer.step()
    assert one.run is None
    assert "ParameterList is not watched: A parameter has no memory of its own (Wrapping)." in capfd.readouterr().err
