"""Cases in which every value of each table meets every value of each other one, where all combinations find no more."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from typing import Any


def pairs(first: Iterable[Any], second: Iterable[Any], third: Iterable[Any]) -> list[tuple[Any, Any, Any]]:
    """Combine each of `first` with each of `second`, and with one of `third`, so that all pairs of values occur."""
    first, second, third = list(first), list(second), list(third)
    found = [
        (one, other, third[(row + column) % len(third)])
        for (row, one), (column, other) in product(enumerate(first), enumerate(second))
    ]
    assert {(one, last) for one, _, last in found} == set(product(first, third))
    assert {(other, last) for _, other, last in found} == set(product(second, third))
    return found
