"""Attention during training: how large its logits are, and how sharply it chooses.

A look takes one more forward pass of a few examples, without gradient, that leaves no trace. It is taken every
history.LOOK_EVERY steps, for less than a hundredth of their time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from gradstudio.engine.models.transformer import Attention

EXAMPLES = 2  # examples of a batch used by a look; each has all its time steps and heads

Figures = dict[str, tuple[float, float]]  # by name of an attention: its largest logit, its entropy


@contextmanager
def watch_attentions(model: nn.Module) -> Iterator[Figures]:
    """Measure every attention of the forward passes in this context."""
    figures: Figures = {}

    def before(name: str) -> Callable[[Attention, Any], None]:
        def measure(part: Attention, inputs: Any) -> None:
            query, key, _ = part.heads_of(inputs[0])
            figures[name] = logits_and_entropy(query, key, causal=part.causal)

        return measure

    hooks = [
        part.register_forward_pre_hook(before(name))
        for name, part in model.named_modules()
        if isinstance(part, Attention)
    ]
    try:
        yield figures
    finally:
        for hook in hooks:
            hook.remove()


@torch.no_grad()
def look(model: nn.Module, inputs: Tensor) -> tuple[float, float]:
    """Return the largest logit of all attentions and the smallest of their entropies, for the first examples of a
    batch. A NaN in one makes the result NaN."""
    with watch_attentions(model) as figures:
        model(inputs[:EXAMPLES])
    logits, entropies = (torch.tensor(each) for each in zip(*figures.values(), strict=True))
    return logits.max().item(), entropies.min().item()


def logits_and_entropy(query: Tensor, key: Tensor, *, causal: bool) -> tuple[float, float]:
    """Return the largest absolute logit, query . key / sqrt(width of a head), and the mean entropy of the softmax over
    the keys, as a share of the logarithm of their number (1: all equal, 0: a single one; NaN if there is only one key),
    for (batch, heads, time steps, width of a head). Zhai 2023, section 3; Dehghani 2023, section 2."""
    logits = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])
    steps = logits.shape[-1]
    seen = torch.ones(steps, steps, dtype=torch.bool, device=logits.device)
    seen = seen.tril() if causal else seen
    largest = logits.abs().masked_fill(~seen, 0.0).max().item()
    log_shares = logits.masked_fill(~seen, -math.inf).log_softmax(-1)
    shares = log_shares.exp()
    entropy = -(shares * log_shares.masked_fill(~seen, 0.0)).sum(-1)
    several = seen.sum(-1) > 1
    most = seen.sum(-1)[several].to(entropy).log()
    return largest, (entropy[..., several] / most).mean().item()
