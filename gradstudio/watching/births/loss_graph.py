"""Faults of a loss that are visible in autograd's graph directly behind it: an activation that the loss already
includes, shapes that broadcast, targets that do not fit, and a mean that was not divided. A finite loss
shows none of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from torch import Tensor

from gradstudio.core.provenance import operation_of
from gradstudio.core.text import join_with_and, number
from gradstudio.watching.births.loss_terms import OF_TARGETS, LossFault, input_of, more_faults, past_views, terms_of
from gradstudio.watching.births.loss_values import is_leaf, shape_of
from gradstudio.watching.births.saved_tensors import LABELLED, MEAN, saved_of, signed, target_of_divergence
from gradstudio.watching.hooks.leaves import nodes_before

MOST_NODES = 400  # number of nodes searched, nearest first
_SQUEEZES = ("sigmoid", "softmax")
_TAKES_SCORES = ("binary_cross_entropy_with_logits", "log_softmax", "logsumexp")  # the last in a `Categorical`
_COMPARES = (*OF_TARGETS, "sub", "rsub")
_OF_CHANCES = ("binary_cross_entropy_with_logits", "binary_cross_entropy")
_OF_LOGS = ("ctc_loss", *LABELLED)
_LOGS = "`F.log_softmax(scores, dim)` before this loss"
_NEAR = 1e-2  # by which the sum of a distribution may differ from 1


def faults_of(roots: Sequence[Tensor]) -> list[LossFault]:
    """Return what is wrong with these losses, each rule once."""
    faults: dict[str, LossFault] = {}
    added = {term.node for term in terms_of(roots)}
    is_below_0 = len(roots) == 1 and roots[0].numel() == 1 and roots[0].item() < 0
    for node in _nearest(roots):
        for fault in (
            _twice(node),
            _above_0(node),
            _across(node),
            _spread(node) if operation_of(node.name()) != "mul" or node in added else None,
            _beyond(node),
            *more_faults(node),
            _saturating(node),
            _blank(node),
            _alike(node),
            _divergence(node) if is_below_0 else None,
        ):
            if fault is not None:
                faults.setdefault(fault.rule, fault)
    return list(faults.values())


def is_undivided_mean(root: Tensor) -> bool:
    """Return whether a loss is a mean over a batch, without a factor."""
    node: Any = root.grad_fn
    if node is None:
        return False
    operation = operation_of(node.name())
    if operation == "div" and (of := node.next_functions[0][0]) is not None and operation_of(of.name()) == "sum":
        by, sizes = saved_of(node).get("other"), of._saved_self_sym_sizes
        return by is not None and by.numel() == 1 and len(sizes) > 0 and float(by) == sizes[0]
    return operation == "mean" or getattr(node, "_saved_reduction", None) == MEAN


def _nearest(roots: Sequence[Tensor]) -> Iterator[Any]:
    """Return the nodes behind these roots, the nearest first."""
    return islice(nodes_before((root.grad_fn for root in roots), nearest_first=True), MOST_NODES)


def _twice(node: Any) -> LossFault | None:
    operation = operation_of(node.name())
    if operation not in (*_TAKES_SCORES, *LABELLED) or (given := input_of(node)) is None:
        return None
    before = operation_of(given.name())
    if before not in _SQUEEZES or (operation == "logsumexp" and before != "softmax"):
        return None
    if operation in LABELLED:
        told = f"`nll_loss` is given the result of a {before}, not its logarithm"
        return LossFault("probabilities_for_logs", told, "nll_loss", f"{_LOGS}, or `F.cross_entropy(scores, target)`")
    loss = {"log_softmax": "cross_entropy", "logsumexp": "Categorical(logits=...)"}.get(operation, operation)
    told = f"`{loss}` is given the result of a {before}"
    return LossFault("activation_twice", told, "Categorical" if operation == "logsumexp" else loss, before)


def _across(node: Any) -> LossFault | None:
    """Return the fault of a loss whose classes are in another dimension than that of the `log_softmax` before it."""
    before = node.next_functions[0][0] if operation_of(node.name()) in LABELLED else None
    if before is None or operation_of(before.name()) != "log_softmax":
        return None
    dimensions = len(shape_of(before))
    given, classes = signed(before._saved_dim) % max(dimensions, 1), int(dimensions > 1)
    if given == classes:
        return None
    told = f"`nll_loss` takes its classes from dimension {classes}, and `log_softmax` runs over dimension {given}"
    return LossFault("probabilities_for_logs", told, "nll_loss", f"`F.log_softmax(scores, dim={classes})` before it")


def _above_0(node: Any) -> LossFault | None:
    """Return the fault of a loss that takes logarithms of probabilities and receives numbers above 0."""
    operation, saved = operation_of(node.name()), saved_of(node)
    given = saved.get("log_probs" if operation == "ctc_loss" else "self") if operation in _OF_LOGS else None
    if given is None or not given.numel() or not (most := float(given.max())) > _NEAR:
        return None
    told = f"`{operation}` is given numbers up to {number(most)}, and no logarithm of a probability is above 0"
    return LossFault("probabilities_for_logs", told, operation, _LOGS)


def _blank(node: Any) -> LossFault | None:
    """Return the fault of a CTC loss whose labels contain its blank."""
    if operation_of(node.name()) != "ctc_loss":
        return None
    labels, lengths, blank = node._saved_targets, list(node._saved_target_lengths), node._saved_blank
    rows = [row[:length] for row, length in zip(labels, lengths, strict=False)] if labels.dim() == 2 else [labels]
    count = sum(int((row == blank).sum()) for row in rows)
    if not count:
        return None
    classes = node._saved_log_probs.shape[-1]
    most = max(int(row.max()) for row in rows if len(row))
    told = f"{count:,} of {sum(lengths):,} labels that `ctc_loss` is given are {blank}, which is its blank"
    mend = (
        f"blank={classes - 1}` in the loss, which no label is"
        if most < classes - 1
        else (f"labels + 1` and {classes + 1} outputs, so that 0 is the blank alone")
    )
    return LossFault("label_is_blank", told, "ctc_loss", mend)


def _alike(node: Any) -> LossFault | None:
    """Return the fault of a contrastive loss, over the products of all queries and keys of a batch, with one label
    for all queries."""
    labels = node._saved_target if operation_of(node.name()) in LABELLED else None
    if labels is None or labels.numel() < 2 or bool((labels != labels.flatten()[0]).any()):
        return None
    scores = input_of(input_of(node))
    while scores is not None and operation_of(scores.name()) in ("div", "mul"):
        scores = input_of(scores)
    if scores is None or operation_of(scores.name()) not in ("mm", "bmm"):
        return None
    makers = [past_views(maker) for maker, _ in scores.next_functions]
    if any(maker is None or is_leaf(maker) for maker in makers) or tuple(shape_of(scores)[-2:]) != (len(labels),) * 2:
        return None
    told = f"`cross_entropy` compares {len(labels)} queries with {len(labels)} keys, and each label is {int(labels[0])}"
    return LossFault("labels_alike", told, "cross_entropy")


def _divergence(node: Any) -> LossFault | None:
    """Return the fault of `kl_div` with probabilities as input: target * (log(target) - input), which is never below 0
    for the logarithm of a distribution."""
    if (target := target_of_divergence(node)) is None:
        return None
    given = next((each for each, _ in node.next_functions[1][0].next_functions if each is not None), None)
    if given is None or operation_of(given.name()) != "softmax" or target.shape != shape_of(given):
        return None
    whole = target.sum(signed(given._saved_dim))
    if bool((target < 0).any()) or float((whole - 1).abs().max()) > _NEAR:
        return None
    told = "`kl_div` is given the result of a softmax, not its logarithm, and the loss is below 0"
    return LossFault("probabilities_for_logs", told, "kl_div", _LOGS)


def _saturating(node: Any) -> LossFault | None:
    """Return the fault of minimizing log(1 - D) with a sigmoid D: the mean of -softplus, or of log(1 - sigmoid)."""
    operation, of = operation_of(node.name()), input_of(node)
    if operation == "neg" and of is not None and operation_of(of.name()) == "mean":
        of = input_of(of)
        if of is not None and operation_of(of.name()) == "softplus":
            told = "The mean of `-softplus(score)`, which is log(1 - D), is minimized"
            return LossFault("saturating_loss", told, "softplus", "F.softplus(-score).mean()")
    if operation == "mean" and of is not None and operation_of(of.name()) == "log":
        rest = input_of(of)
        of = input_of(rest) if rest is not None and operation_of(rest.name()) == "rsub" else None
        if of is not None and operation_of(of.name()) == "sigmoid":
            told = "The mean of `log(1 - sigmoid(score))` is minimized"
            return LossFault("saturating_loss", told, "log", "F.softplus(-score).mean()")
    return None


def _beyond(node: Any) -> LossFault | None:
    """Return the fault of a loss that needs probabilities as targets and receives other values."""
    operation = operation_of(node.name())
    target = saved_of(node).get("target") if operation in _OF_CHANCES else None
    if target is None or not target.numel():
        return None
    least, most = float(target.min()), float(target.max())
    if least >= 0 and most <= 1:
        return None
    told = f"`{operation}` is given targets from {number(least)} to {number(most)}"
    if least == -1 and most == 1 and bool((target == 0).any()) and bool((target.frac() == 0).all()):
        mend = "`reduction='none'`, and the mean of `loss[target >= 0]` alone, if a target of -1 stands for none"
        return LossFault("targets_beyond", told, operation, mend)
    mend = f"target / {most:g}" if least >= 0 else f"(target - {least:g}) / {most - least:g}".replace("- -", "+ ")
    mend = f"`{mend}` as the target, so that each lies in 0 to 1"
    return LossFault("targets_beyond", told, operation, mend)


def _spread(node: Any) -> LossFault | None:
    """Return the fault of comparing an output of (B, 1, ...) with a target of (B, ...), or the other way round, so that
    each is broadcast to the other and every output is compared with every target."""
    operation, inputs = operation_of(node.name()), [each for each, _ in node.next_functions]
    known = [each for each in inputs if each is not None]
    if operation not in (*_COMPARES, "mul") or len(inputs) != 2 or len(known) != 1:
        return None
    (given,) = known
    if operation_of(given.name()) == "expand":  # which these losses apply first
        before, after = tuple(given._saved_self_sym_sizes), tuple(shape_of(given))
    else:
        before, after = tuple(shape_of(given)), tuple(shape_of(node))
    if len(after) < 2 or after[0] != after[1] or after[0] < 2:
        return None
    other = {(after[0], 1, *after[2:]): after[1:], after[1:]: (after[0], 1, *after[2:])}.get(before)
    if other is None or operation_of(given.name()) == "unsqueeze":  # for example if all pairs are intended
        return None
    if operation in OF_TARGETS and (target := saved_of(node).get("target")) is not None:
        repeated = [not step for step in target.stride()[:2]]
        if repeated != [len(before) == len(after), len(before) < len(after)]:
            return None  # the target has this shape by itself
    does, whom = ("multiplies", "factor") if operation == "mul" else ("compares", "target")
    text = f"`{operation}` {does} an output of shape {before} with a {whom} that makes it {after}, as {other} does"
    mend = ("squeeze", "unsqueeze") if len(before) == len(after) else ("unsqueeze", "squeeze")
    return LossFault("shapes_broadcast", text, operation, f"output.{mend[0]}(1)`, or `{whom}.{mend[1]}(1)")


def in_words(names: Sequence[str], most: int = 4) -> str:
    """Return the names of tensors or modules as text, only the first ones if there are many."""
    more = len(names) - most
    return join_with_and([*names[:most], *([f"{more:,} more"] if more > 0 else [])])
