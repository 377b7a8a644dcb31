"""Points on two spiral arms in a plane."""

from __future__ import annotations

import math

import torch

from gradstudio.core.sections.task_knobs import Problem
from gradstudio.engine.generators import generator
from gradstudio.engine.shape import Shape
from gradstudio.engine.tasks.task import Batch, Dataset

TRAINING, TESTING = 1024, 512  # half of them on each arm; the largest batch_size is 1024
RADIUS, TURNS, ARM_DEVIATION = 2.0, 1.5, 0.05


def spirals(points: int, source: torch.Generator) -> Batch:
    """Return points (points, 1, 2) on alternate arms, and the arm of each. After Lang and Witbrock 1988, "Learning to
    tell two spirals apart"."""
    arm = torch.arange(points) % 2
    along = torch.rand(points, generator=source)
    angle = 2 * math.pi * TURNS * along + math.pi * arm
    place = RADIUS * along.unsqueeze(1) * torch.stack([angle.cos(), angle.sin()], 1)
    return Batch((place + ARM_DEVIATION * torch.randn(points, 2, generator=source)).unsqueeze(1), arm)


class Spirals(Dataset):
    """The task to tell which arm a point is on. The points are drawn once, with the seed."""

    shape = Shape(1, 2, 2)

    def __init__(self, problem: Problem, seed: int, device: str) -> None:
        super().__init__(problem, seed, device)
        self.training = self.add_label_noise(
            self.thin_classes(self._to_device(spirals(TRAINING, self.order_generator)))
        )
        self.testing = self._to_device(spirals(TESTING, generator(seed, "test")))
