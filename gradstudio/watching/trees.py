"""The tensors in what a model takes and gives: tuples, lists, mappings, data classes, nested in any way.

`engine/own_model/trees.py` walks the batches of a studio file: there plain values are allowed, mappings of other kinds
and data classes are faults, and the depth has a limit. What somebody's model takes has no such contract."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor


def tensors_of(tree: Any) -> list[Tensor]:
    """Return every tensor in there, in order."""
    if isinstance(tree, Tensor):
        return [tree]
    if isinstance(tree, (tuple, list)):
        branches: Any = tree
    elif isinstance(tree, dict | Mapping):  # to ask an abstract class takes time
        branches = tree.values()
    elif dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        branches = vars(tree).values() if hasattr(tree, "__dict__") else ()
    else:
        return []
    return [tensor for branch in branches for tensor in tensors_of(branch)]


def with_tensors(tree: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """Return the same tree with every tensor in it changed; TypeError where it has a mapping or class that cannot be
    made again."""
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
