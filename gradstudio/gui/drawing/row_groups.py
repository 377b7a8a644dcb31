"""The modules among the rows of a heatmap: where each begins, so that many rows are told apart."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple


class Group(NamedTuple):
    """Rows first to stop, which lie in the module `name`."""

    name: str
    first: int
    stop: int


def groups(names: tuple[str, ...], most: int) -> list[Group]:
    """Return the modules of dotted names in their order, at most `most` of them: told apart by as many parts of the
    name as that allows, by one at least. Empty where no name has a module."""
    deepest = max((name.count(".") for name in names), default=0)
    found: list[Group] = []
    for depth in range(deepest, 0, -1):
        heads = [".".join(name.split(".")[:-1][:depth]) or name for name in names]
        starts = [0, *(row + 1 for row, (one, other) in enumerate(pairwise(heads)) if one != other), len(names)]
        found = [Group(heads[first], first, stop) for first, stop in pairwise(starts)]
        if len(found) <= most:
            break
    return found
