"""The modules among the rows of a heatmap: where each begins, so that many rows can be told apart."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple


class Group(NamedTuple):
    """Rows first to stop, which belong to the module `name`."""

    name: str
    first: int
    stop: int


def groups(names: tuple[str, ...], most: int) -> list[Group]:
    """Return the modules of dotted names in their order, at most `most` of them: distinguished by as many parts of the
    name as that allows, at least one. Empty if no name has a module."""
    result: list[Group] = []
    for depth in range(_deepest(names), 0, -1):
        result = _at_depth(names, depth)
        if len(result) <= most:
            break
    return result


def finer(names: tuple[str, ...], than: int) -> list[Group]:
    """Return the modules distinguished by as few parts of the name as give more than `than` of them; empty if none
    do."""
    levels = (_at_depth(names, depth) for depth in range(1, _deepest(names) + 1))
    return next((groups for groups in levels if len(groups) > than), [])


def _deepest(names: tuple[str, ...]) -> int:
    return max((name.count(".") for name in names), default=0)


def _at_depth(names: tuple[str, ...], depth: int) -> list[Group]:
    """Return the modules distinguished by `depth` parts of the name."""
    heads = [".".join(name.split(".")[:-1][:depth]) or name for name in names]
    starts = [0, *(row + 1 for row, (one, other) in enumerate(pairwise(heads)) if one != other), len(names)]
    return [Group(heads[first], first, stop) for first, stop in pairwise(starts)]
