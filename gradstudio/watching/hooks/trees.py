"""The tensors in the inputs and outputs of a model: tuples, lists, mappings, data classes, nested in any way.

`engine/own_model/trees.py` handles the batches of a studio file: there plain values are allowed, other mappings and
data classes are faults, and the depth is limited. The inputs of a user's model have no such contract."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from torch import Tensor


def tensors_of(tree: Any) -> list[Tensor]:
    """Return every tensor in there, in order. A cycle, such as a node that refers to its parent, is visited once."""
    tensors: list[Tensor] = []
    ways, seen = [iter((tree,))], dict[int, Any]()  # kept alive, as an id is only unique while its object exists
    while ways:
        for each in ways[-1]:
            if isinstance(each, Tensor):
                tensors.append(each)
            elif (branches := _branches(each)) is not None and id(each) not in seen:
                seen[id(each)] = each
                ways.append(iter(branches))
                break
        else:
            ways.pop()
    return tensors


def _branches(tree: Any) -> Iterable[Any] | None:
    """Return the contents of a tree; None for anything that is not traversed."""
    if isinstance(tree, (tuple, list)):
        return tree
    if isinstance(tree, dict | Mapping):  # checking against an abstract class takes time
        return tree.values()
    if dataclasses.is_dataclass(tree) and not isinstance(tree, type) and hasattr(tree, "__dict__"):
        return vars(tree).values()
    return None


def with_tensors(tree: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """Return the same tree with every tensor in it changed; TypeError if it contains a mapping or class that cannot be
    rebuilt."""
    if isinstance(tree, Tensor):
        return change(tree)
    if not tensors_of(tree):
        return tree
    if type(tree) in (tuple, list):
        return type(tree)(with_tensors(branch, change) for branch in tree)
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(with_tensors(branch, change) for branch in tree))
    if type(tree) is dict:
        return {name: with_tensors(branch, change) for name, branch in tree.items()}
    raise TypeError(f"{type(tree).__name__} holds tensors in a way that is not known")
