"""Batches of a studio file: tensors, also in tuples, lists and dicts, which may hold plain values too."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from torch import Tensor

DEEPEST = 20
_PLAIN = (bool, int, float, str, type(None))


def mapped(tree: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """Return a tree with every tensor changed, in order."""
    if isinstance(tree, Tensor):
        return change(tree)
    if isinstance(tree, dict):
        return {name: mapped(branch, change) for name, branch in tree.items()}
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(mapped(branch, change) for branch in tree))
    if isinstance(tree, (tuple, list)):
        return type(tree)(mapped(branch, change) for branch in tree)
    return tree


def tensors(tree: Any) -> list[Tensor]:
    """Return every tensor of a tree, in order."""
    return [leaf for leaf in _leaves(tree) if isinstance(leaf, Tensor)]


def first_changed(tree: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """Return a tree whose first tensor is changed: what a model is shown."""
    changed = False

    def once(tensor: Tensor) -> Tensor:
        nonlocal changed
        first, changed = not changed, True
        return change(tensor) if first else tensor

    return mapped(tree, once)


def fault(tree: Any) -> str:
    """Return what of a tree is no part of a batch; "" where all is."""
    try:
        odd = next((leaf for leaf in _leaves(tree) if not isinstance(leaf, (Tensor, *_PLAIN))), None)
    except RecursionError:
        return f"nested more than {DEEPEST} deep"
    return "" if odd is None else type(odd).__name__


def _leaves(tree: Any, depth: int = 0) -> Iterator[Any]:
    if depth > DEEPEST:
        raise RecursionError
    if isinstance(tree, (dict, tuple, list)):
        for branch in tree.values() if isinstance(tree, dict) else tree:
            yield from _leaves(branch, depth + 1)
    else:
        yield tree
