"""Where tensors and their gradients lie, as compiled loops ask torch, against what torch says to Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from watching.conftest import columns, runs_of, small_net, square_loss

from gradstudio.core.history import COLUMNS, LAYER_METRICS
from gradstudio.core.unknown import is_known
from gradstudio.engine.gauges.addresses import GRADIENTS, SAME_GRADIENTS, TENSORS, Addresses
from gradstudio.engine.torch_internals import entry_points, parts
from gradstudio.watching import host_copies
from gradstudio.watching import parameters as measured
from gradstudio.watching.parameters import Parameters
from gradstudio.watching.watched import Watched

Watch = Callable[..., Watched]

READABLE: dict[str, Callable[[Tensor], Tensor]] = {
    "as it is": lambda tensor: tensor,
    "a part of another": lambda tensor: torch.cat([tensor, tensor])[1 : 1 + len(tensor)],
    "of one row": lambda tensor: tensor[:1],
}
OTHERS: dict[str, Callable[[Tensor], Tensor]] = {
    "float64": Tensor.double,
    "bfloat16": Tensor.bfloat16,
    "turned": lambda tensor: tensor.t(),
    "every second": lambda tensor: tensor[:, ::2],
    "sparse": Tensor.to_sparse,
    "without data": lambda tensor: tensor.to("meta"),
}


def asked(tensors: list[Tensor]) -> Addresses:
    entry = entry_points.entry_points()
    assert entry is not None
    return Addresses(tensors, entry)


def tensors_at(of: Addresses) -> np.ndarray | None:
    return of.at if of.look(TENSORS) else None


def gradients_at(of: Addresses) -> np.ndarray | None:
    return of.gradients_at if of.look(GRADIENTS) else None


def with_gradient(gradient: Tensor | None) -> Tensor:
    """A weight with a gradient of the same shape."""
    if gradient is None:
        return nn.Parameter(torch.ones(2, 3))
    weight = nn.Parameter(torch.ones(gradient.shape, device=gradient.device))
    weight.grad_dtype = None  # any
    weight.grad = gradient
    return weight


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from([None, *READABLE]), min_size=1, max_size=6), st.sampled_from([None, *OTHERS]))
def test_gradients_lie_where_torch_says(kinds: list[str | None], other: str | None) -> None:
    plain = torch.randn(4, 6)
    weights = [with_gradient(None if kind is None else READABLE[kind](plain.clone())) for kind in kinds]
    if other is not None:
        weights.append(with_gradient(OTHERS[other](plain.clone())))
    found = gradients_at(asked(weights))
    if other is not None:
        assert found is None
    else:
        wanted = [0 if (gradient := weight.grad) is None else gradient.data_ptr() for weight in weights]
        assert found is not None and found.tolist() == wanted
    assert asked(weights).have_no_gradients() == all(weight.grad is None for weight in weights)


@pytest.mark.parametrize("kind", [*READABLE, *OTHERS])
def test_tensors_lie_where_torch_says(kind: str) -> None:
    plain = torch.randn(4, 6)
    tensors = [plain, (READABLE | OTHERS)[kind](plain)]
    found = tensors_at(asked(tensors))
    if kind in READABLE:
        assert found is not None and found.tolist() == [tensor.data_ptr() for tensor in tensors]
    else:
        assert found is None


def test_what_a_script_changes_is_seen_at_the_next_question() -> None:
    one, other = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(2))
    both = asked([one, other])
    assert both.are_as_at_first() and both.have_no_gradients()
    one.grad = torch.ones(3)
    assert not both.have_no_gradients() and (found := gradients_at(both)) is not None
    assert found.tolist() == [one.grad.data_ptr(), 0] and both.look(SAME_GRADIENTS)
    one.grad.data = torch.zeros(3)
    assert not both.look(SAME_GRADIENTS)
    one.data = torch.zeros(3)
    assert (found := tensors_at(both)) is not None and found[0] == one.data_ptr()
    one.data = torch.zeros(4)
    assert tensors_at(both) is None  # of another size than was asked for at first
    other.requires_grad_(False)
    assert not both.are_as_at_first()
    torch.utils.swap_tensors(one, kept := nn.Parameter(torch.ones(3)))
    assert (found := tensors_at(both)) is not None and found.tolist() == [one.data_ptr(), other.data_ptr()]
    assert kept.shape == (4,)


def test_numbers_of_twice_the_width_are_told_apart_where_a_script_makes_them_the_default() -> None:
    torch.set_default_dtype(torch.float64)
    try:
        parts.forget()
        wide, plain = torch.ones(3), torch.ones(3, dtype=torch.float32)
        assert tensors_at(asked([wide])) is None
        assert (found := tensors_at(asked([plain]))) is not None and found.tolist() == [plain.data_ptr()]
        assert entry_points.are_plain_floats([plain]) and not entry_points.are_plain_floats([wide])
        assert not entry_points.FLOAT_TYPE.problem()
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
def test_rows_are_the_same_bits_where_torch_cannot_be_asked_and_where_all_is_copied(
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

    with_loops = trained()
    monkeypatch.setattr(entry_points.ENTRY_POINTS, "_found", None)
    assert trained() == with_loops
    monkeypatch.setattr(host_copies, "is_on_host", lambda tensor: False)  # as those of a GPU, which are copied
    for module in (host_copies, measured):
        monkeypatch.setattr(module, "are_plain_floats", lambda tensors: False)
    assert trained() == with_loops


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
@pytest.mark.parametrize("in_loops", [True, False])
def test_a_direction_along_other_gradients_than_those_of_the_update_is_unknown(
    watch: Watch, monkeypatch: pytest.MonkeyPatch, to_none: bool, in_loops: bool
) -> None:
    if not in_loops:
        monkeypatch.setattr(entry_points.ENTRY_POINTS, "_found", None)
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
