"""What is kept of the loss code of each step while nothing is known to be wrong: its passes, its nodes, and those whose
derivative may be non-finite."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from gradstudio.core.provenance import ProvenanceUnknown, operation_of
from gradstudio.engine.operation_watcher import values_of
from gradstudio.watching.births.kept_pass import KeptPass
from gradstudio.watching.births.loss_values import MOST_HELD, VIEWS, is_leaf, nodes_behind, passes_of
from gradstudio.watching.births.saved_tensors import hold, is_whole_power
from gradstudio.watching.script.living_objects import living_objects

# Operations whose derivative is finite wherever they are. That of any other may be infinite or NaN although the result
# is finite, and nothing is known about a custom Function of the script.
_TAME = VIEWS | frozenset((
    "add", "sub", "rsub", "neg", "mean", "sum", "abs", "sgn", "where", "clamp", "clamp_min", "clamp_max", "max", "min",
    "maximum", "minimum", "amax", "amin", "sort", "topk", "mm", "bmm", "mv", "dot", "addmm", "baddbmm", "convolution",
    "relu", "leaky_relu", "elu", "gelu", "silu", "sigmoid", "tanh", "softplus", "log_sigmoid", "softmax", "log_softmax",
    "logsumexp", "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "nll_loss", "nll_loss2d",
    "binary_cross_entropy_with_logits", "sin", "cos", "cumsum", "native_dropout", "embedding", "index", "index_select",
    "gather", "select", "slice", "split", "split_with_sizes", "unbind", "stack", "cat", "repeat", "diagonal", "flip",
    "roll", "masked_fill", "masked_select", "scatter", "clone", "alias", "copy_slices", "unfold", "tril", "triu",
    "native_layer_norm", "native_batch_norm", "upsample_nearest2d", "upsample_bilinear2d",
))  # fmt: skip


def passes_before(roots: Sequence[Tensor], mark: str) -> list[KeptPass]:
    """Return the passes of the model from which a loss was computed, in order."""
    return passes_of([root.grad_fn for root in roots], mark)


def broken_losses(kept_pass: KeptPass, mark: str) -> list[Tensor]:
    """Return the non-finite numbers that still exist and were computed from a pass of the model, in order."""
    losses: list[tuple[int, Tensor]] = []
    for tensor in living_objects(Tensor):
        if _is_computed_number(tensor) and _is_broken(tensor) and comes_from(tensor, kept_pass, mark):
            losses.append((len(nodes_behind([tensor.grad_fn], mark)), tensor))
    return [tensor for _, tensor in sorted(losses, key=lambda each: each[0])]


def _is_computed_number(tensor: Tensor) -> bool:
    try:
        return tensor.grad_fn is not None and tensor.numel() == 1
    except RuntimeError:  # it is being released: only the Python object is left
        return False


def _is_broken(tensor: Tensor) -> bool:
    try:
        return not values_of(tensor).finite
    except RuntimeError:  # it has no numbers, like those with which torch's compiler traces
        return False


def comes_from(tensor: Tensor, kept_pass: KeptPass, mark: str) -> bool:
    """Return whether a tensor was computed from a pass of the model."""
    return any(node.metadata.get(mark) is kept_pass for node in nodes_behind([tensor.grad_fn], mark))


def keep_nodes(roots: Sequence[Tensor], mark: str) -> list[Any] | None:
    """Keep what autograd has saved for the loss code beyond the backward pass, until `release`. Return its nodes; None
    if it is long."""
    try:
        nodes = nodes_behind([root.grad_fn for root in roots], mark, MOST_HELD)
    except ProvenanceUnknown:
        return None
    return hold(node for node in nodes if mark not in node.metadata and not is_leaf(node))


def steep_nodes(roots: Sequence[Any], mark: str) -> list[Any]:
    """Return the operations of the loss code whose derivative may be non-finite; none if it is long."""
    try:
        return [node for node in nodes_behind(roots, mark, MOST_HELD) if is_steep(node, mark)]
    except ProvenanceUnknown:
        return []


def is_steep(node: Any, mark: str) -> bool:
    operation = operation_of(node.name())
    return operation not in _TAME and mark not in node.metadata and not is_leaf(node) and not is_whole_power(node)
