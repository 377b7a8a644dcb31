"""The reach of a backward pass: the nodes of autograd's graph, and the weights that get a gradient, if no trained
parameters were named."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from torch import Tensor, nn


def nodes_before(ends: Iterable[Any], *, nearest_first: bool = False) -> Iterator[Any]:
    """Yield these nodes of autograd's graph and all nodes that they were computed from, each once; None is ignored."""
    seen: set[Any] = set()
    waiting = deque(end for end in ends if end is not None)
    following = waiting.popleft if nearest_first else waiting.pop
    while waiting:
        node = following()
        if node in seen:
            continue
        seen.add(node)
        yield node
        waiting += [before for before, _ in node.next_functions if before is not None]


def leaves_before(roots: Iterable[Tensor]) -> list[Tensor]:
    """Return the tensors that receive the gradients of a backward pass from these roots."""
    variables = [getattr(node, "variable", None) for node in nodes_before(root.grad_fn for root in roots)]
    return [leaf for leaf in variables if leaf is not None]


def reached_weights(roots: Sequence[Tensor]) -> list[Tensor]:
    """Return the weights that gradients of these tensors reach, in the order of the forward pass: the parameters among
    the leaves, or else every leaf."""
    leaves = [leaf for leaf in reversed(leaves_before(roots)) if leaf.is_floating_point()]
    return [leaf for leaf in leaves if isinstance(leaf, nn.Parameter)] or leaves
