"""Whether a script reduces gradients among the ranks after the backward pass, itself or in its optimizer's step: they
are measured again before they are clipped, and after the step."""

from __future__ import annotations

import math

from gradstudio.watching.measuring.parameters import Gradient, Parameters
from gradstudio.watching.steps.open_step import OpenStep

ENOUGH = 8  # consecutive steps that left the gradients unchanged, after which the check ends
ROUNDING = 1e-6


class LateReduction:
    """Checks the gradients of one optimizer."""

    def __init__(self) -> None:
        self._unchanged = self._unchanged_before_clip = 0

    def before_clip(self, parameters: Parameters, step: OpenStep) -> None:
        """Measure the gradients of a step again, before their first clip. Torch does not mark those that only a
        reduction has written to. Scaled ones are left: it is unknown whether they still carry the factor."""
        if self._unchanged_before_clip >= ENOUGH or step.is_scaled or step.is_passed_by:
            return
        first, measured = step.read_figures, parameters.measure_gradient_later()

        def read() -> None:
            if first is not None:
                first()
            gradient = measured()
            is_same = step.gradient is not None and _same(gradient.norm, step.gradient.norm)
            self._unchanged_before_clip = self._unchanged_before_clip + 1 if is_same else 0
            step.gradient = step.gradient if is_same else gradient

        if first is None:
            read()
        else:
            step.read_figures = read

    def after_step(self, parameters: Parameters, step: OpenStep) -> Gradient | None:
        """Return the gradients as the optimizer's step has left them; None if they are gone, or are known to be those
        of the backward pass, but for a clip."""
        if self._unchanged >= ENOUGH:
            return None
        gradient, received = parameters.measure_gradient(step.factor), step.clipped_norm() / step.factor
        as_passed = step.gradient is not None and _same(received, step.gradient.norm)
        is_same = _same(gradient.norm, received) and (step.clip[0] != "none" or as_passed)
        self._unchanged = self._unchanged + 1 if is_same else 0
        return gradient if gradient.norm or not received else None


def _same(one: float, other: float) -> bool:
    return abs(one - other) <= ROUNDING * abs(other) or (math.isnan(one) and math.isnan(other))
