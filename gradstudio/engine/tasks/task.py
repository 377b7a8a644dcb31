"""The base of every task: where its batches come from, and how they are scaled and made noisy."""

from __future__ import annotations

import math
from typing import ClassVar, Literal, NamedTuple

import torch
from torch import Tensor, nn

from gradstudio.core.sections.task_knobs import Problem
from gradstudio.engine.devices import to_device
from gradstudio.engine.generators import generator
from gradstudio.engine.shape import Shape

Goal = Literal["classes", "value", "points", "reward"]
TESTS = 512  # examples of a test set that is drawn


class Batch(NamedTuple):
    """Examples: `inputs` (batch, time steps, features), float32, and `targets` that the loss compares the outputs with:
    int64 classes (batch,) or (batch, answers), or float32 values. Both are on the task's device."""

    inputs: Tensor
    targets: Tensor


class Task:
    """A task that draws new examples for every batch. `goal` determines the loss of loss.kind = auto (losses.py). A
    batch changes nothing but the generators. They are on the CPU, so that every device gets the same numbers."""

    goal: ClassVar[Goal] = "classes"
    shape: Shape

    def __init__(self, problem: Problem, seed: int, device: str) -> None:
        self.problem, self.seed, self.device = problem, seed, device
        self.order_generator = generator(seed, "order")
        self.noise_generator = generator(seed, "noise")
        self.outlier_generator = generator(seed, "outliers")

    def draw(self, examples: int, source: torch.Generator) -> Batch:
        """Return `examples` examples on the CPU, before input_scale and noise."""
        raise AssertionError("each task that draws its examples says how")

    def next_batches(self, model: nn.Module, count: int) -> list[Batch]:
        """Return the micro-batches of the next step: the parts of one large batch, so that its examples are the same
        however many parts there are. Each part has its own memory, as the last bit of a matrix product depends on where
        its rows begin. Only a task in which the model acts uses the model."""
        whole, size = self.next_batch(model, count), self.problem.batch_size
        if count == 1:
            return [whole]
        parts = zip(whole.inputs.split(size), whole.targets.split(size), strict=True)
        return [Batch(inputs.clone(), targets.clone()) for inputs, targets in parts]

    def next_batch(self, model: nn.Module, count: int = 1) -> Batch:
        """Return the next `count` micro-batches as one batch."""
        examples = self.draw(self.problem.batch_size * count, self.order_generator)
        return self._noisy(self._to_device(examples), self.noise_generator)

    def test_batch(self, model: nn.Module) -> Batch:
        """Return examples that training never sees, the same ones at every call."""
        return self._noisy(
            self._to_device(self.draw(TESTS, generator(self.seed, "test"))), generator(self.seed, "test_noise")
        )

    @property
    def tests(self) -> int:
        """Number of examples in the test set."""
        return TESTS

    def order_length(self, examples: int) -> int:
        """Return the length of the shuffled order of examples that is in memory if a step takes `examples`; 0 if the
        task has none."""
        return 0

    def sample(self, examples: int = 256) -> Tensor:
        """Return inputs without noise, on the CPU, for an initialization that uses data."""
        return self._to_device(self.draw(examples, generator(self.seed, "test"))).inputs.cpu()

    def outliers(self, inputs: Tensor, scale: float) -> Tensor:
        """Return Gaussian noise of deviation `scale` in the shape of `inputs`."""
        return to_device(torch.randn(inputs.shape, generator=self.outlier_generator), self.device) * scale

    def outlier(self, batch: Batch, scale: float) -> Batch:
        """Return the batch with outliers in place of its inputs."""
        return Batch(self.outliers(batch.inputs, scale), batch.targets)

    def with_nan(self, batch: Batch) -> Batch:
        """Return the batch with a NaN as the first number of its first example."""
        return Batch(spoilt(batch.inputs), batch.targets)

    def _to_device(self, batch: Batch) -> Batch:
        """Return the batch scaled by input_scale, on the device."""
        inputs = batch.inputs if self.problem.input_scale == 1 else batch.inputs * self.problem.input_scale
        return Batch(to_device(inputs, self.device), to_device(batch.targets, self.device))

    def _noisy(self, batch: Batch, source: torch.Generator) -> Batch:
        if self.problem.noise == 0:
            return batch
        noise = to_device(torch.randn(batch.inputs.shape, generator=source), self.device) * self.problem.noise
        return Batch(batch.inputs + noise, batch.targets)


