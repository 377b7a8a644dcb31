"""Class weights in the loss, and the weight of each micro-batch if its examples have different weights."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F


def balanced_weights(labels: Tensor, classes: int) -> Tensor:
    """Return a weight for each class, (classes,), float32, on the device of the labels (examples,): N / (K n_c), so
    that all classes count the same and the mean over the examples is 1, like scikit-learn's class_weight="balanced"."""
    counts = torch.bincount(labels, minlength=classes).clamp(min=1)
    return len(labels) / (classes * counts)


def cross_entropy(outputs: Tensor, labels: Tensor, weights: Tensor) -> Tensor:
    """Return torch's weighted cross-entropy: sum(w l) / sum(w) over the examples of this batch only."""
    return F.cross_entropy(outputs.flatten(0, -2), labels.flatten(), weights.to(outputs))


def shares(weights: Tensor, labels: Sequence[Tensor]) -> Tensor:
    """Return a factor for the loss of each micro-batch, (micro-batches,), whose mean is 1: its share of the weight of
    all examples, times the number of micro-batches. The mean of the losses times these is sum(w l) / sum(w) over all
    examples."""
    sums = torch.stack([weights[each].sum() for each in labels])
    return sums * (len(sums) / sums.sum())
