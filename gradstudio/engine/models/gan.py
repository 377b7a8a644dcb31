"""Two networks against each other: one draws points, the other distinguishes them from real ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from gradstudio.core.sections.task_knobs import Model
from gradstudio.engine.models.freezing import frozen
from gradstudio.engine.models.mlp import MLP
from gradstudio.engine.shape import Shape


class GAN(nn.Module):
    """A generator and a discriminator: (batch, 2, features), a real point and the noise for a drawn one -> (batch, 3 +
    features), the score of the real point, that of the drawn one, the same score as the generator sees it, and the
    drawn point.

    The gradient of the second score stops before the generator. The gradient of the third flows through the
    discriminator without reaching its parameters. So one backward pass over a sum of losses gives each player its own
    gradient, and one optimizer updates both at once."""

    def __init__(self, knobs: Model, shape: Shape) -> None:
        super().__init__()
        self.generator = MLP(knobs, Shape(1, shape.features, shape.features))
        self.discriminator = MLP(knobs, Shape(1, shape.features, shape.outputs))

    def forward(self, inputs: Tensor) -> Tensor:
        real, noise = inputs.unbind(1)
        drawn = self.generator(noise)
        scores = [self.discriminator(real), self.discriminator(drawn.detach())]
        with frozen(self.discriminator):
            scores.append(self.discriminator(drawn))
        return torch.cat([*scores, drawn.detach()], 1)

    def sums(self, inputs: Tensor) -> Iterator[tuple[Tensor, Callable[[], Tensor]]]:
        """Yield the sums of the generator, for noise, and those of the discriminator, for real points."""
        real, noise = inputs.unbind(1)
        yield from self.generator.sums(noise)
        yield from self.discriminator.sums(real)
