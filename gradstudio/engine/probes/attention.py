"""Attention: the largest logit and the entropy of each attention, and log Z of the outputs, on the gauge batch."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from gradstudio.core.combinations import CLASSES
from gradstudio.core.gauge_samples import Logits, Unmeasurable
from gradstudio.engine.models.transformer import Attention
from gradstudio.engine.probes.stand_in_model import Standin
from gradstudio.engine.tasks.task import Batch
from gradstudio.engine.trainer import Trainer


@torch.no_grad()
def measure(trainer: Trainer, standin: Standin, batch: Batch) -> Logits:
    """Measure every attention of the model and the outputs while the copy answers one batch."""
    of_classes = trainer.experiment.studio_file is None and trainer.experiment.problem.task in CLASSES
    attentions = [(name, part) for name, part in standin.model.named_modules() if isinstance(part, Attention)]
    if not attentions and not of_classes:
        raise Unmeasurable("The model has no attention, and its outputs are not those of classes.")
    found: dict[str, tuple[float, float]] = {}
    outputs: list[Tensor] = []

    def looking(name: str, part: Attention) -> Callable[[Any, Any], None]:
        def before(_: Any, inputs: Any) -> None:
            query, key, _ = part.heads_of(inputs[0])
            found[name] = logits_and_entropy(query, key, causal=part.causal)

        return before

    def after(_model: Any, _inputs: Any, output: Any) -> None:
        outputs.append(output)

    hooks = [part.register_forward_pre_hook(looking(name, part)) for name, part in attentions]
    hooks.append(standin.model.register_forward_hook(after))
    try:
        standin.loss(batch)
    finally:
        for hook in hooks:
            hook.remove()
    log_z = outputs[0].logsumexp(-1).mean().item() if of_classes else None
    largest, entropy = zip(*found.values(), strict=True) if found else ((), ())
    return Logits(tuple(found), largest, entropy, log_z)


def logits_and_entropy(query: Tensor, key: Tensor, *, causal: bool) -> tuple[float, float]:
    """Return the largest absolute logit, query . key / sqrt(width of a head), and the mean entropy of the softmax over
    the keys, as a share of the logarithm of their number (1: all alike, 0: one alone; NaN if there is one key only),
    of (batch, heads, time steps, width of a head). Zhai 2023, section 3; Dehghani 2023, section 2."""
    logits = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])
    steps = logits.shape[-1]
    tensor = torch.ones(steps, steps, dtype=torch.bool, device=logits.device)
    tensor = tensor.tril() if causal else tensor
    largest = logits.abs().masked_fill(~tensor, 0.0).max().item()
    log_shares = logits.masked_fill(~tensor, -math.inf).log_softmax(-1)
    shares = log_shares.exp()
    entropy = -(shares * log_shares.masked_fill(~tensor, 0.0)).sum(-1)
    several = tensor.sum(-1) > 1
    most = tensor.sum(-1)[several].to(entropy).log()
    return largest, (entropy[..., several] / most).mean().item()
