"""Handwritten digits, 8 x 8 pixels of 0 to 16: as images, or the same pixels one after the other."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import torch

from gradstudio.core.combinations import PIXELS
from gradstudio.core.files import RESOURCES
from gradstudio.core.sections.task_knobs import Problem
from gradstudio.engine.shape import Shape
from gradstudio.engine.tasks.task import Batch, Dataset

CLASSES = 10


def standardize(pixels: np.ndarray, train: np.ndarray) -> np.ndarray:
    """Return pixels with mean 0 and deviation 1 over the training set. A pixel that never changes has deviation 0; it
    is divided by 1."""
    deviation = train.std(axis=0)
    return (pixels - train.mean(axis=0)) / np.where(deviation == 0, 1.0, deviation)


SCALINGS: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "standardized": standardize,
    "unit": lambda pixels, train: pixels / 16.0,
    "raw": lambda pixels, train: pixels,
}


class Digits(Dataset):
    """The task to tell which digit an image shows. `digits` has 8 time steps of 8 features, each a row of the image;
    `sequential_digits` has problem.seq_len time steps."""

    def __init__(self, problem: Problem, seed: int, device: str) -> None:
        super().__init__(problem, seed, device)
        steps = {"digits": 8, "bandit": 1}.get(problem.task, problem.seq_len)
        self.shape = Shape(steps, PIXELS // steps, CLASSES)
        training, self.testing = (
            self._to_device(Batch(torch.tensor(pixels).view(-1, steps, self.shape.features), torch.tensor(labels)))
            for pixels, labels in _examples(problem.scaling)
        )
        self.training = self.add_label_noise(self.thin_classes(training))


@cache
def _examples(scaling: str) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return pixels and labels of the training set and of the test set; to be copied, as a model may write to them."""
    with np.load(RESOURCES / "data" / "digits.npz") as data:
        train, test = (data[f"{part}_images"].reshape(-1, PIXELS).astype(np.float64) for part in ("train", "test"))
        scale, labels = SCALINGS[scaling], [data[f"{part}_labels"].astype(np.int64) for part in ("train", "test")]
        return [(scale(each, train).astype(np.float32), own) for each, own in zip((train, test), labels, strict=True)]
