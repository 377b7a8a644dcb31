"""Whether the updates of weights in bfloat16 are lost in rounding, by comparing a weight before and after one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from gradstudio.core.text import plural

AGAIN = 3  # consecutive steps or looks with the same result before it is reported


class RoundingChecks:
    """Checks some updates. `tell` is called with the rule and the evidence."""

    def __init__(self, tell: Callable[..., None]) -> None:
        self._tell = tell
        self._kept: list[tuple[Tensor, Tensor]] = []  # weights in bfloat16 with their values before an update
        self._rounded = 0  # consecutive looks at which most of them were unchanged after it

    def before_update(self, weights: Sequence[Tensor]) -> None:
        """Record the weights before the next update."""
        self._kept = [(each, each.detach().clone()) for each in weights if each.dtype is torch.bfloat16]

    def after_update(self, optimizer: Any, step: int) -> None:
        """Check whether a recorded update has left most weights unchanged, though they had a gradient."""
        kept, self._kept = self._kept, []
        had = [(now, before) for now, before in kept if now.grad is not None and bool(now.grad.any())]
        if not had:
            return
        same = sum(torch.equal(now, before) for now, before in had)
        moves = all(float(group.get("lr") or 0) > 0 for group in optimizer.param_groups)
        self._rounded = self._rounded + 1 if moves and 2 * same > len(had) else 0
        if self._rounded == AGAIN:
            told = (
                f"{same:,} of {plural(len(had), 'tensor', 'tensors')} in bfloat16 were the same before and after the "
                f"update of step {step:,}, and so it was at {AGAIN} looks, though their gradients were not 0."
            )
            self._tell("rounded_updates", told)
