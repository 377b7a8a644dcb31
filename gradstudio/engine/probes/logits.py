"""Attention: the largest logit and the entropy of each attention, and log Z of the outputs, on the gauge batch."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gradstudio.core.combinations import CLASSES
from gradstudio.core.gauge_samples import Logits, Unmeasurable
from gradstudio.engine.gauges import attention
from gradstudio.engine.models.transformer import Attention
from gradstudio.engine.probes.stand_in_model import Standin
from gradstudio.engine.tasks.task import Batch
from gradstudio.engine.trainer import Trainer


@torch.no_grad()
def measure(trainer: Trainer, standin: Standin, batch: Batch) -> Logits:
    """Measure every attention of the model and the outputs while the copy answers one batch."""
    of_classes = trainer.experiment.studio_file is None and trainer.experiment.problem.task in CLASSES
    if not of_classes and not any(isinstance(part, Attention) for part in standin.model.modules()):
        raise Unmeasurable("The model has no attention, and its outputs are not those of classes.")
    outputs: list[Tensor] = []

    def after(_model: Any, _inputs: Any, output: Any) -> None:
        outputs.append(output)

    hook = standin.model.register_forward_hook(after)
    try:
        with attention.watch_attentions(standin.model) as figures:
            standin.loss(batch)
    finally:
        hook.remove()
    log_z = outputs[0].logsumexp(-1).mean().item() if of_classes else None
    largest, entropy = zip(*figures.values(), strict=True) if figures else ((), ())
    return Logits(tuple(figures), largest, entropy, log_z)
