"""The strategy for the numbers of a step of which only the loss is needed, as in a cell of a map. The step has the same
effect on the weights, to the last bit."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from gradstudio.core.history import LAYER_METRICS
from gradstudio.core.row import Row
from gradstudio.core.unknown import UNKNOWN
from gradstudio.engine.passes.flat import Flat
from gradstudio.engine.step.accumulation import mean_loss
from gradstudio.engine.step.clipping import CLIPPING, Rules
from gradstudio.engine.step.reading import StepFacts


class LossReading:
    """Reads the loss of a step, and how many entries of its gradient are non-finite. Everything else is UNKNOWN."""

    clipping: Rules = CLIPPING

    def __init__(self, flat: Flat) -> None:
        self._layers = np.full((len(LAYER_METRICS), len(flat.parameters)), UNKNOWN)

    def begin(self) -> None:
        self._losses: list[float] = []
        self._nonfinite: int | None = None

    def on_pass(self, figures: Tensor) -> None:
        self._losses.append(figures[0].item())

    def gradient(self, gradients: Tensor, scale: float = 1.0) -> None:
        if self._nonfinite is None:
            # a finite sum has no non-finite entry; a non-finite one may have overflowed
            finite = math.isfinite(gradients.sum().item())
            self._nonfinite = 0 if finite else int((~torch.isfinite(gradients)).sum())

    def on_clip(self, before: Tensor, after: Tensor, *, by_value: bool = False) -> None:
        pass

    def change(self, before: Tensor, after: Tensor, gradients: Tensor) -> None:
        pass

    def rows(self, made: StepFacts) -> list[Row]:
        loss = mean_loss(self._losses)
        return [
            Row(
                step=made.step, loss=loss, grad_norm=UNKNOWN, clipped_norm=UNKNOWN, clip_coef=UNKNOWN, lr=made.lr,
                scale=made.scale, skipped=made.loop.skipped, nonfinite=self._nonfinite or 0, update_ratio=UNKNOWN,
                weight_norm=UNKNOWN, accuracy=UNKNOWN, step_seconds=UNKNOWN, layers=self._layers, loop=made.loop,
                settings=made.settings,
            )
        ]  # fmt: skip
