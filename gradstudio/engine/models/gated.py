"""Recurrent networks with gates that decide what they remember: torch's own LSTM and GRU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from torch import Tensor, nn
from torch.nn import functional as F

from gradstudio.core.sections.task_knobs import Model
from gradstudio.engine.models.checkpointing import run_checkpointed
from gradstudio.engine.models.rnn import one_layer, weights_of
from gradstudio.engine.shape import Shape

Recurrent = nn.LSTM | nn.GRU


class GatedNetwork(nn.Module):
    """A gated recurrent network and a head: (batch, time steps, features) -> (batch, outputs), or (batch, answers,
    outputs). The gates have their own activations, so only the knobs width and depth apply. The recurrent part is
    called `lstm` or `gru`."""

    def __init__(self, kind: type[Recurrent], knobs: Model, shape: Shape) -> None:
        super().__init__()
        self.recurrent_name = kind.__name__.lower()
        self.add_module(self.recurrent_name, kind(shape.features, knobs.width, knobs.depth, batch_first=True))
        self.head = nn.Linear(knobs.width, shape.outputs)
        self.answers = shape.answers
        self.checkpointing = knobs.checkpointing

    @property
    def recurrent(self) -> Recurrent:
        return getattr(self, self.recurrent_name)

    def forward(self, inputs: Tensor) -> Tensor:
        outputs, _ = (
            run_checkpointed(self.recurrent, inputs) if self.checkpointing and self.training else self.recurrent(inputs)
        )
        return self.head(outputs[:, -1] if self.answers == 1 else outputs[:, -self.answers :])

    def sums(self, inputs: Tensor) -> Iterator[tuple[Tensor, Callable[[], Tensor]]]:
        """Yield each input weight, of all gates together, in forward order, and then that of the head, each with a
        function that computes the sums of its inputs. Recurrent weights have no sums of their own."""
        state = inputs
        for layer in range(self.recurrent.num_layers):
            weight = weights_of(self.recurrent, layer).weight_ih
            yield weight, lambda state=state, weight=weight: F.linear(state, weight)
            state, _ = one_layer(self.recurrent, layer)(state)
        yield self.head.weight, lambda: self.head(state[:, -1])


LSTM = partial(GatedNetwork, nn.LSTM)
GRU = partial(GatedNetwork, nn.GRU)
