"""The number format in which the passes of a step compute, if autocast chooses it."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from gradstudio.engine.torch_internals.clipping_hooks import autocast_asker
from gradstudio.watching.hooks.leaves import nodes_before


class AutocastFormat:
    """The number format of the current step; None without autocast. An autocast block implies the format of the next
    pass if that was made in it: the block may have been for an evaluation, which has no graph."""

    def __init__(self) -> None:
        self.dtype: torch.dtype | None = None
        self._entered: torch.dtype | None = None  # since the latest pass
        self._may_be_on = autocast_asker()

    @property
    def of_next_pass(self) -> torch.dtype | None:
        """The format of a pass whose backward pass was not observed."""
        return self._entered or self.dtype

    def on_autocast(self, dtype: torch.dtype) -> None:
        """An autocast block begins while gradients are enabled."""
        self._entered = dtype

    def on_backward(self, roots: Sequence[Tensor], device: str, *, first: bool) -> None:
        """A backward pass begins from these tensors, the first one of a step or a further one. Its graph is inspected
        if the format seems to have changed."""
        may_be_on = device not in ("cpu", "cuda") or self._may_be_on()
        dtype, self._entered = self._entered or (_autocast_now(device) if may_be_on else None), None
        if dtype is self.dtype:
            return
        if may_be_cast(roots):
            self.dtype = dtype or self.dtype
        elif first:
            self.dtype = None

    def on_unobserved_step(self, device: str) -> None:
        """A step was made whose backward pass was not observed."""
        self.dtype, self._entered = self._entered or _autocast_now(device), None


def may_be_cast(roots: Sequence[Tensor]) -> bool:
    """Return whether these tensors may have been computed from values in another number format: their graph has a cast,
    such as that of a weight under autocast, or a node for custom or compiled code."""
    return not all(_keeps_format(node.name()) for node in nodes_before(root.grad_fn for root in roots))


def _keeps_format(name: str) -> bool:
    """Return whether this is one of torch's own nodes and not a cast: 'AddmmBackward0',
    'torch::autograd::AccumulateGrad'. Those of Python functions have no number."""
    if name.endswith(("AccumulateGrad", "CopySlices")):
        return True
    return name[-1].isdigit() and not name.startswith("ToCopyBackward")


def _autocast_now(device: str) -> torch.dtype | None:
    """Return the number format of autocast, if the thread is within a block for this kind of device."""
    try:
        return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None
    except RuntimeError:  # a device without autocast
        return None
