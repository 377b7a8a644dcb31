"""Batches of a studio file: tensors, also in tuples, lists and dicts, which may contain plain values too. A user's own
subclass of dict or list is not accepted: it may have further state, and cannot be rebuilt with other tensors in it."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

DEEPEST = 20
_PLAIN = (bool, int, float, str, type(None))
_DICTS, _LISTS = (dict, OrderedDict, defaultdict), (list, tuple, torch.Size)


def map_tensors(tree: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """Return a tree with every tensor changed, in order."""
    if isinstance(tree, Tensor):
        return change(tree)
    if isinstance(tree, dict):
        kind = dict if isinstance(tree, defaultdict) else type(tree)
        return kind((name, map_tensors(branch, change)) for name, branch in tree.items())
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(map_tensors(branch, change) for branch in tree))
    if isinstance(tree, (tuple, list)):
        return type(tree)(map_tensors(branch, change) for branch in tree)
    return tree


def tensors(tree: Any) -> list[Tensor]:
    """Return every tensor of a tree, in order."""
    return [leaf for leaf in _leaves(tree) if isinstance(leaf, Tensor)]


def first_changed(tree: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """Return a tree whose first tensor is changed: the model's input."""
    changed = False

    def once(tensor: Tensor) -> Tensor:
        nonlocal changed
        first, changed = not changed, True
        return change(tensor) if first else tensor

    return map_tensors(tree, once)


def fault(tree: Any) -> str:
    """Return what in a tree is not allowed in a batch; "" if everything is."""
    try:
        for leaf in _leaves(tree):
            if isinstance(leaf, Tensor):
                if leaf.layout != torch.strided or leaf.is_nested:
                    return "a sparse or nested tensor"
            elif not isinstance(leaf, _PLAIN):
                return type(leaf).__name__
    except RecursionError:
        return f"nested more than {DEEPEST} deep"
    return ""


def _leaves(tree: Any, depth: int = 0) -> Iterator[Any]:
    if depth > DEEPEST:
        raise RecursionError
    if type(tree) in _DICTS:
        for branch in tree.values():
            yield from _leaves(branch, depth + 1)
    elif type(tree) in _LISTS or (isinstance(tree, tuple) and _has_fields(type(tree))):
        for branch in tree:
            yield from _leaves(branch, depth + 1)
    else:
        yield tree


def _has_fields(kind: type) -> bool:
    """Return whether it is a named tuple, or torch's own counterpart of one."""
    return hasattr(kind, "_fields") or hasattr(kind, "n_sequence_fields")