class Dataset(Task):
    """A task with a fixed training set, seen epoch after epoch, each in its own order."""

    training: Batch  # both without noise, on the device
    testing: Batch

    def __init__(self, problem: Problem, seed: int, device: str) -> None:
        super().__init__(problem, seed, device)
        self.order = torch.empty(0, dtype=torch.int64)  # of this epoch
        self.position = 0  # first example of the next batch in it

    def thin_classes(self, batch: Batch) -> Batch:
        """Return the examples of a batch with labels (batch,) that remain under problem.imbalance, in their order: the
        first ones of each class, at least one."""
        if self.problem.imbalance == 1:
            return batch
        labels, rarer = batch.targets.cpu(), self.problem.imbalance
        last = self.shape.outputs - 1
        of_class = [torch.nonzero(labels == number).flatten() for number in range(last + 1)]
        tensors = [each[: max(round(len(each) * rarer ** (-number / last)), 1)] for number, each in enumerate(of_class)]
        chosen = to_device(torch.cat(tensors).sort().values, self.device)
        return Batch(batch.inputs[chosen], batch.targets[chosen])

    def add_label_noise(self, batch: Batch) -> Batch:
        """Return a batch of labels (batch,) with problem.label_noise of them redrawn, each class equally likely."""
        if self.problem.label_noise == 0:
            return batch
        source, examples = generator(self.seed, "label_noise"), len(batch.targets)
        chosen = torch.rand(examples, generator=source) < self.problem.label_noise
        drawn = torch.randint(self.shape.outputs, (examples,), generator=source)
        return Batch(batch.inputs, to_device(torch.where(chosen, drawn, batch.targets.cpu()), self.device))

    def next_batch(self, model: nn.Module, count: int = 1) -> Batch:
        """Return the next `count` micro-batches as one batch."""
        return self.next_examples(self.problem.batch_size * count)

    def next_examples(self, examples: int) -> Batch:
        """Return the next examples. Leftover examples at the end of an epoch that do not fill the batch are not used; a
        batch that is larger than an epoch continues into the next."""
        inputs, targets = self.training
        if self.position + examples > len(self.order):
            self._next_epoch(examples)
        chosen = to_device(self.order[self.position : self.position + examples], self.device)
        self.position += examples
        # twice as fast as inputs[chosen]
        batch = Batch(inputs.index_select(0, chosen), targets.index_select(0, chosen))
        return self._noisy(batch, self.noise_generator)

    def _next_epoch(self, examples: int) -> None:
        """Replace the order, which has too few examples left, by one that has enough."""
        size = len(self.training.inputs)
        left = self.order[:0] if examples <= size else self.order[self.position :]
        while len(left) < examples:
            left = torch.cat([left, torch.randperm(size, generator=self.order_generator)])
        self.order, self.position = left, 0

    def order_length(self, examples: int) -> int:
        return max(examples, len(self.training.inputs))

    def test_batch(self, model: nn.Module) -> Batch:
        return self._noisy(self.testing, generator(self.seed, "test_noise"))

    @property
    def tests(self) -> int:
        return len(self.testing.inputs)

    def sample(self, examples: int = 256) -> Tensor:
        return self.training.inputs[:examples].cpu()


def spoilt(inputs: Tensor) -> Tensor:
    """Return float inputs of any shape with a NaN as their first number."""
    return torch.cat([inputs.new_full((1,), math.nan), inputs.flatten()[1:]]).view_as(inputs)
