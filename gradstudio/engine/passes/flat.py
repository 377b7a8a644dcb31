"""Keep all parameters of a model in one flat tensor, and all their gradients in another, so that an operation on all of
them is one call.

The parameters and their .grad are views of the two, so the model looks as before. Each begins at a multiple of 64
bytes, like torch's own tensors, as the last bit of a matrix product depends on that."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn import Parameter

ALIGNED = 16  # float32 entries in 64 bytes


class Layout:
    """The position of each tensor's entries in a flat one: from starts[i] to stops[i]. `length` exceeds the last
    stop."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self.sizes = np.array(sizes, dtype=np.int64)
        taken = (self.sizes // ALIGNED + 1) * ALIGNED
        self.starts = np.concatenate([[0], np.cumsum(taken)[:-1]])
        self.stops = self.starts + self.sizes
        self.length = int(taken.sum())

    def views(self, flat: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
        """Return the tensors in `flat`, in the shapes of `like`."""
        return [
            flat[start:stop].view_as(tensor) for start, stop, tensor in zip(self.starts, self.stops, like, strict=True)
        ]


class Flat:
    """A model's parameters and gradients in two flat tensors, float32, (layout.length,).

    `weights` is a leaf that an optimizer can update, and `weights.grad` is `gradients`. `named` are the parameters
    with their names, `grads` their gradients."""

    def __init__(self, named: Sequence[tuple[str, Parameter]]) -> None:
        self.named = named
        self.parameters = [parameter for _, parameter in named]
        self.layout = Layout([parameter.numel() for parameter in self.parameters])
        # Autograd sees the parameters and never this tensor, so changing it needs no torch.no_grad.
        self.weights = Parameter(torch.zeros(self.layout.length, device=self.parameters[0].device), requires_grad=False)
        self.gradients = self.new()
        self.weights.grad = self.gradients
        self.cleared = False  # whether the gradients are 0 and nothing was added since
        self.grads = self.layout.views(self.gradients, self.parameters)
        for parameter, place, grad in zip(
            self.parameters, self.layout.views(self.weights.data, self.parameters), self.grads, strict=True
        ):
            place.copy_(parameter.data)
            parameter.data = place
            if parameter.grad is not None:
                grad.copy_(parameter.grad)
            parameter.grad = grad

    def part(self, entries: slice) -> Parameter:
        """Return some of the weights as a separate leaf, with their gradients as .grad. Both are views."""
        leaf = Parameter(self.weights.data[entries], requires_grad=False)
        leaf.grad = self.gradients[entries]
        return leaf

    def clear(self) -> None:
        """Set the gradients to 0."""
        self.gradients.zero_()
        self.cleared = True

    def new(self) -> Tensor:
        """Return another flat tensor, all 0."""
        return torch.zeros_like(self.weights.data)
