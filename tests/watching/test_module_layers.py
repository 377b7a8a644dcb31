"""Models with more tensors than a run shows, and those that are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from watching.conftest import columns, gradient_norm, norm, runs_of, small_net

from gradstudio.watching.steps import pass_observer
from gradstudio.watching.training_watch import TrainingWatch

Watch = Callable[..., TrainingWatch]


@pytest.mark.parametrize("most", [3, 2])
def test_the_tensors_of_a_module_are_one_layer(watch: Watch, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    monkeypatch.setattr(pass_observer, "MOST_LAYERS", most)
    model = nn.Sequential(small_net(), nn.Linear(1, 3), nn.Linear(3, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    one = watch(model, optimizer)
    norms: list[list[float]] = []
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(4, 6)).square().mean().backward()
        norms.append([gradient_norm(part) for part in model])
        entries = [torch.cat([each.grad.flatten() for each in part.parameters()]).double() for part in model]
        whole, weights = gradient_norm(model), norm(each.detach() for each in model[0].parameters())
        optimizer.step()
    (run,) = runs_of(one)
    names = ["0", "1", "2"] if most == 3 else ["0.0.weight and 3 more", "1.weight and 3 more"]
    assert [layer.name for layer in run.history.layers] == names
    assert columns(one, "grad_norm")[0][-1] == pytest.approx(whole)
    if most == 3:
        assert run.history.layer_metric("grad_norm")[-1].tolist() == pytest.approx(norms[-1], rel=1e-5)
        means, deviations = (
            [each.mean().item() for each in entries],
            [each.std(correction=0).item() for each in entries],
        )
        assert run.history.layer_metric("grad_mean")[-1].tolist() == pytest.approx(means, rel=1e-4, abs=1e-9)
        assert run.history.layer_metric("grad_std")[-1].tolist() == pytest.approx(deviations, rel=1e-4)
    assert run.history.layer_metric("weight_norm")[-1][0] == pytest.approx(weights, rel=1e-5)


def test_a_loss_of_very_many_operations_is_watched(watch: Watch) -> None:
    model = small_net()
    one = watch(model, optimizer := torch.optim.SGD(model.parameters(), lr=0.1))
    loss = model(torch.randn(4, 6)).square().mean()
    for _ in range(10_001):
        loss = loss + 0
    loss.backward()
    optimizer.step()
    assert columns(one, "loss")[0] == [loss.item()]


def test_what_is_refused_is_told_by_its_findings(watch: Watch) -> None:
    class Wrapping(Tensor):
        @staticmethod
        def __new__(cls, inner: Tensor) -> Any:
            return Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, device=inner.device)

        @classmethod
        def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return args[0]

    model = nn.ParameterList([nn.Parameter(Wrapping(torch.ones(3)))])
    one = watch(model, optimizer := torch.optim.SGD(model.parameters(), lr=0.0, foreach=False))
    optimizer.step()
    (told,) = one.findings
    assert told.title == "Not watched" and "no memory of its own" in told.evidence
