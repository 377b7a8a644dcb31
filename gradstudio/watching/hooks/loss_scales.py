"""The loss scale that a backward pass carries: that of the scaled losses from which its roots were computed. A scaler's
input is recorded at the node of autograd's graph, so the record lives as long as the scaled loss, and no longer."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple

from torch import Tensor

from gradstudio.core.unknown import UNKNOWN

MOST_NODES = 10_000  # number of nodes searched: mostly a sum or a factor, or a penalty for each weight
_MARK = "gradstudio scale"  # of the node that produces a scaled loss


class ScaledLoss(NamedTuple):
    """The factor that a scaler has applied to a loss, and the loss before that, which may have overflowed with it."""

    scale: float
    loss: Tensor


class LossScales:
    """Identifies the tensors that a scaler has produced."""

    def __init__(self) -> None:
        self.any = False  # whether a scaler has been used at all; without one no graph is searched
        self._of_iterator = 1.0  # the scale of losses that only the script may iterate over, until the scaler steps

    def note(self, loss: Tensor, scaled: Tensor, scale: float) -> None:
        """A scaler has produced one tensor from another."""
        node: Any = scaled.grad_fn
        if node is not None:
            node.metadata[_MARK] = ScaledLoss(scale, loss.detach())
            self.any = True

    def note_iterator(self, scale: float) -> None:
        """A scaler will scale tensors as the script takes them from an iterator."""
        self.any, self._of_iterator = True, scale

    def forget_iterator(self) -> None:
        """The scaler steps: forget the iterator."""
        self._of_iterator = 1.0

    def of_root(self, root: Any) -> tuple[float, Tensor | None]:
        """Return the scale that a tensor, or an edge of autograd's graph, carries, and the unscaled loss if it is a
        scaled loss directly from the scaler. The scale is 1 without a scaler, and UNKNOWN if several differ."""
        node: Any = root.grad_fn if isinstance(root, Tensor) else getattr(root, "node", None)
        if node is None:
            return 1.0, None
        if (own := node.metadata.get(_MARK)) is not None:
            return own.scale, own.loss if isinstance(root, Tensor) else None
        scales = set(_scales_before(node))
        return (together(scales) if scales else self._of_iterator), None


def together(scales: set[float]) -> float:
    """Return the common scale of several tensors; 1 for none, UNKNOWN if they differ."""
    return scales.pop() if len(scales) == 1 else UNKNOWN if scales else 1.0


def _scales_before(end: Any) -> Iterator[float]:
    """Yield the scales of the losses from which this node was computed, the nearest first; finally UNKNOWN if there are
    more nodes than are searched."""
    waiting, seen = deque[Any]([end]), set[Any]()
    while waiting:
        if len(seen) >= MOST_NODES:
            yield UNKNOWN
            return
        node = waiting.popleft()
        if node in seen:
            continue
        seen.add(node)
        if (scale := node.metadata.get(_MARK)) is not None:
            yield scale.scale
        else:
            waiting.extend(following for following, _ in node.next_functions if following is not None)
