"""The weights that a backward pass reaches, where nobody has named what is trained."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn


def reached(roots: Sequence[Tensor]) -> list[Tensor]:
    """Return the weights that gradients of these tensors reach, in the order of the forward pass: the parameters among
    the leaves, or else every leaf."""
    seen: set[Any] = set()
    found: list[Tensor] = []
    waiting: list[Any] = [root.grad_fn for root in roots if root.grad_fn is not None]
    while waiting:
        node = waiting.pop()
        if node in seen:
            continue
        seen.add(node)
        if isinstance(leaf := getattr(node, "variable", None), Tensor):
            found.append(leaf)
        waiting += [following for following, _ in node.next_functions if following is not None]
    found = [leaf for leaf in reversed(found) if leaf.is_floating_point()]
    return [leaf for leaf in found if isinstance(leaf, nn.Parameter)] or found
