"""Outputs that become alike for all examples, under a loss that compares outputs with outputs and with nothing else:
the same output for everything is its best answer. Checked now and then; read at the end of a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from gradstudio.core.provenance import ProvenanceUnknown, operation_of
from gradstudio.core.text import number
from gradstudio.watching.births.loss_values import nodes_behind, passes_of
from gradstudio.watching.births.operation_lines import line_of
from gradstudio.watching.births.saved_tensors import LABELLED
from gradstudio.watching.script.model_layers import ModelLike

_ALIKE, _APART = 0.1, 0.3  # spread of outputs that have collapsed, and of those that have not
_LOOKS = 3  # consecutive looks that have to agree
_WITH_TARGETS = (*LABELLED, "binary_cross_entropy_with_logits", "binary_cross_entropy", "ctc_loss", "kl_div")


class CollapseChecks:
    """Checks the outputs of one observer. `tell` is called with the rule, the evidence and the first step."""

    def __init__(self, tell: Callable[..., None]) -> None:
        self._tell = tell
        self._seen: list[tuple[int, Tensor]] = []  # step and largest spread: the first look and the latest ones
        self._source = ""

    def look(self, roots: Sequence[Tensor], mark: str, model: ModelLike, step: int) -> None:
        """Check a backward pass that begins. `mark` is that of the outputs of the model in autograd's graph."""
        ends = [root.grad_fn for root in roots]
        try:
            given = [tensor for each in passes_of(ends, mark) for tensor, _ in each.given]
            if len(given) < 2 or any(tensor.dim() != 2 or min(tensor.shape) < 2 for tensor in given):
                return
            nodes = [node for node in nodes_behind(ends, mark) if mark not in node.metadata]
        except ProvenanceUnknown:  # the loss code is too long
            return
        if any(map(_takes_a_target, nodes)):
            return
        if not self._source:
            compares = {operation_of(node.name()) for node in nodes} & {"mse_loss", "smooth_l1_loss"}
            self._source = line_of(tuple(compares) or ("cosine_similarity",), model)
        spread = torch.stack([_spread(tensor) for tensor in given]).max()
        self._seen = [*self._seen[:1], *self._seen[1:][1 - _LOOKS :], (step, spread)]

    def end(self) -> None:
        """Judge the observations of a run."""
        if len(self._seen) <= _LOOKS:
            return
        first, *latest = (float(spread) for _, spread in self._seen)
        if first > _APART and max(latest) < _ALIKE:
            text = (
                f"The outputs of all examples point the same way: their spread was {number(first)} at step "
                f"{self._seen[0][0]:,} and is {number(latest[-1])} at step {self._seen[-1][0]:,} (1: in all "
                f"directions, 0: in one). The loss compares outputs with each other, and trains both"
            )
            self._tell("outputs_alike", f"{text}{', at ' * bool(self._source)}{self._source}.", self._seen[1][0])


def _spread(outputs: Tensor) -> Tensor:
    """Return the deviation of the entries of normalized outputs, times the root of their number: 1 for random
    directions."""
    rows = torch.nn.functional.normalize(outputs.float(), dim=1)
    return rows.std(0).mean() * rows.shape[1] ** 0.5


def _takes_a_target(node: Any) -> bool:
    """Return whether an operation of a loss has labels, or an operand without a gradient that is no single number."""
    if operation_of(node.name()) in _WITH_TARGETS:
        return True
    if len(node.next_functions) < 2 or all(before is not None for before, _ in node.next_functions):
        return False
    saved = [getattr(node, f"_saved_{name}", None) for name in ("self", "other", "target", "mat2")]
    others = [each for each in saved if isinstance(each, Tensor)]
    return operation_of(node.name()) in ("sub", "rsub") or any(each.numel() > 1 for each in others)
