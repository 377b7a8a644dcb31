"""What is minimized, by name."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor
from torch.nn import functional as F


def auto(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean cross-entropy of logits (batch, classes) against labels (batch,), in fp32 whatever the logits are in."""
    return F.cross_entropy(logits.float(), labels)


LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {"auto": auto}
