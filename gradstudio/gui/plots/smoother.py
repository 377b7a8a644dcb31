"""The smoothed loss: an exponential moving average that starts without a bias and lets a NaN pass."""

from __future__ import annotations

import numpy as np

SMOOTHING = 0.6
_LASTING = 72  # steps: what is older is lost in rounding
_KERNEL = (1 - SMOOTHING) * SMOOTHING ** np.arange(_LASTING)
_FADED = SMOOTHING ** np.arange(1, _LASTING + 1)


class Smoother:
    """Debiased exponential moving average, as TensorBoard's: a non-finite value passes through and leaves no trace."""

    def __init__(self) -> None:
        self._mean, self._weight = 0.0, 0.0

    def smoothed(self, values: np.ndarray) -> np.ndarray:
        """(steps,): those that follow what was smoothed before."""
        finite = np.isfinite(values)
        if not np.logical_and.reduce(finite):
            smooth = values.copy()
            smooth[finite] = self.smoothed(values[finite])
            return smooth
        count = len(values)
        if not count:
            return values
        means = np.convolve(values, _KERNEL)[:count]
        means[:_LASTING] += self._mean * _FADED[:count]
        self._mean = float(means[-1])
        if self._weight < 1:
            weights = 1 - (1 - self._weight) * _FADED[:count]
            self._weight = 1.0 if count >= _LASTING else float(weights[-1])
            means[:_LASTING] /= weights
        return means
