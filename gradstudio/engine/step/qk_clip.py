"""QK-clip: the weights of queries and keys shrink where an attention logit is too large (Kimi K2 2025, arXiv
2507.20534, algorithm 1)."""

from __future__ import annotations

from typing import cast

import torch
from torch import nn

from gradstudio.engine.models.transformer import Attention, Block, Transformer


def begin(model: nn.Module, limit: float) -> bool:
    """Let each attention note the largest logits of a new step, if there is a `limit` above 0. Return whether this
    changes what a pass computes, so that recorded passes are out of date. A recorded pass goes on writing to the same
    tensor, which is therefore reset and not replaced."""
    parts = _attentions(model)
    noted = any(part.largest is not None for part in parts)
    for part in parts:
        if limit == 0:
            part.largest = None
        elif part.largest is None:
            part.largest = torch.zeros(part.heads, device=part.query.weight.device)
        else:
            part.largest.zero_()
    return bool(parts) and noted != (limit > 0)


@torch.no_grad()
def shrink(model: nn.Module, limit: float) -> None:
    """Multiply the queries and the keys of each head by sqrt(limit / s), where its largest logit s was above the limit.
    A logit is a product of both, so it would have been at the limit. The host does not wait for the device."""
    for part in _attentions(model):
        if part.largest is None:
            continue
        factors = torch.where(part.largest > limit, limit / part.largest, 1.0).sqrt()
        for linear in (part.query, part.key):
            linear.weight.unflatten(0, (part.heads, -1)).mul_(factors[:, None, None])
            linear.bias.unflatten(0, (part.heads, -1)).mul_(factors[:, None])


def _attentions(model: nn.Module) -> list[Attention]:
    if not isinstance(model, Transformer):
        return []
    return [block.attention for block in cast("list[Block]", model.blocks)]
