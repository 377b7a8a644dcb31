"""The micro-batches, without end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from gradstudio.program.reference.given import inline

if TYPE_CHECKING:
    from gradstudio.program.reference.data import all_inputs, all_targets, draw, noise, source
    from gradstudio.program.reference.device import device
    from gradstudio.program.reference.given import get_batch, knobs, plan


@inline
def noisy(inputs):
    """Return the inputs with noise added."""
    if knobs.problem_noise > 0:
        return inputs + torch.randn(inputs.shape, generator=noise).to(device) * knobs.problem_noise
    return inputs


def split_up(inputs, targets):
    """The micro-batches of a large batch, each in memory of its own."""
    for part in zip(inputs.split(knobs.problem_batch_size), targets.split(knobs.problem_batch_size)):
        yield [tensor.clone() for tensor in part]


def with_tensors(batch, change):
    """A batch with every tensor changed, in order."""
    if isinstance(batch, torch.Tensor):
        return change(batch)
    if isinstance(batch, dict):
        kind = dict if hasattr(batch, "default_factory") else type(batch)
        return kind((name, with_tensors(part, change)) for name, part in batch.items())
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(with_tensors(part, change) for part in batch))
    if isinstance(batch, (tuple, list)):
        return type(batch)(with_tensors(part, change) for part in batch)
    return batch


def with_first(batch, change):
    """A batch with its first tensor changed."""
    waiting = [change]
    return with_tensors(batch, lambda tensor: waiting.pop()(tensor) if waiting else tensor)


if plan.own:

    def make_batches():
        while True:
            batch = get_batch(knobs.problem_batch_size, source, **plan.arguments("get_batch"))
            if knobs.run_device != "cpu":
                batch = with_tensors(batch, lambda tensor: tensor.to(device))
            if knobs.problem_noise > 0:
                batch = with_first(batch, lambda x: noisy(x))
            yield batch
elif plan.dataset and plan.parts_of_large:

    def make_batches():
        """Epoch after epoch, each in an order of its own. The micro-batches of a step are one large batch:
        what is left of an epoch and does not fill it is not used, unless no epoch would fill it.
        """
        order = torch.empty(0, dtype=torch.int64)
        while True:
            size = knobs.problem_batch_size * knobs.accumulation_steps
            if len(order) < size <= len(all_inputs):
                order = order[:0]
            while len(order) < size:
                order = torch.cat([order, torch.randperm(len(all_inputs), generator=source)])
            chosen, order = order[:size].to(device), order[size:]
            inputs, targets = all_inputs[chosen], all_targets[chosen]
            yield from split_up(noisy(inputs), targets)
elif plan.dataset:

    def make_batches():
        """Epoch after epoch, each in an order of its own; only full batches."""
        size = knobs.problem_batch_size
        while True:
            order = torch.randperm(len(all_inputs), generator=source)
            for chosen in order[: len(order) // size * size].split(size):
                inputs, targets = all_inputs[chosen.to(device)], all_targets[chosen.to(device)]
                yield noisy(inputs), targets
elif knobs.problem_task != "pole":

    def make_batches():
        """New examples every time. The micro-batches of a step are drawn as one large batch."""
        while True:
            inputs, targets = draw(knobs.problem_batch_size * knobs.accumulation_steps, source)
            inputs = inputs * knobs.problem_input_scale
            inputs, targets = inputs.to(device), targets.to(device)
            if plan.many:
                yield from split_up(noisy(inputs), targets)
            else:
                yield noisy(inputs), targets
