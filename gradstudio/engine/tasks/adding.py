"""The adding task: two numbers of a long sequence are marked, and the answer at its end is their sum."""

from __future__ import annotations

import torch

from gradstudio.core.sections.task_knobs import Problem
from gradstudio.engine.shape import Shape
from gradstudio.engine.tasks.task import Batch, Task


class Adding(Task):
    """The adding problem (Hochreiter and Schmidhuber 1997), in its common form. A time step has a number, uniform in
    [0, 1), and a marker: 1 at one step of each half, otherwise 0. A model that always answers 1 has a mean squared
    error of 1/6. A sequence of one step has one marked number, which is the sum; always answering 1/2 has an error of
    1/12."""

    goal = "value"

    def __init__(self, problem: Problem, seed: int, device: str) -> None:
        super().__init__(problem, seed, device)
        self.shape = Shape(problem.seq_len, 2, 1)

    def draw(self, examples: int, source: torch.Generator) -> Batch:
        steps = self.shape.time_steps
        numbers = torch.rand(examples, steps, generator=source)
        first = torch.randint(max(steps // 2, 1), (examples, 1), generator=source)
        second = torch.randint(steps // 2, steps, (examples, 1), generator=source)
        markers = torch.zeros(examples, steps).scatter_(1, first, 1.0).scatter_(1, second, 1.0)
        return Batch(torch.stack([numbers, markers], 2), (numbers * markers).sum(1, keepdim=True))
