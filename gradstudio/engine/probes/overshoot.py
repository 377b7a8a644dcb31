"""Whether the last update went past the minimum that lay in its way: the loss of the probe batch along it."""

from __future__ import annotations

import torch

from gradstudio.core.probes import AT, Overshoot, Unmeasurable, fits
from gradstudio.engine.probes.standin import Standin
from gradstudio.engine.tasks.task import Batch
from gradstudio.engine.trainer import Trainer


@torch.no_grad()
def measure(trainer: Trainer, standin: Standin, batch: Batch) -> Overshoot:
    """Losses at the weights before the update plus AT times what it added. In float64: the curvature of a small step is less than the
    rounding of a float32."""
    if not trainer.weights_are_finite():
        raise Unmeasurable("The weights are not finite here.")
    if not trainer.moved:
        raise Unmeasurable("There is no update to look along here: make a step.")
    before = trainer.before.double()
    added = trainer.flat.weights.data - before
    if not added.any():
        raise Unmeasurable("The last update left the weights as they were.")
    losses = []
    for at in AT:
        standin.follow(before + at * added)
        losses.append(standin.loss(batch).item())
    return Overshoot(tuple(losses), fits(tuple(losses)))
