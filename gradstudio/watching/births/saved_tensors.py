"""The tensors that autograd has saved for a node of its graph, and what they say about the operation."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gradstudio.core.provenance import operation_of
from gradstudio.engine.operation_watcher import has_memory

LABELLED = ("nll_loss", "nll_loss2d")  # losses that ignore some labels
MEAN = 1  # torch's numbers for the reductions of its losses
EXPONENT = "exponent"  # a number, among tensors
_SAVED = "gradstudio saved"  # of a node: the tensors that autograd has saved for it
_COUNTS = {torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64}


@dataclass
class _SavedInputs:
    """The tensors that autograd has saved for a node, while the births of several optimizers use them."""

    saved: dict[str, Tensor]
    holders: int = 0


def hold(nodes: Iterable[Any]) -> list[Any]:
    """Keep what autograd has saved for nodes beyond the backward pass, until `release`. Return them."""
    kept_nodes = list(nodes)
    for node in kept_nodes:
        if (held := node.metadata.get(_SAVED)) is None:
            held = node.metadata[_SAVED] = _SavedInputs(saved_of(node))
        held.holders += 1
    return kept_nodes


def release(nodes: Iterable[Any]) -> None:
    for node in nodes:
        if (held := node.metadata.get(_SAVED)) is not None:
            held.holders -= 1
            if not held.holders:
                del node.metadata[_SAVED]


_saved_names: dict[str, tuple[str, ...]] = {}  # by the name of a node


def saved_of(node: Any) -> dict[str, Tensor]:
    """Return the tensors that autograd has saved for a node; empty after the backward pass has freed them."""
    if (held := node.metadata.get(_SAVED)) is not None:
        return {name: tensor for name, tensor in held.saved.items() if has_memory(tensor)}
    kind = node.name()
    if kind not in _saved_names:
        _saved_names[kind] = tuple(name for name in dir(node) if name.startswith("_saved_"))
    saved: dict[str, Tensor] = {}
    for name in _saved_names[kind]:
        try:
            value = getattr(node, name)
        except (RuntimeError, AttributeError):  # freed, or changed in place since
            continue
        if name == f"_saved_{EXPONENT}" and isinstance(value, (int, float)):
            value = torch.tensor(float(value))
        if isinstance(value, Tensor) and name == "_saved_other" and value.dtype in _COUNTS:
            value = value.to(torch.get_default_dtype())  # such as the number of those that remain in a mean
        if isinstance(value, Tensor) and value.is_floating_point() and has_memory(value):
            saved[name.removeprefix("_saved_")] = value.detach()
    return saved


def target_of_divergence(node: Any) -> Tensor | None:
    """Return the target of `kl_div`, target * (log(target) - input), given its subtraction; None for any other node."""
    inputs = [each for each, _ in node.next_functions]
    if operation_of(node.name()) != "sub" or len(inputs) != 2 or inputs[0] is not None or inputs[1] is None:
        return None
    targets = list(saved_of(inputs[1]).values()) if operation_of(inputs[1].name()) == "mul" else []
    return targets[0] if len(targets) == 1 else None


def signed(saved: Any) -> Any:
    """Return a number saved by autograd as signed: it stores a negative one as a large one."""
    return saved - (1 << 64) if saved is not None and saved >= 1 << 63 else saved


def is_whole_power(node: Any) -> bool:
    """Return whether a node is a power of 1 or more, whose derivative is finite wherever the power is."""
    exponent = getattr(node, f"_saved_{EXPONENT}", None) if operation_of(node.name()) == "pow" else None
    return isinstance(exponent, (int, float)) and exponent >= 1
