"""The batches of a studio file: drawn by its get_batch, placed on the device, and made noisy."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from gradstudio.core.knobs import KnobError
from gradstudio.core.sections.task_knobs import Problem
from gradstudio.engine.devices import to_device
from gradstudio.engine.generators import generator
from gradstudio.engine.own_model import trees
from gradstudio.engine.own_model.program import Program
from gradstudio.engine.shape import Shape
from gradstudio.engine.tasks.task import spoilt


class OwnBatch(NamedTuple):
    """A batch drawn by get_batch, on the device."""

    tree: Any


class OwnData:
    """The counterpart of a task. Each micro-batch is a call of get_batch; the position in the data is the state of the
    generator."""

    goal = "own"
    shape = Shape(0, 0, 0)  # the sizes are unknown before a batch is drawn

    def __init__(self, program: Program, problem: Problem, seed: int, device: str) -> None:
        self.problem, self.seed, self.device = problem, seed, device
        self.order_generator = generator(seed, "order")
        self.noise_generator = generator(seed, "noise")
        self.outlier_generator = generator(seed, "outliers")
        self._program = program

    def next_batch(self, model: nn.Module, count: int = 1) -> OwnBatch:
        """Draw the next `count` micro-batches, and return the last of them."""
        return self.next_batches(model, count)[-1]

    def next_batches(self, model: nn.Module, count: int) -> list[OwnBatch]:
        return [self._noisy(self._draw(self.order_generator)) for _ in range(count)]

    def example(self) -> OwnBatch:
        """Return a batch without noise that training never sees, the same one at every call."""
        return self._draw(generator(self.seed, "test"))

    def outlier(self, batch: OwnBatch, scale: float) -> OwnBatch:
        """Return the batch with Gaussian noise of deviation `scale` in place of its first tensor."""

        def noise(inputs: Tensor) -> Tensor:
            drawn = torch.randn(inputs.shape, generator=self.outlier_generator)
            return (to_device(drawn, self.device) * scale).requires_grad_(inputs.requires_grad)

        return OwnBatch(trees.first_changed(batch.tree, noise))

    def with_nan(self, batch: OwnBatch) -> OwnBatch:
        """Return the batch with a NaN as the first number of its first tensor."""
        return OwnBatch(trees.first_changed(batch.tree, spoilt))

    def check_noise(self, problem: Problem, batch: OwnBatch) -> None:
        """Raise KnobError if these knobs request noise for inputs that are not floats."""
        first = trees.tensors(batch.tree)[0]
        for name, value in (
            ("noise", problem.noise), ("outlier_every", problem.outlier_every), ("nan_every", problem.nan_every),
        ):  # fmt: skip
            if value > 0 and first.dtype != torch.float32:
                dtype = str(first.dtype).removeprefix("torch.")
                raise KnobError(
                    f"problem.{name} = {value} is not allowed, as it replaces or changes the first tensor of a batch, "
                    f"which is {dtype} here and no float32; allowed: 0"
                )

    def _draw(self, source: torch.Generator) -> OwnBatch:
        tree = self._program.batch(self.problem.batch_size, source)
        return OwnBatch(trees.map_tensors(tree, lambda tensor: to_device(tensor, self.device)))

    def _noisy(self, batch: OwnBatch) -> OwnBatch:
        if self.problem.noise == 0:
            return batch

        def noisy(inputs: Tensor) -> Tensor:
            noise = torch.randn(inputs.shape, generator=self.noise_generator)
            return inputs + to_device(noise, self.device) * self.problem.noise

        return OwnBatch(trees.first_changed(batch.tree, noisy))
