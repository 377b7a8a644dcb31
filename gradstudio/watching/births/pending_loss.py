"""The loss of a backward pass that is checked later, so that the script does not wait for it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from torch import Tensor

from gradstudio.engine.operation_watcher import is_finite, values_of


class PendingLoss(NamedTuple):
    """A backward pass whose loss has not been checked yet. `held` are nodes of its loss code."""

    roots: tuple[Tensor, ...]
    scaled: bool
    losses: tuple[Tensor | None, ...]
    place: int | None = None  # index of the micro-batch, -1 if unknown; None: to be determined now
    held: Sequence[Any] = ()
    began: str = ""  # the line of the script

    @property
    def is_broken(self) -> bool:
        given = self.losses or (None,) * len(self.roots)
        return any(
            not is_finite(loss) if loss is not None else _is_nan(root) if self.scaled else not is_finite(root)
            for root, loss in zip(self.roots, given, strict=False)
        )


def _is_nan(root: Tensor) -> bool:
    return math.isnan(root.item()) if root.numel() == 1 else values_of(root).nan > 0
