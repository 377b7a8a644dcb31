"""Remedies of an overflow heal the operation that they are offered for: each is tried on a script in which it has to."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from gradstudio.core.diagnosis.birth_remedies import of_birth
from gradstudio.core.provenance import Operation, Provenance

HUNDREDS = torch.tensor([1.0, 155.0, 97.0])
# The operation, and the line that is offered, as a function.
TRIED = {
    "exp": (torch.exp, "x.clamp(max=50).exp()"),
    "exp2": (torch.exp2, "torch.exp2(x.clamp(max=80))"),
    "expm1": (torch.expm1, "torch.expm1(x.clamp(max=50))"),
    "sinh": (torch.sinh, "torch.sinh(x.clamp(-50, 50))"),
    "cosh": (torch.cosh, "torch.cosh(x.clamp(-50, 50))"),
}


def overflow(name: str, dtype: str = "float32", *, known: bool = True) -> Provenance:
    made = Operation("forward", "0", name, "", dtype, 155.0, 0, 0, 1.0, 0, 1, known)
    return Provenance(0, "forward", "0", name, "", 0, 1, None, (), (made,))


def gradients(operation: object, x: Tensor) -> Tensor:
    x = x.clone().requires_grad_()
    operation(x * 2).log1p().sum().backward()  # type: ignore[operator]
    assert x.grad is not None
    return x.grad


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("name", TRIED)
def test_the_first_remedy_of_an_overflow_heals_it_and_no_clipping_is_offered(name: str, known: bool) -> None:
    operation, line = TRIED[name]
    remedies = of_birth(overflow(f"aten.{name}.default", known=known)) or ()
    assert remedies[0].startswith(f"`{line}`") and not any("clip_grad" in each for each in remedies)
    assert not gradients(operation, HUNDREDS).isfinite().all()
    assert gradients(lambda x: eval(line, {"x": x, "torch": torch}), HUNDREDS).isfinite().all()


def test_a_softmax_by_hand_is_healed_by_what_subtracts_the_largest() -> None:
    assert not (HUNDREDS.exp() / HUNDREDS.exp().sum()).log().isfinite().all()
    assert torch.log_softmax(HUNDREDS, 0).isfinite().all() and torch.logsumexp(HUNDREDS, 0).isfinite()


def test_scores_that_overflow_float16_fit_where_they_are_scaled_before_the_product() -> None:
    remedies = of_birth(overflow("aten.bmm.default", "float16")) or ()
    assert "d ** -0.5" in remedies[0] and "bfloat16" in remedies[1]
    q, k = (torch.full((1, 4, 64), 40.0, dtype=torch.float16) for _ in range(2))
    assert not (q @ k.transpose(-2, -1) * 64**-0.5).isfinite().all()
    assert (q * 64**-0.5 @ k.transpose(-2, -1)).isfinite().all()
    assert (q.bfloat16() @ k.bfloat16().transpose(-2, -1)).isfinite().all()


@pytest.mark.parametrize(("dtype", "eps", "line"), [
    ("float16", 1e-8, "`eps=1e-4`"), ("float16", 1e-4, "`print("), ("float32", 1e-8, "`print("), ("float32", 0.0, "`eps=1e-8`"),
])  # fmt: skip
def test_an_eps_that_vanishes_is_to_be_one_that_does_not(dtype: str, eps: float, line: str) -> None:
    made = Operation("update", "", "Adam", "", dtype, 1.0, 0, 0, math.nan, 3, 0)
    found = Provenance(0, "update", "", "Adam", "", 0, 1, None, (), (made,))
    assert (of_birth(found, 0.1, "optimizer", eps) or ("",))[0].startswith(line)
    weight = torch.ones(3, dtype=getattr(torch, dtype), requires_grad=True)
    weight.grad = torch.zeros_like(weight)
    torch.optim.Adam([weight], lr=0.1, eps=float(line[5:9]) if line.startswith("`eps") else eps).step()
    assert weight.isfinite().all()
