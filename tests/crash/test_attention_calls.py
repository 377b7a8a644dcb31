"""Attention is found among recorded calls, by what they do, and fixes act on it."""

from __future__ import annotations

from typing import Literal

import torch

from gradstudio.crash.attention_calls import attention_in, with_normed_queries
from gradstudio.crash.change import Change
from gradstudio.crash.recorded_pass import Pass
from gradstudio.session.files.crash_file import RecordedCall


def call(do: str, *given: object, gives: int) -> RecordedCall:
    return RecordedCall(do=f"torch.{do}", given=list(given), gives=[gives])


def t(key: int | str) -> dict[str, int | str]:
    return {"t": key}


SCORES = [
    call("nn.functional.linear", t("i:0"), t("w:q"), gives=0),
    call("nn.functional.linear", t("i:0"), t("w:k"), gives=1),
    call("Tensor.transpose", t(1), -2, -1, gives=2),
    call("Tensor.__matmul__", t(0), t(2), gives=3),
    call("Tensor.__truediv__", t(3), 2.0, gives=4),
    call("Tensor.masked_fill", t(4), t("i:1"), {"float": "-inf"}, gives=5),
    call("softmax", t(5), -1, gives=6),
]


def test_the_product_and_the_scores_before_the_mask_are_found() -> None:
    found = attention_in(SCORES)
    assert found.products == {3} and found.scores == {4}
    assert attention_in([*SCORES[:3], call("softmax", t(0), -1, gives=3)]).products == set()  # of no product


def test_both_fixes_bound_the_scores() -> None:
    torch.manual_seed(0)
    outside = {"i:0": torch.randn(3, 4) * 1e6, "i:1": torch.zeros(3, 3, dtype=torch.bool), "w:q": torch.randn(4, 4)}
    outside["w:k"] = torch.randn(4, 4)
    largest: dict[str, float] = {}
    kinds: list[Literal["", "norm", "cap"]] = ["", "norm", "cap"]
    for kind in kinds:
        made = Pass(SCORES, outside.__getitem__, "cpu", Change(attention=kind))
        made.run()
        largest[kind] = float(made.tensor(4).abs().max())
    assert largest[""] > 1e9 and largest["cap"] <= 30 and largest["norm"] <= 4 / 2.0 + 1e-5


def test_queries_of_fp16_that_are_large_are_normed() -> None:
    query = torch.full((2, 4), 6e4, dtype=torch.float16)
    normed, _ = with_normed_queries(SCORES[3], [query, query.T])
    assert normed.dtype == torch.float16 and torch.equal(normed, torch.ones(2, 4, dtype=torch.float16))
