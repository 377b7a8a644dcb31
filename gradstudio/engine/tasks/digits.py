"""Handwritten digits, 8 x 8 pixels of 0 to 16: as images, or the same pixels one after the other."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from gradstudio.core.experiment import PIXELS, Problem
from gradstudio.core.files import RESOURCES
from gradstudio.engine.generators import generator

CLASSES = 10

Batch = tuple[Tensor, Tensor]


def standardized(pixels: np.ndarray, train: np.ndarray) -> np.ndarray:
    """Mean 0 and deviation 1 per pixel over the training set. A pixel that never changes has deviation 0; it is divided by 1."""
    deviation = train.std(axis=0)
    return (pixels - train.mean(axis=0)) / np.where(deviation == 0, 1.0, deviation)


SCALINGS: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "standardized": standardized,
    "unit": lambda pixels, train: pixels / 16.0,
    "raw": lambda pixels, train: pixels,
}


class Digits:
    """`inputs` is (examples, time steps, features) float32 and `labels` (examples,) int64, both on the device, as is the
    test set. `digits` has 8 time steps of 8 features, a row of the image each; `sequential_digits` has problem.seq_len."""

    classes = CLASSES

    def __init__(self, problem: Problem, seed: int, device: str) -> None:
        self.batch_size = problem.batch_size
        self.noise = problem.noise
        self.device = device
        self.time_steps = problem.seq_len if problem.task == "sequential_digits" else 8
        self.features = PIXELS // self.time_steps
        with np.load(RESOURCES / "data" / "digits.npz") as data:
            train = data["train_images"].reshape(-1, PIXELS).astype(np.float64)
            test = data["test_images"].reshape(-1, PIXELS).astype(np.float64)
            self.labels = torch.from_numpy(data["train_labels"].astype(np.int64)).to(device)
            self.test_labels = torch.from_numpy(data["test_labels"].astype(np.int64)).to(device)
        scale = SCALINGS[problem.scaling]
        self.inputs = self._tensor(scale(train, train) * problem.input_scale)
        self.test_inputs = self._noisy(self._tensor(scale(test, train) * problem.input_scale), generator(seed, "test_noise"))
        self.order_generator = generator(seed, "order")
        self.noise_generator = generator(seed, "noise")
        self.outlier_generator = generator(seed, "outliers")
        self.order = torch.empty(0, dtype=torch.int64)  # of this epoch
        self.position = 0  # first example of the next batch in it

    def next_batch(self) -> Batch:
        """The next micro-batch: inputs (batch_size, time steps, features) and labels (batch_size,). What an epoch has
        left over when no full batch remains is not used."""
        if self.position + self.batch_size > len(self.order):
            self.order = torch.randperm(len(self.inputs), generator=self.order_generator)
            self.position = 0
        chosen = self.order[self.position : self.position + self.batch_size].to(self.device)
        self.position += self.batch_size
        return self._noisy(self.inputs[chosen], self.noise_generator), self.labels[chosen]

    def outliers(self, inputs: Tensor, scale: float) -> Tensor:
        """Gaussian noise of deviation `scale` in the shape of `inputs`."""
        return torch.randn(inputs.shape, generator=self.outlier_generator).to(self.device) * scale

    def sample(self, examples: int = 256) -> Tensor:
        """The first examples of the training set, without noise, on the CPU: for an initialization that looks at data."""
        return self.inputs[:examples].cpu()

    def _tensor(self, pixels: np.ndarray) -> Tensor:
        return torch.from_numpy(pixels.astype(np.float32)).view(-1, self.time_steps, self.features).to(self.device)

    def _noisy(self, inputs: Tensor, source: torch.Generator) -> Tensor:
        if self.noise == 0:
            return inputs
        return inputs + torch.randn(inputs.shape, generator=source).to(self.device) * self.noise
