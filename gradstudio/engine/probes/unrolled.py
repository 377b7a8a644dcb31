"""The gradient with respect to the state of a recurrent network at each time step, on a copy of the model that reads
the sequence one time step at a time."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from gradstudio.core.gauge_samples import Unmeasurable
from gradstudio.core.time_steps import TimeSteps
from gradstudio.engine.models.rnn import RecurrentStack
from gradstudio.engine.probes.stand_in_model import Standin, batches_to_come
from gradstudio.engine.trainer import Trainer

NONE = "No recurrent network that reads one way was called on a whole batch."


def measure(trainer: Trainer) -> TimeSteps:
    """Measure the trainer's next step, without a trace in it. Unmeasurable if no recurrent network can be read step by
    step."""
    standin = Standin(trainer, torch.float32, trainer.device)
    standin.follow()
    recurrent = next(
        ((name, part) for name, part in standin.model.named_modules() if isinstance(part, nn.RNNBase | RecurrentStack)),
        None,
    )
    if recurrent is None:
        raise Unmeasurable("This model has no recurrent network of torch's.")
    states: list[Tensor] = []
    _listen(recurrent[1], states)
    batches, squares = batches_to_come(trainer), None
    with trainer.subject.preserved_random_state():
        for batch in batches:
            states.clear()
            loss = standin.loss(batch)
            if not states:
                raise Unmeasurable(NONE)
            gradients = torch.autograd.grad(loss, states, allow_unused=True, materialize_grads=True)
            norms = torch.stack([(each.double() / len(batches)).norm() for each in gradients]) ** 2
            squares = norms if squares is None else squares + norms
    assert squares is not None
    return TimeSteps(
        trainer.step, recurrent[0], tuple(math.sqrt(each) if each >= 0 else each for each in squares.tolist())
    )


def _listen(part: nn.Module, states: list[Tensor]) -> None:
    """Let a recurrent part of a copy append its states to a list, one for each time step."""
    if isinstance(part, RecurrentStack):
        activation, depth, through = part.activation, part.depth, part.through

        def on_gradient(total: Tensor) -> Tensor:
            state = activation(total)
            states.append(state)
            return state

        def last_only(layer: int, inputs: Tensor) -> Tensor:
            part.activation = on_gradient if layer == depth - 1 else activation  # pyright: ignore[reportAttributeAccessIssue]
            return through(layer, inputs)

        part.through = last_only  # pyright: ignore[reportAttributeAccessIssue]
    elif isinstance(part, nn.RNNBase):
        part.forward = _by_steps(part, part.forward, states)


def _by_steps(part: nn.RNNBase, forward: Callable[..., Any], states: list[Tensor]) -> Callable[..., Any]:
    """Return the same network, reading one time step at a time. Its output is computed from its states, so that the
    derivative with respect to a state includes all of its uses."""

    def read(inputs: Any, state: Any = None) -> Any:
        if part.bidirectional or part.proj_size or not isinstance(inputs, Tensor) or inputs.dim() != 3:
            raise Unmeasurable(NONE)
        along, given = (1 if part.batch_first else 0), []
        for at in range(inputs.shape[along]):
            _, state = forward(inputs.narrow(along, at, 1), state)
            hidden = state[0] if isinstance(state, tuple) else state
            states.append(hidden)
            given.append(hidden[-1].unsqueeze(along))
        return torch.cat(given, along), state

    return read
