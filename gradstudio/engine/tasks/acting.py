"""The base of the tasks in which the model acts, and learns from what its actions were worth."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from gradstudio.core.sections.task_knobs import Problem
from gradstudio.engine.tasks.task import Batch, Task

# What the targets of a time step are, before the log-probability of each action when this one was drawn.
ACTION, WORTH, LASTED, SUCCESS, REWARD, FIRST_ACTION = range(6)
_TINY = 1e-8  # added to the deviation of advantages


class Acting(Task):
    """A task whose batches the model draws itself. Targets are (batch, time steps, FIRST_ACTION + actions): the number
    of the action, what it was worth, 1 while the episode lasted, 1 where it did well, its reward, and the policy. A
    batch serves for problem.passes steps."""

    goal = "reward"

    def __init__(self, problem: Problem, seed: int, device: str) -> None:
        super().__init__(problem, seed, device)
        self.passes = problem.passes
        self.drawn: Batch | None = None
        self.passes_made = 0  # with it

    def play(self, model: nn.Module, count: int) -> Batch:
        """Return a batch of `count` micro-batches that the model draws as it is now."""
        raise AssertionError("each task in which the model acts says how")

    def next_batch(self, model: nn.Module, count: int = 1) -> Batch:
        size = self.problem.batch_size * count
        if self.drawn is None or self.passes_made >= self.passes or len(self.drawn.inputs) != size:
            self.drawn, self.passes_made = self.play(model, count), 0
        self.passes_made += 1
        return self.drawn

    @property
    def unfinished(self) -> list[Tensor]:
        """The batch that is to be used again, which is never written to; [] if the next one is drawn anew."""
        return list(self.drawn) if self.drawn is not None and self.passes_made < self.passes else []


@contextmanager
def acting(model: nn.Module) -> Iterator[None]:
    """Put a model into evaluation mode without gradients in this context; its mode is restored at the end."""
    training = model.training
    model.eval()
    with torch.no_grad():
        yield
    model.train(training)


def advantages(worths: Tensor, lasted: Tensor, problem: Problem, group: int) -> Tensor:
    """Return the advantages (batch, time steps): the worths less their mean, and divided by their deviation, as the
    knobs ask for. `group`: number of consecutive episodes over which both are taken."""
    if not problem.baseline:
        return worths
    values, there = worths.view(-1, group * worths.shape[1]), lasted.view(-1, group * worths.shape[1])
    count = there.sum(1, keepdim=True)
    values = (values - values.sum(1, keepdim=True) / count) * there
    if problem.normalize:
        values = values / ((values.square().sum(1, keepdim=True) / count).sqrt() + _TINY)
    return values.view_as(worths)
