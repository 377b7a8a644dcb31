"""Points from eight clusters on a ring, for a generator to imitate."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from gradstudio.core.sections.task_knobs import Problem
from gradstudio.engine.shape import Shape
from gradstudio.engine.tasks.task import Batch, Task

MODES, RADIUS, RING_DEVIATION = 8, 2.0, 0.02  # as in Metz 2017, "Unrolled generative adversarial networks"


def ring_centers(device: torch.device | str = "cpu") -> Tensor:
    """Return the centers (modes, 2), created on the device, so that nothing is copied to it."""
    angle = torch.arange(MODES, device=device) * (2 * math.pi / MODES)
    return RADIUS * torch.stack([angle.cos(), angle.sin()], 1)


class Ring(Task):
    """The task to imitate the points. Inputs (batch, 2, 2) are a real point and the noise from which the generator
    draws a point. There are no targets."""

    goal = "points"
    shape = Shape(2, 2, 1)

    def __init__(self, problem: Problem, seed: int, device: str) -> None:
        super().__init__(problem, seed, device)
        self.centers = ring_centers()

    def draw(self, examples: int, source: torch.Generator) -> Batch:
        mode = torch.randint(MODES, (examples,), generator=source)
        drawn = torch.randn(examples, 2, 2, generator=source)
        points = self.centers[mode] + RING_DEVIATION * drawn[:, 0]
        return Batch(torch.stack([points, drawn[:, 1]], 1), torch.zeros(examples))
