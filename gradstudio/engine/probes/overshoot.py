"""Overshoot: the loss of the gauge batch along the last update, and whether the update went past the minimum on its
way."""

from __future__ import annotations

import torch

from gradstudio.core.gauge_samples import AT, Overshoot, Unmeasurable, fits
from gradstudio.engine.probes.stand_in_model import Standin
from gradstudio.engine.tasks.task import Batch
from gradstudio.engine.trainer import Trainer


@torch.no_grad()
def measure(trainer: Trainer, standin: Standin, batch: Batch) -> Overshoot:
    """Measure the loss at the weights before the update plus AT times its change. It is computed in float64: the
    curvature of a small step is less than the rounding of a float32."""
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
