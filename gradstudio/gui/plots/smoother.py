"""The smoothed loss: an exponential moving average that starts without a bias and lets a NaN pass."""

from __future__ import annotations

import math

import numpy as np

SMOOTHING = 0.6
FEW = 128  # values: as long as one by one they take no longer than numpy's calls
_LASTING = 72  # steps: what is older is lost in rounding
_KERNEL = (1 - SMOOTHING) * SMOOTHING ** np.arange(_LASTING)
_FADED = SMOOTHING ** np.arange(1, _LASTING + 1)


class Smoother:
    """Debiased exponential moving average, as TensorBoard's: a non-finite value passes through and leaves no trace."""

    def __init__(self) -> None:
        self._mean, self._weight = 0.0, 0.0

    def smoothed(self, values: np.ndarray) -> np.ndarray:
        """(steps,): those that follow what was smoothed before."""
        if len(values) <= FEW:
            return self._one_by_one(values)
        finite = np.isfinite(values)
        if not finite.all():
            smooth = values.copy()
            smooth[finite] = self.smoothed(values[finite])
            return smooth
        means = np.convolve(values, _KERNEL)[: len(values)]
        means[:_LASTING] += self._mean * _FADED
        self._mean = means.item(-1)
        means[:_LASTING] /= 1 - (1 - self._weight) * _FADED
        self._weight = 1.0
        return means

    def _one_by_one(self, values: np.ndarray) -> np.ndarray:
        mean, weight, means = self._mean, self._weight, []
        for value in values.tolist():
            if math.isfinite(value):
                mean = SMOOTHING * mean + (1 - SMOOTHING) * value
                weight = SMOOTHING * weight + (1 - SMOOTHING)
                value = mean / weight
            means.append(value)
        self._mean, self._weight = mean, weight
        return np.array(means)
