"""Faults of a loss that show in autograd's graph right behind it: an activation that the loss has already, shapes that
broadcast, and whether the loss is a mean that nobody divided. A finite loss shows none of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

from torch import Tensor

from gradstudio.core.provenance import operation_of
from gradstudio.core.text import join_with_and
from gradstudio.watching.births.loss_values import LABELLED, MEAN, VIEWS, shape_of
from gradstudio.watching.hearing.leaves import nodes_before

MOST_NODES = 400  # that are looked at, nearest first
_SQUEEZES = ("sigmoid", "softmax")
_TAKES_SCORES = ("binary_cross_entropy_with_logits", "log_softmax")
_COMPARES = ("mse_loss", "smooth_l1_loss", "huber_loss", "sub", "rsub")
_VIEWS = VIEWS - {"expand"} | {"clone"}


class LossFault(NamedTuple):
    """A rule of core/diagnosis/heard_faults.py, what was seen, as a sentence, the operation, and what fills the
    remedy."""

    rule: str
    evidence: str
    operation: str
    known: str = ""


def faults_of(roots: Sequence[Tensor]) -> list[LossFault]:
    """Return what is wrong with these losses, each rule once."""
    found: dict[str, LossFault] = {}
    for node in _nearest(roots):
        for fault in (_twice(node), _spread(node)):
            if fault is not None:
                found.setdefault(fault.rule, fault)
    return list(found.values())


def is_undivided_mean(root: Tensor) -> bool:
    """Return whether a loss is a mean over a batch, with no factor on it."""
    node = root.grad_fn
    if node is None:
        return False
    return operation_of(node.name()) == "mean" or getattr(node, "_saved_reduction", None) == MEAN


def _nearest(roots: Sequence[Tensor]) -> Iterator[Any]:
    """Return the nodes behind these roots, the nearest first."""
    return islice(nodes_before((root.grad_fn for root in roots), nearest_first=True), MOST_NODES)


def _input(node: Any) -> Any:
    """Return the node that gave the first input, through other views of it; None without any."""
    node = node.next_functions[0][0] if node.next_functions else None
    while node is not None and operation_of(node.name()) in _VIEWS:
        node = node.next_functions[0][0]
    return node


def _twice(node: Any) -> LossFault | None:
    operation = operation_of(node.name())
    if operation not in (*_TAKES_SCORES, *LABELLED) or (given := _input(node)) is None:
        return None
    before = operation_of(given.name())
    if before not in _SQUEEZES:
        return None
    if operation in LABELLED:
        told = f"`nll_loss` is given the result of a {before}, not its logarithm"
        return LossFault("probabilities_for_logs", told, "nll_loss", before)
    loss = "cross_entropy" if operation == "log_softmax" else operation
    return LossFault("activation_twice", f"`{loss}` is given the result of a {before}", loss, before)


def _spread(node: Any) -> LossFault | None:
    """Return where (B, 1) and (B,) were compared, which gives (B, B), and one of them needs no gradient."""
    operation, inputs = operation_of(node.name()), [each for each, _ in node.next_functions]
    known = [each for each in inputs if each is not None]
    if operation not in _COMPARES or len(inputs) != 2 or len(known) != 1:
        return None
    (given,) = known
    if operation_of(given.name()) == "expand":  # which these losses put before themselves
        before, after = tuple(given._saved_self_sym_sizes), tuple(shape_of(given))
    else:
        before, after = tuple(shape_of(given)), tuple(shape_of(node))
    if len(after) != 2 or after[0] != after[1] or after[0] < 2 or before not in ((after[0], 1), (after[0],)):
        return None
    if operation_of(given.name()) == "unsqueeze":  # as where all pairs are meant
        return None
    other = (after[0],) if len(before) == 2 else (after[0], 1)
    told = f"`{operation}` compares an output of shape {before} with a target that makes it {after}, as {other} does"
    return LossFault("shapes_broadcast", told, operation)


def in_words(names: Sequence[str], most: int = 4) -> str:
    """Return names of tensors or modules, the first of many."""
    more = len(names) - most
    return join_with_and([*names[:most], *([f"{more:,} more"] if more > 0 else [])])
