"""Attention among the calls of a pass, identified by the calls: the product of queries and keys, and the scores that go
into the softmax."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gradstudio.session.files.crash_file import PlainCall

CAP = 30.0
_FUSED = "scaled_dot_product_attention"
_PRODUCTS = {"matmul": 0, "__matmul__": 0, "bmm": 0, "baddbmm": 1}  # and the index of the queries among the arguments
_SCALES = {"mul", "__mul__", "__rmul__", "multiply", "div", "__truediv__", "true_divide"}
_MASKS = {"masked_fill", "masked_fill_", "where", "add", "__add__", "__iadd__", "add_", "float", "to", "type"}


class Attention(NamedTuple):
    """Indices of calls: products of queries and keys, and the calls whose results are the scores before the mask; a
    fused call has none of these."""

    products: frozenset[int]
    scores: frozenset[int]


NO_ATTENTION = Attention(frozenset(), frozenset())


def attention_in(calls: Sequence[PlainCall]) -> Attention:
    """Return which calls of a pass are attention."""
    makers = {number: place for place, call in enumerate(calls) for number in call.gives or () if number >= 0}
    products: set[int] = {place for place, call in enumerate(calls) if call.kind == _FUSED}
    scores: set[int] = set()
    for call in calls:
        if call.kind != "softmax":
            continue
        place = _maker(call, makers)
        while place is not None and calls[place].kind in _MASKS:
            place = _maker(calls[place], makers)
        end = place
        while place is not None and calls[place].kind in _SCALES:
            place = _maker(calls[place], makers)
        if place is not None and end is not None and _multiplies_two_results(calls[place], makers):
            products.add(place)
            scores.add(end)
    return Attention(frozenset(products), frozenset(scores))


def _maker(call: PlainCall, makers: dict[int, int]) -> int | None:
    """Return the index of the call that produced the first argument of another that some call produced."""
    given = call.given[1:] if call.kind == "where" else call.given  # the first of which is the mask
    return next((makers[key] for each in given if (key := number_of(each)) in makers), None)


def _multiplies_two_results(call: PlainCall, makers: dict[int, int]) -> bool:
    begin = _PRODUCTS.get(call.kind)
    return begin is not None and all(number_of(each) in makers for each in call.given[begin : begin + 2])


def number_of(value: Any) -> Any:
    """Return the number of a tensor that a call has given; None for any other argument."""
    number = value.get("t") if isinstance(value, dict) else None
    return number if isinstance(number, int) else None


def with_normed_queries(call: PlainCall, given: list[Any]) -> list[Any]:
    """Return the arguments of a product with queries and keys of root mean square 1."""
    begin = _PRODUCTS.get(call.kind, 0)
    keys = -1 if call.kind == _FUSED else -2  # they are transposed
    normed = _normed(given[begin], -1), _normed(given[begin + 1], keys)
    return [*given[:begin], *normed, *given[begin + 2 :]]


def _normed(tensor: Tensor, along: int) -> Tensor:
    values = tensor.float()  # the squares of large ones exceed fp16
    return (values * torch.rsqrt(values.square().mean(along, keepdim=True) + 1e-6)).to(tensor.dtype)


def soft_capped(scores: Tensor) -> Tensor:
    """Return scores with a soft cap."""
    return CAP * torch.tanh(scores / CAP)
