"""Parameters and their gradients, measured where they lie or as copies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from watching.conftest import columns, runs_of, small_net, square_loss

from gradstudio.core.history import COLUMNS, LAYER_METRICS
from gradstudio.core.unknown import is_known
from gradstudio.engine.torch_internals import parts, plain_floats
from gradstudio.watching.measuring import host_copies
from gradstudio.watching.measuring import parameters as measured
from gradstudio.watching.measuring.parameters import Parameters
from gradstudio.watching.training_watch import TrainingWatch

Watch = Callable[..., TrainingWatch]


def test_numbers_of_twice_the_width_are_told_apart_where_a_script_makes_them_the_default() -> None:
    torch.set_default_dtype(torch.float64)
    try:
        parts.forget()
        wide, plain = torch.ones(3), torch.ones(3, dtype=torch.float32)
        assert plain_floats.are_plain_floats([plain]) and not plain_floats.are_plain_floats([wide])
        assert not plain_floats.FLOAT_TYPE.problem()
    finally:
        torch.set_default_dtype(torch.float32)
        parts.forget()


def test_a_gradient_that_is_negated_as_it_is_read_is_copied() -> None:
    weight = nn.Parameter(torch.ones(1))
    weight.grad = torch._neg_view(torch.full((1,), -3.0))
    parameters = Parameters([weight])
    parameters.measure_gradient()
    assert parameters.keep_weights_and_norm() == 3
    with torch.no_grad():
        weight -= 0.5
    layers = np.zeros((len(LAYER_METRICS), 1), np.float32)
    assert parameters.measure_change(layers).along_gradient == -1.5


def test_a_weight_that_is_negated_as_it_is_read_is_copied() -> None:
    weight = nn.Parameter(torch.complex(torch.zeros(1), torch.full((1,), 2.0)).conj().imag)
    assert weight.is_neg() and weight.item() == -2
    weight.grad = torch.full((1,), 3.0)
    parameters = Parameters([weight])
    parameters.measure_gradient()
    parameters.keep_weights_and_norm()
    with torch.no_grad():
        weight -= 0.5
    assert parameters.measure_change(np.zeros((len(LAYER_METRICS), 1), np.float32)).along_gradient == -1.5


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.AdamW])
@pytest.mark.parametrize("to_none", [True, False])
def test_rows_are_the_same_bits_where_all_is_copied(
    watch: Watch, monkeypatch: pytest.MonkeyPatch, optimizer: Any, to_none: bool
) -> None:
    names = [name for name in COLUMNS if name != "step_seconds"]

    def trained() -> list[bytes]:
        model = small_net()
        updates = optimizer(model.parameters(), lr=0.1)
        one = watch(model, updates)
        for _ in range(7):
            updates.zero_grad(set_to_none=to_none)
            for _ in range(2):
                square_loss(model).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            updates.step()
        found = [np.array(columns(one, *names)).tobytes()]
        (run,) = runs_of(one)
        found += [run.history.layer_metric(name).tobytes() for name in LAYER_METRICS]
        one.close()
        return found

    where_they_lie = trained()
    monkeypatch.setattr(host_copies, "is_on_host", lambda tensor: False)  # as those of a GPU, which are copied
    for module in (host_copies, measured):
        monkeypatch.setattr(module, "are_plain_floats", lambda tensors: False)
    assert trained() == where_they_lie


def test_a_direction_that_an_update_takes_away_is_unknown(watch: Watch) -> None:
    class Forgetting(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:
            given = super().step(closure)
            for group in self.param_groups:
                for tensor in group["params"]:
                    tensor.grad = None
            return given

    class Within(torch.optim.Optimizer):
        """An update that throws each gradient away as soon as it is used."""

        def __init__(self, tensors: Any) -> None:
            super().__init__(tensors, {"lr": 0.1})

        @torch.no_grad()
        def step(self, closure: Any = None) -> None:
            for tensor in self.param_groups[0]["params"]:
                tensor -= 0.1 * tensor.grad
                tensor.grad = None

    # From the first SGD on torch calls hooks within its own step too, before the step around it takes the gradients away.
    torch.optim.SGD(small_net().parameters())
    for kind in (lambda tensors: Forgetting(tensors, lr=0.1), Within):
        model = small_net()
        updates = kind(model.parameters())
        one = watch(model, updates)
        for _ in range(3):
            square_loss(model).backward()
            updates.step()
        cosines, ratios = columns(one, "update_cosine", "update_ratio")
        told = [is_known(cosine) for cosine in cosines]
        assert told == ([True] * 3 if kind is not Within else [False] * 3) and min(ratios) > 0
        one.close()


@pytest.mark.parametrize("to_none", [True, False])
def test_a_direction_along_other_gradients_than_those_of_the_update_is_unknown(watch: Watch, to_none: bool) -> None:
    model = small_net()
    updates = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=4)
    one = watch(model, updates)

    def evaluated() -> Tensor:
        updates.zero_grad(set_to_none=to_none)
        loss = square_loss(model)
        loss.backward()
        return loss

    for _ in range(3):
        updates.step(evaluated)
    assert not any(map(is_known, columns(one, "update_cosine")[0]))
    one.close()
    model = small_net()
    plain = torch.optim.SGD(model.parameters(), lr=0.1)
    plain.register_step_post_hook(lambda *_: plain.zero_grad(set_to_none=False))
    one = watch(model, plain)
    for _ in range(3):
        square_loss(model).backward()
        plain.step()
    assert not any(map(is_known, columns(one, "update_cosine")[0]))
