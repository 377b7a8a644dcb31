"""Whether an optimizer reduces gradients among the ranks in its own step: they are checked once more after it."""

from __future__ import annotations

import math
from collections.abc import Callable

from gradstudio.watching.measuring.parameters import Gradient, Parameters

ENOUGH = 8  # consecutive steps that left the gradients unchanged, after which the check ends
ROUNDING = 1e-6


class AfterStep:
    """Checks the gradients of one optimizer after its step."""

    def __init__(self) -> None:
        self._unchanged = 0

    def look(self, parameters: Parameters, before: Callable[[], float], factor: float) -> Gradient | None:
        """Return the gradients as the step has left them; None if they are gone, or are known to be unchanged.
        `before`: their norm when the optimizer received them. They carry the factor."""
        if self._unchanged >= ENOUGH:
            return None
        gradient, norm = parameters.measure_gradient(factor), before() / factor
        is_same = abs(gradient.norm - norm) <= ROUNDING * norm or (math.isnan(gradient.norm) and math.isnan(norm))
        self._unchanged = self._unchanged + 1 if is_same else 0
        return gradient if gradient.norm or not norm else None
