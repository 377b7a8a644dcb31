"""The derivatives of the loss code that may receive or return non-finite values, in the backward passes of a step."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from torch import Tensor

from gradstudio.watching.births.kept_pass import KeptPass
from gradstudio.watching.births.loss_nodes import passes_before, steep_nodes
from gradstudio.watching.births.saved_tensors import hold, release

# Consecutive backward passes without such a derivative, after which only one of several is checked.
_TAME_PASSES, _LOOK_AGAIN = 32, 16


class Derivative(NamedTuple):
    """The inputs and outputs of a derivative of the loss code in a backward pass."""

    node: Any
    came: tuple[Tensor | None, ...]
    gave: tuple[Tensor | None, ...]


class LossDerivatives:
    """Records these derivatives. `several`: whether the input of one model may be computed from the output of
    another."""

    def __init__(self, mark: str, *, several: bool) -> None:
        self._mark, self._several = mark, several
        self.records: list[Derivative] = []
        self.nodes: list[Any] = []  # those whose derivatives are hooked
        self._backward_passes = self._latest_steep = 0  # of those that were checked

    def hook(self, roots: Sequence[Tensor], latest: Sequence[KeptPass]) -> None:
        """Hook the derivatives before a backward pass from these roots. `latest` is the pass before it, if there is
        one."""
        self._backward_passes += 1
        if self._backward_passes - self._latest_steep > _TAME_PASSES and self._backward_passes % _LOOK_AGAIN:
            return
        ends: list[Any] = [root.grad_fn for root in roots]
        for kept_pass in passes_before(roots, self._mark) if self._several else latest:
            ends += kept_pass.ends
        for node in steep_nodes(ends, self._mark):
            self._latest_steep = self._backward_passes
            # not the node itself, which refers to its hook
            node.register_hook(partial(_on_derivative, self.records, self.nodes, len(self.nodes)))
            self.nodes.append(node)

    def forget(self) -> None:
        """Forget the step."""
        release(each.node for each in self.records)
        self.nodes.clear()  # the hooks refer to these lists
        self.records.clear()
        self.nodes, self.records = [], []


def _on_derivative(
    records: list[Derivative], nodes: Sequence[Any], place: int, gave: tuple[Any, ...], came: tuple[Any, ...]
) -> None:
    """Record the inputs and outputs of a derivative, and what autograd has saved for it, which it releases
    afterwards."""
    if place < len(nodes):
        hold([nodes[place]])
        records.append(Derivative(nodes[place], came, gave))
